//! A span of time in fractions of a nanosecond: the state of warm-ups.

use std::fmt;

use super::{
    arithmetic::{div_ceil, div_floor},
    codec::{damaged, put_number, take_number},
};
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

    /// Creates the span of this many ticks, or the longest.
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

    /// Creates the span of `units`, of which a nanosecond has `per_nano` ≤ 2⁶², rounded up.
    ///
    /// [`units`](Self::units) rounds down. The error is below `per_nano / 2³²` units, so if `per_nano` ≤ 2³² the same number
    /// of units comes out. If it is larger, or the span is read with another `per_nano`, less than 2⁻³² ns is gained.
    pub(super) fn from_units(units: u128, per_nano: u64) -> Self {
        let nanos = div_floor(units, per_nano);
        let rest = units - nanos * u128::from(per_nano);
        let part = div_ceil(rest << Self::BITS, per_nano);
        // The longest is cut to itself.
        Self::from_ticks((nanos.min(1 << 64) << Self::BITS) + part)
    }

    /// Creates the span [of these units](Self::from_units). If it is this span, as is likely, that takes no division.
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

    /// Returns the span in units, of which a nanosecond has `per_nano` ≤ 2⁶², rounded down.
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
    }
}
