//! Exact amounts of time, for buckets whose interval between tokens is no whole number.

use std::time::Duration;

use super::codec::{damaged, put_number, take_number};
use crate::error::Error;

/// A signed span of time in 96 bits.
///
/// Up to ±2⁶² ns (146 years) with 32 bits behind the point, which hold every fraction `m / a` of a
/// nanosecond with `a ≤ 2³²` so that it can be recovered exactly: [`Credit::from_units`] rounds the
/// fraction up and [`Credit::units`] down, and the error, below `a / 2³² ≤ 1`, never reaches the next
/// numerator. So the form depends on no rule, and a rule can change under it: at most 2⁻³² ns are
/// gained. From there up to 2⁹⁵ ns in whole nanoseconds, rounded down.
// Packed: a table of a million keys is read from memory, and a slot of it is half a cache line.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct Credit {
    /// 63 bits of whole nanoseconds in two's complement; or `LONG` and the upper 63 of 95 bits.
    upper: u64,
    /// The fraction; or the lower 32 bits.
    lower: u32,
}

const LONG: u64 = 1 << 63;
const FRACTION_BITS: u32 = 32;
/// No, one and two thirds, rounded up as all fractions are.
const THIRDS: [u32; 3] = [0, 0x5555_5556, 0xaaaa_aaab];

impl Credit {
    /// The longest credit, in nanoseconds: 1.2·10¹² years.
    pub(super) const MAX_NANOS: u128 = (1 << 95) - 1;
    /// From here on a credit has no fraction: 146 years.
    pub(super) const LONG_NANOS: u64 = 1 << 62;

    /// The span of so many nanoseconds, in ±[`LONG_NANOS`](Self::LONG_NANOS) but for the upper bound itself.
    #[inline]
    fn from_whole(nanos: i64) -> Self {
        Self {
            upper: nanos as u64 & !LONG,
            lower: 0,
        }
    }

    pub(super) fn encode(self, bytes: &mut Vec<u8>) {
        put_number(bytes, self.upper);
        put_number(bytes, u64::from(self.lower));
    }

    pub(super) fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        let (upper, lower) = (take_number(bytes)?, take_number(bytes)?);
        let lower = u32::try_from(lower).map_err(|_| damaged())?;
        Ok(Self { upper, lower })
    }

    /// The span of so many thirds of a nanosecond.
    #[inline]
    pub(super) fn from_thirds(thirds: i64) -> Self {
        // A third of any number of 64 bits is short.
        Self {
            upper: thirds.div_euclid(3) as u64 & !LONG,
            lower: THIRDS[thirds.rem_euclid(3) as usize],
        }
    }

    /// The span in thirds of a nanosecond, if that is a whole number of 64 bits.
    #[inline]
    pub(super) fn thirds(self) -> Option<i64> {
        if self.upper & LONG != 0 {
            return None;
        }
        let lower = self.lower;
        let part = THIRDS.iter().position(|third| *third == lower)?;
        self.short().checked_mul(3)?.checked_add(part as i64)
    }

    /// Its whole nanoseconds, rounded down, in thirds of one: if that is a number of 64 bits.
    #[inline]
    pub(super) fn whole_in_thirds(self) -> Option<i64> {
        if self.upper & LONG != 0 {
            return None;
        }
        self.short().checked_mul(3)
    }

    /// The upper word of a short credit as a number: bit 62 is its sign.
    #[inline]
    fn short(self) -> i64 {
        (self.upper << 1) as i64 >> 1
    }

    /// The span that is worth `units` where a nanosecond is worth `per_nano` ≤ 2³² units.
    pub(super) fn from_units(units: i128, per_nano: u64) -> Self {
        let (whole, part) = match i64::try_from(units) {
            Ok(units) => {
                let divisor = per_nano as i64;
                let (whole, part) = (units.div_euclid(divisor), units.rem_euclid(divisor));
                (i128::from(whole), part as u64)
            }
            Err(_) => {
                let divisor = i128::from(per_nano);
                (units.div_euclid(divisor), units.rem_euclid(divisor) as u64)
            }
        };
        let long = i128::from(Self::LONG_NANOS);
        if whole >= long {
            let whole = (whole as u128).min(Self::MAX_NANOS);
            return Self {
                upper: (whole >> FRACTION_BITS) as u64 | LONG,
                lower: whole as u32,
            };
        }
        if whole < -long {
            // A debt that was taken by force ends at 146 years.
            return Self::from_whole(-long as i64);
        }
        let fraction = (part << FRACTION_BITS).div_ceil(per_nano);
        Self {
            upper: whole as u64 & !LONG,
            lower: fraction as u32,
        }
    }

    /// What the span is worth where a nanosecond is worth `per_nano` ≤ 2³² units.
    pub(super) fn units(self, per_nano: u64) -> i128 {
        if self.upper & LONG != 0 {
            let whole = u128::from(self.upper & !LONG) << FRACTION_BITS | u128::from(self.lower);
            return (whole as i128).saturating_mul(i128::from(per_nano));
        }
        let part = u128::from(self.lower) * u128::from(per_nano);
        i128::from(self.short()) * i128::from(per_nano) + (part >> FRACTION_BITS) as i128
    }

    /// The same for a span that is owed: what another grid left of a unit counts as a whole one.
    #[inline]
    pub(super) fn units_up(self, per_nano: u64) -> i128 {
        let lower = self.lower;
        if self.upper & LONG != 0 || lower == 0 {
            return self.units(per_nano);
        }
        // The fraction was rounded up: what it was lies above the one before, and at most at it.
        let part = u128::from(lower - 1) * u128::from(per_nano);
        i128::from(self.short()) * i128::from(per_nano) + (part >> FRACTION_BITS) as i128 + 1
    }
}

impl std::fmt::Debug for Credit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (upper, lower) = (self.upper, self.lower);
        if upper & LONG == 0 {
            write!(f, "{}+{lower}/2^32 ns", self.short())
        } else {
            write!(f, "{} ns", self.units(1))
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fractions_are_recovered_exactly(units in -(1_i128 << 94)..(1 << 94), per_nano in 1..=1_u64 << 32) {
            let whole = units.div_euclid(i128::from(per_nano));
            prop_assume!(whole.abs() < i128::from(Credit::LONG_NANOS) || (whole > 0 && per_nano == 1));
            let credit = Credit::from_units(units, per_nano);
            prop_assert_eq!((credit.units(per_nano), credit.units_up(per_nano)), (units, units));
        }

        #[test]
        fn another_grid_gains_nothing_that_could_be_seen(
            units in 0..1_i128 << 60, old in 1..=1_u64 << 32, new in 1..=1_u64 << 32,
        ) {
            let span = Credit::from_units(units, old);
            let carried = span.units(new);
            // units/old nanoseconds are worth units·new/old; 2^-32 ns more, less than one unit more.
            let (old, new) = (i128::from(old), i128::from(new));
            let exact = units * new;
            prop_assert!((carried - 1) * old < exact);
            prop_assert!((carried + 1) * old > exact);
            // Owed, it is less than a unit more, and at most 2^-32 ns less.
            let owed = span.units_up(new as u64);
            prop_assert!((owed - 1) * old < exact);
            prop_assert!((exact - owed * old) << 32 < new * old);
        }
    }
}
