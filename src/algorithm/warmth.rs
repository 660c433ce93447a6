//! Warmth, which both forms of the warm-up count: the curve of the interval between calls, and the
//! span of time that states keep.
//!
//! Spans are counted in 2⁻³² ns, because a warm-up rounds once per call, and the errors add up
//! while calls wait.

use std::{fmt, time::Duration};

use super::{
    arithmetic::{div_ceil, div_floor, gcd},
    codec::{damaged, put_number, take_number},
    rule::{Setting, fmt_time},
};
use crate::{
    error::Error,
    quota::{Quota, Written},
};

/// The interval between calls, which shrinks from the cold to the stable one.
///
/// The curve is that of Guava's `SmoothRateLimiter`, which Sentinel's `WarmUpController` took over:
/// idle time stores permits, and the more are stored, the colder the key and the longer the
/// interval. Above the threshold it grows in a straight line up to the cold interval at the
/// maximum; to spend the permits from the maximum down to the threshold takes just the period.
///
/// Permits are measured as time, so that the numbers are the same for all rates: a permit is a
/// stable interval. With the period `over` and the cold factor f, the threshold is over/(f − 1),
/// and the maximum lies 2·over/(f + 1) above it. **Warmth** is the distance to the maximum, so a
/// cold key has none, whatever the rule. At a warmth w the interval is stable · (f − (f −
/// 1)·w/climb), from `climb` on the stable one.
///
/// The climb is rounded up to whole nanoseconds and the threshold down, so that a key is a little
/// colder.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WarmthCurve {
    /// The period, in nanoseconds.
    pub(super) over: u64,
    /// The warmth of a key that goes at the full rate: from the maximum to the threshold, in
    /// nanoseconds.
    pub(super) climb: u64,
    /// The greatest warmth, with no permits stored: at least the climb, in nanoseconds.
    pub(super) most: u64,
    /// The cold factor less 1 is `rise / step`, reduced; so the factor is `(rise + step) / step`.
    pub(super) rise: u32,
    pub(super) step: u32,
    /// The price of a permit in units, of which a nanosecond adds `per_nano`; the ratio is reduced.
    pub(super) per_permit: u64,
    /// At most 2⁴⁰.
    pub(super) per_nano: u64,
}

/// The period if none is set, in nanoseconds.
pub(super) const OVER: u64 = 10_000_000_000;
/// The cold factor if none is set.
pub(super) const COLD: u64 = 3 * THOUSAND;
/// The longest of all times, in nanoseconds: 73 years.
pub(super) const LONGEST: u64 = 1 << 61;

const THOUSAND: u64 = 1000;
const MOST_COLD: u64 = 1000 * THOUSAND;

impl WarmthCurve {
    /// Creates the curve for a period of 1 ns to 73 years, and a cold factor above 1 and up to
    /// 1000, in thousandths.
    ///
    /// Returns `None` if its maximum is above 73 years.
    pub(super) const fn of(quota: Quota, over: u64, cold: u64) -> Option<Self> {
        let twice = 2 * THOUSAND as u128 * over as u128;
        let climb = twice.div_ceil((cold + THOUSAND) as u128);
        let most = climb + twice / 2 / (cold - THOUSAND) as u128;
        if most > LONGEST as u128 {
            return None;
        }
        let parts = gcd(cold as u128, THOUSAND as u128) as u64;
        let divisor = gcd(quota.amount() as u128, quota.period_nanos() as u128) as u64;
        Some(Self {
            over,
            climb: climb as u64,
            most: most as u64,
            rise: ((cold - THOUSAND) / parts) as u32,
            step: (THOUSAND / parts) as u32,
            per_permit: quota.period_nanos() / divisor,
            per_nano: quota.amount() / divisor,
        })
    }

    pub(super) fn try_new(quota: Quota, over: Duration, cold: u64) -> Result<Self, Error> {
        let cold = checked_cold(cold)?;
        if over.is_zero() {
            return Err(Error::new(
                "a warm-up over 0s: expected at least 1ns, as in `over=10s`; \
                 to begin at the full rate, use a token bucket instead",
            ));
        }
        u64::try_from(over.as_nanos())
            .ok()
            .filter(|over| *over <= LONGEST)
            .and_then(|over| Self::of(quota, over, cold))
            .ok_or_else(|| {
                Error::new(format!(
                    "a warm-up over {} with a cold factor of {} reaches beyond 73 years (2^61 ns): \
                     expected less; choose a shorter time",
                    Written(over),
                    Factor(cold)
                ))
            })
    }

    /// Returns the cold factor, in thousandths.
    pub(super) const fn cold(&self) -> u64 {
        THOUSAND * (self.rise + self.step) as u64 / self.step as u64
    }

    /// Writes the settings that are not the defaults.
    pub(super) fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_time(f, "over", (self.over != OVER).then_some(self.over))?;
        if self.cold() != COLD {
            write!(f, " cold={}", Factor(self.cold()))?;
        }
        Ok(())
    }
}

/// Checks a cold factor, in thousandths.
pub(super) fn checked_cold(cold: u64) -> Result<u64, Error> {
    if (THOUSAND + 1..=MOST_COLD).contains(&cold) {
        return Ok(cold);
    }
    Err(Error::new(format!(
        "a cold factor of {}: expected more than 1 and at most 1000, as in `cold=3`; \
         a key that is cold goes that many times slower than one that is warm",
        Factor(cold)
    )))
}

/// Returns the cold factor of a setting, or the default.
pub(super) fn cold_of(setting: Option<Setting<'_>>) -> Result<u64, Error> {
    setting.map_or(Ok(COLD), |word| {
        word.apply(word.thousandths()?, checked_cold)
    })
}

/// Passes the time of a setting, or the default, to `build`, and adds the setting's column to an
/// error.
pub(super) fn built_over<T>(
    setting: Option<Setting<'_>>,
    build: impl FnOnce(Duration) -> Result<T, Error>,
) -> Result<T, Error> {
    match setting {
        None => build(Duration::from_nanos(OVER)),
        Some(word) => word.apply(word.duration()?, build),
    }
}

/// Thousandths, as they are written: `2.5`.
pub(super) struct Factor(pub(super) u64);

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / THOUSAND, self.0 % THOUSAND);
        write!(f, "{whole}")?;
        if part == 0 {
            return Ok(());
        }
        write!(f, ".{}", format!("{part:03}").trim_end_matches('0'))
    }
}

/// A span of time in 96 bits: up to 2⁶⁴ ns (584 years), in ticks of 2⁻³² ns.
// `packed(4)`, because states consist of these.
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
    /// [`units`](Self::units) rounds down. The error is below `per_nano / 2³²` units, so if
    /// `per_nano` ≤ 2³² the same number of units comes out. If it is larger, or the span is read
    /// with another `per_nano`, less than 2⁻³² ns is gained.
    pub(super) fn from_units(units: u128, per_nano: u64) -> Self {
        let nanos = div_floor(units, per_nano);
        let rest = units - nanos * u128::from(per_nano);
        let part = div_ceil(rest << Self::BITS, per_nano);
        // The longest is cut to itself.
        Self::from_ticks((nanos.min(1 << 64) << Self::BITS) + part)
    }

    /// Creates the span [of these units](Self::from_units). If it is this span, as is likely, that
    /// takes no division.
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
    use proptest::prelude::*;

    use super::*;

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
