//! Exact amounts of time, for buckets whose interval between tokens is no whole number.

use std::time::Duration;

/// A signed span of time in units of 2⁻³² ns, within ±2⁹⁵ ns.
///
/// Holds every fraction `m / a` of a nanosecond with `a ≤ 2³²` so that it can be
/// recovered exactly: [`Credit::from_units`] rounds the fraction up and
/// [`Credit::units`] down, and the error, below `a / 2³² ≤ 1`, never reaches the next numerator.
/// So the form depends on no rule, and a rule can change under it: at most 2⁻³² ns are gained.
// Packed: 16-byte alignment would pad a state of three words to four.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(8))]
pub(super) struct Credit(i128);

const FRACTION_BITS: u32 = 32;
const FRACTION_MASK: i128 = (1 << FRACTION_BITS) - 1;

impl Credit {
    /// The longest credit, in nanoseconds: 1.2·10¹² years.
    pub(super) const MAX_NANOS: u128 = (1 << 95) - 1;

    /// The span that is worth `units` where a nanosecond is worth `per_nano` ≤ 2³² units.
    #[inline]
    pub(super) fn from_units(units: i128, per_nano: u64) -> Self {
        let (whole, fraction) = if per_nano == 1 {
            (units, 0)
        } else {
            let divisor = i128::from(per_nano);
            let part = units.rem_euclid(divisor) as u64;
            (units.div_euclid(divisor), (part << FRACTION_BITS).div_ceil(per_nano))
        };
        // Only a debt taken by force can be cut here, at 10¹² years.
        let limit = Self::MAX_NANOS as i128;
        let whole = whole.clamp(-limit, limit);
        Self((whole << FRACTION_BITS) | i128::from(fraction))
    }

    /// The span of so many nanoseconds.
    #[inline]
    pub(super) fn from_whole(nanos: i64) -> Self {
        Self(i128::from(nanos) << FRACTION_BITS)
    }

    /// The span in nanoseconds, if that is a whole number of 64 bits.
    #[inline]
    pub(super) fn whole(self) -> Option<i64> {
        let fine = self.0;
        let whole = (fine >> FRACTION_BITS) as i64;
        (i128::from(whole) << FRACTION_BITS == fine).then_some(whole)
    }

    /// What the span is worth where a nanosecond is worth `per_nano` ≤ 2³² units.
    #[inline]
    pub(super) fn units(self, per_nano: u64) -> i128 {
        let fine = self.0;
        let fraction = (fine & FRACTION_MASK) as u64;
        let whole = (fine >> FRACTION_BITS).saturating_mul(i128::from(per_nano));
        if fraction == 0 {
            return whole;
        }
        let part = u128::from(fraction) * u128::from(per_nano);
        whole.saturating_add((part >> FRACTION_BITS) as i128)
    }
}

impl std::fmt::Debug for Credit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fine = self.0;
        write!(f, "{}+{}/2^32 ns", fine >> FRACTION_BITS, fine & FRACTION_MASK)
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
        fn fractions_are_recovered_exactly(units in -(1_i128 << 90)..(1 << 90), per_nano in 1..=1_u64 << 32) {
            prop_assert_eq!(Credit::from_units(units, per_nano).units(per_nano), units);
        }

        #[test]
        fn another_grid_gains_nothing_that_could_be_seen(
            units in 0..1_i128 << 60, old in 1..=1_u64 << 32, new in 1..=1_u64 << 32,
        ) {
            let carried = Credit::from_units(units, old).units(new);
            // units/old nanoseconds are worth units·new/old; 2^-32 ns more, less than one unit more.
            let (exact, old) = (units * i128::from(new), i128::from(old));
            prop_assert!((carried - 1) * old < exact);
            prop_assert!((carried + 1) * old > exact);
        }
    }
}
