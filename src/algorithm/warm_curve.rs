//! The curve of both forms of the warm-up: the interval between calls by the warmth of a key.

use std::{fmt, time::Duration};

use super::{arithmetic::gcd, text::Setting};
use crate::{
    error::Error,
    quota::{Quota, Written, fmt_duration},
};

/// The interval between calls, which shrinks from the cold to the stable one.
///
/// The curve is that of Guava's `SmoothRateLimiter`, which Sentinel's `WarmUpController` took over: idle time
/// stores permits, and the more are stored, the colder the key and the longer the interval. Above the threshold it
/// grows in a straight line up to the cold interval at the maximum; to spend the permits from the maximum down to
/// the threshold takes just the period.
///
/// Permits are measured as time, so that the numbers are the same for all rates: a permit is a stable interval. With the period
/// `over` and the cold factor f, the threshold is over/(f − 1), and the maximum lies 2·over/(f + 1) above it. **Warmth** is the
/// distance to the maximum, so a cold key has none, whatever the rule. At a warmth w the interval is
/// stable · (f − (f − 1)·w/climb), from `climb` on the stable one.
///
/// The climb is rounded up to whole nanoseconds and the threshold down, so that a key is a little colder.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Curve {
    /// The period, in nanoseconds.
    pub(super) over: u64,
    /// The warmth of a key that goes at the full rate: from the maximum to the threshold, in nanoseconds.
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

impl Curve {
    /// Creates the curve for a period of 1 ns to 73 years, and a cold factor above 1 and up to 1000, in thousandths.
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
        if self.over != OVER {
            f.write_str(" over=")?;
            fmt_duration(self.over, f)?;
        }
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

/// Builds something with the time of a setting, or with the default; an error gets the setting's column.
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
