//! Spans of time in fractions of a nanosecond, and products that are wider than a word.

use std::{fmt, time::Duration};

use super::codec::{damaged, put_number, take_number};
use crate::error::Error;

/// A span of time in 96 bits: up to 2⁶⁴ ns (584 years), in ticks of 2⁻³² ns.
// Packed: states consist of these.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct Span {
    nanos: u64,
    part: u32,
}

impl Span {
    /// A nanosecond has 2³² ticks.
    pub(super) const BITS: u32 = u32::BITS;
    pub(super) const NONE: Self = Self { nanos: 0, part: 0 };
    /// The longest span, in ticks.
    pub(super) const MAX_TICKS: u128 = (1 << 96) - 1;

    /// The span of so many ticks, or the longest.
    #[inline]
    pub(super) fn from_ticks(ticks: u128) -> Self {
        let ticks = ticks.min(Self::MAX_TICKS);
        Self {
            nanos: (ticks >> Self::BITS) as u64,
            part: ticks as u32,
        }
    }

    #[inline]
    pub(super) fn ticks(self) -> u128 {
        u128::from(self.nanos) << Self::BITS | u128::from(self.part)
    }

    /// The span that is worth `units` where a nanosecond is worth `per_nano` ≤ 2⁶² units, rounded up.
    ///
    /// [`units`](Self::units) rounds down, and the error, below `per_nano / 2³²` units, never reaches the next
    /// unit where `per_nano` ≤ 2³²: what was put in comes out exactly. Where it is larger, or another one
    /// reads the span, less than 2⁻³² ns is gained.
    pub(super) fn from_units(units: u128, per_nano: u64) -> Self {
        let nanos = div_floor(units, per_nano);
        let rest = units - nanos * u128::from(per_nano);
        let part = div_ceil(rest << Self::BITS, per_nano);
        // The longest is cut to itself.
        Self::from_ticks((nanos.min(1 << 64) << Self::BITS) + part)
    }

    /// The span [from](Self::from_units) these units, which is likely to be this one: that is told without a division.
    #[inline]
    pub(super) fn replaced(self, units: u128, per_nano: u64) -> Self {
        let per_nano_wide = u128::from(per_nano);
        let rest = units.wrapping_sub(u128::from(self.nanos) * per_nano_wide);
        if rest < per_nano_wide {
            // A part that is rounded up is worth as much or more, by less than a part of one unit.
            let part = u128::from(self.part) * per_nano_wide;
            if part.wrapping_sub(rest << Self::BITS) < per_nano_wide {
                return self;
            }
        }
        Self::from_units(units, per_nano)
    }

    /// What the span is worth where a nanosecond is worth `per_nano` ≤ 2⁶² units, rounded down.
    #[inline]
    pub(super) fn units(self, per_nano: u64) -> u128 {
        let part = u128::from(self.part) * u128::from(per_nano);
        u128::from(self.nanos) * u128::from(per_nano) + (part >> Self::BITS)
    }

    pub(super) fn encode(self, bytes: &mut Vec<u8>) {
        put_number(bytes, self.nanos);
        put_number(bytes, u64::from(self.part));
    }

    pub(super) fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        let (nanos, part) = (take_number(bytes)?, take_number(bytes)?);
        let part = u32::try_from(part).map_err(|_| damaged())?;
        Ok(Self { nanos, part })
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nanos, part) = (self.nanos, self.part);
        write!(f, "{nanos}+{part}/2^32 ns")
    }
}

/// `numerator / divisor`, rounded up; most calls meet numbers of one word or a divisor of 1.
#[inline]
pub(super) fn div_ceil(numerator: u128, divisor: u64) -> u128 {
    if divisor == 1 {
        return numerator;
    }
    match u64::try_from(numerator) {
        Ok(numerator) => u128::from(numerator.div_ceil(divisor)),
        Err(_) => numerator.div_ceil(u128::from(divisor)),
    }
}

/// `numerator / divisor`, rounded down.
#[inline]
pub(super) fn div_floor(numerator: u128, divisor: u64) -> u128 {
    match u64::try_from(numerator) {
        Ok(numerator) => u128::from(numerator / divisor),
        Err(_) => numerator / u128::from(divisor),
    }
}

/// A duration of so many nanoseconds, cut to [`Duration::MAX`].
#[inline]
pub(super) fn duration(nanos: u128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    match u64::try_from(nanos) {
        Ok(nanos) => Duration::from_nanos(nanos),
        Err(_) => u64::try_from(nanos / SECOND).map_or(Duration::MAX, |seconds| {
            Duration::new(seconds, (nanos % SECOND) as u32)
        }),
    }
}

/// `x · y / z` rounded down, and whether it was rounded; for `z` < 2¹²⁶ and a quotient that fits.
#[inline]
pub(super) fn mul_div(x: u128, y: u128, z: u128) -> (u128, bool) {
    match x.checked_mul(y) {
        Some(product) => {
            let quotient = match (u64::try_from(product), u64::try_from(z)) {
                (Ok(product), Ok(z)) => u128::from(product / z),
                _ => product / z,
            };
            (quotient, quotient * z != product)
        }
        None => mul_div_wide(x, y, z),
    }
}

/// The same where the product does not fit, unless what the powers of two in `z` leave of it does: that of a time in
/// ticks has many.
fn mul_div_wide(x: u128, y: u128, z: u128) -> (u128, bool) {
    let (high, low) = mul_wide(x, y);
    let zeros = z.trailing_zeros();
    if zeros == 0 || high >> zeros != 0 {
        return mul_div_by_bits(x, y, z);
    }
    let (divisor, rest) = (z >> zeros, u128::BITS - zeros);
    let product = high << rest | low >> zeros;
    let quotient = product / divisor;
    (quotient, quotient * divisor != product || low << rest != 0)
}

/// The upper and the lower half of `x · y`, by their halves.
fn mul_wide(x: u128, y: u128) -> (u128, u128) {
    let halves = |number: u128| (number >> 64, u128::from(number as u64));
    let ((x1, x0), (y1, y0)) = (halves(x), halves(y));
    let (carry, lowest) = halves(x0 * y0);
    // At most (2^64 - 1)^2 + 2^64 - 1 each.
    let (upper, middle) = halves(x1 * y0 + carry);
    let (carry, middle) = halves(x0 * y1 + middle);
    (x1 * y1 + upper + carry, middle << 64 | lowest)
}

/// The same for all: one bit of `x` after the other, as one divides by hand.
#[cold]
fn mul_div_by_bits(x: u128, y: u128, z: u128) -> (u128, bool) {
    let (whole, part) = (y / z, y % z);
    let (mut quotient, mut rest) = (0, 0);
    for bit in (0..u128::BITS - x.leading_zeros()).rev() {
        quotient <<= 1;
        // Both are below z, so that this is below 3 z.
        rest = 2 * rest + part * (x >> bit & 1);
        while rest >= z {
            rest -= z;
            quotient += 1;
        }
    }
    (quotient + x * whole, rest != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fractions_are_recovered_exactly(units in 0..1_u128 << 94, per_nano in 1..=1_u64 << 32) {
            prop_assume!(units / u128::from(per_nano) < 1 << 64);
            prop_assert_eq!(Span::from_units(units, per_nano).units(per_nano), units);
        }

        #[test]
        fn a_span_is_replaced_by_what_units_make_of_one(
            units in 0..1_u128 << 94, other in 0..1_u128 << 94, nearby in -2..=2_i128, per_nano in 1..=1_u64 << 62,
            old in 1..=1_u64 << 62,
        ) {
            let exact = Span::from_units(units, per_nano);
            let ticks = exact.ticks().saturating_add_signed(nearby);
            for before in [Span::from_ticks(ticks), Span::from_units(other, old), Span::NONE] {
                prop_assert_eq!(before.replaced(units, per_nano), exact);
            }
        }

        #[test]
        fn another_grid_gains_less_than_a_tick(units in 0..1_u128 << 50, old in 1..=1_u64 << 40, new in 1..=1_u64 << 40) {
            let carried = Span::from_units(units, old).units(new);
            // units/old nanoseconds are worth units·new/old.
            let (exact, old, new) = (units * u128::from(new), u128::from(old), u128::from(new));
            prop_assert!((carried << 32) * old < (exact << 32) + old * new);
            prop_assert!((carried + 1) * old > exact);
        }

        #[test]
        fn wide_products_are_divided_as_narrow_ones_are(x in 0..1_u128 << 63, y in 0..1_u128 << 64, z in 1..1_u128 << 126) {
            prop_assert_eq!(mul_div_by_bits(x, y, z), (x * y / z, x * y % z != 0));
        }

        #[test]
        fn wide_products_are_divided_by_powers_of_two_at_once(
            x in 0..=u128::MAX, y in 0..=u128::MAX, less in 0..128, z in 1..1_u128 << 126, zeros in 0..126,
        ) {
            let (y, z) = (y >> less, (z << zeros) % (1_u128 << 126));
            prop_assume!(z > 0);
            // Whose quotient fits.
            prop_assume!(y <= z);
            prop_assert_eq!(mul_div_wide(x, y, z), mul_div_by_bits(x, y, z));
        }

        #[test]
        fn a_product_has_two_halves(x in 0..=u128::MAX, y in 0..=u128::MAX) {
            let big = |number: u128| num_bigint::BigUint::from(number);
            let (high, low) = mul_wide(x, y);
            prop_assert_eq!((big(high) << 128_u32) + big(low), big(x) * big(y));
        }

        #[test]
        fn a_wide_product_divided_by_a_factor_is_the_other(x in 1..=u128::MAX, z in 1..1_u128 << 126) {
            prop_assert_eq!(mul_div(x, z, z), (x, false));
            prop_assert_eq!(mul_div(z, x, z), (x, false));
        }
    }
}
