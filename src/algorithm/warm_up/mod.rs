//! A limit per second that grows with use.

mod step;
mod wire;

use std::{fmt, num::NonZeroU64, time::Duration};

use self::step::SECOND;
pub(super) use self::step::WarmUpState;
use super::{
    arithmetic::gcd,
    rule::{RuleWords, of_quota, text},
    warmth::{COLD, Factor, OVER, Span, WarmthCurve, built_over, checked_cold, cold_of},
};
use crate::{
    error::{Error, or_panic, panicking},
    quota::{Quota, Written},
};

/// A warm-up: an idle key begins at a third of its rate, and use raises it to the full rate.
///
/// For services that are slow after a pause, because of empty caches, missing connections, or code
/// that is compiled as it runs. This is the form of Sentinel's `WarmUpController`, which limits the
/// number of calls in each second of the calendar (Unix time, UTC) and does not space them;
/// [`WarmUpSpaced`](crate::WarmUpSpaced) is Guava's form, which does.
///
/// | setting | | default |
/// |---|---|---|
/// | [`over`](Self::over) | the approximate time from cold to warm under full load | 10 s |
/// | [`cold`](Self::cold) | how many times slower a cold key is | 3 |
///
/// A key stores a token for each call that it could have made and did not, up to a maximum at which
/// it is cold. A new key is cold. For `200/s` the maximum is 2000 tokens, at which ⌊200 / 3⌋ = 66
/// calls a second pass. At 1000 tokens, the threshold, and below, all 200 pass; between the two, 1
/// / (1/200 + 10⁻⁵ · (stored − 1000)), rounded down. At each full second, tokens are added for the
/// second that has ended and the calls in it are subtracted. Above the threshold, tokens are added
/// only if fewer than 66 calls passed. So a key that uses its allowance becomes warm, here after 11
/// seconds, and a key that is used less becomes cold again.
///
/// # Guarantee
///
/// In a second of the calendar at most ⌊rate⌋ units pass, and at most ⌊rate / cold factor⌋ for a
/// cold key. The numbers are exact: rates are compared as fractions. Threshold and maximum are
/// rounded to the tokens of a nanosecond, towards the cold. A quota that cannot be counted exactly
/// is an error: one whose amount stays above 2³² after reducing it by the period in nanoseconds.
///
/// # Limits of the guarantee
///
/// Seconds are those of the calendar, so twice the number can pass around a full second. An idle
/// key only becomes colder: a cost for which neither this second nor the next one has room is
/// refused without a retry time, because it passes only if other calls warm the key. The same holds
/// for a cost that rules beside this one (a pair, `… & …`) admit only when the key has become too
/// cold for it. A limit of its own beside it (`.also`) does not account for that.
///
/// # Cost
///
/// 28 bytes per key.
///
/// # When the rule changes
///
/// The calls of a key's last second stay: they count against the new limit of that second, and warm
/// the key by as many calls. The warmth at the beginning of that second carries over as time: the
/// distance to the maximum at the full rate. So a new rate finds a key as warm as it was, and under
/// a longer warm-up the key is colder.
///
/// # When the clock steps back
///
/// Time stands still for a key at its last second until the clock has caught up.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, Timestamp};
/// use tollgate::algorithm::{Algorithm, WarmUp};
///
/// let rule = WarmUp::per_second(200);
/// let (mut state, noon) = (None, Timestamp::from_nanos(43_200_000_000_000));
/// let mut passed = [0; 12];
/// for (second, passed) in passed.iter_mut().enumerate() {
///     let now = noon.saturating_add(Duration::from_secs(second as u64));
///     while rule.step(&mut state, now, Cost::ONE).decision().is_admitted() {
///         *passed += 1;
///     }
/// }
/// assert_eq!(passed, [66, 69, 73, 77, 82, 88, 95, 105, 118, 137, 169, 200]);
/// ```
#[doc(alias("slow start", "guava", "SmoothWarmingUp"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WarmUp {
    quota: Quota,
    curve: WarmthCurve,
    /// The units that a warm key admits in a second.
    capacity: NonZeroU64,
    /// The units that a cold key admits in a second.
    least: NonZeroU64,
}

impl WarmUp {
    /// Returns a warm-up to `quota` over 10 s, beginning at a third of it.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) fails; meant for literals.
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        or_panic(Self::try_new(quota))
    }

    /// Returns a warm-up to `quota` over 10 s, beginning at a third of it.
    ///
    /// # Errors
    ///
    /// When the quota is below three a second, or cannot be counted; see
    /// [`try_with`](Self::try_with).
    pub fn try_new(quota: Quota) -> Result<Self, Error> {
        Self::try_with(quota, Duration::from_nanos(OVER), COLD)
    }

    /// Returns a warm-up to `quota` over a time, from a cold factor in thousandths: all settings at
    /// once.
    ///
    /// # Errors
    ///
    /// - When a cold key would admit less than one call a second, because the quota per second is
    ///   below the cold factor. As nothing would pass, the key would never warm up.
    /// - When the amount of the quota stays above 2³² after reducing it by the period in
    ///   nanoseconds: a state has room for 32 bits of a nanosecond, so it could not represent every
    ///   warmth.
    /// - When the cold factor is not above 1 (1000 thousandths), or above 1000.
    /// - When the time is zero, or so short that a single call leads from the maximum to the
    ///   threshold, or so long that the maximum takes more than 73 years (2⁶¹ ns) to fill.
    pub fn try_with(quota: Quota, over: Duration, cold_thousandths: u64) -> Result<Self, Error> {
        checked_quota(quota, checked_cold(cold_thousandths)?)?;
        let curve = WarmthCurve::try_new(quota, over, cold_thousandths)?;
        if curve.climb_units() < u128::from(curve.per_permit) {
            return Err(Error::new(format!(
                "a warm-up over {} at {quota}: less than one call lies between its maximum and its \
                 threshold; expected more, as in `over=10s`",
                Written(over)
            )));
        }
        let some = |units| NonZeroU64::new(units).unwrap_or(NonZeroU64::MIN);
        Ok(Self {
            quota,
            curve,
            capacity: some(curve.each_second(curve.climb_units())),
            least: some(curve.each_second(0)),
        })
    }

    panicking! {
        /// Sets the time from cold to warm.
        pub fn over(self, time: Duration) = try_over;
    }

    /// Sets the time from cold to warm.
    ///
    /// # Errors
    ///
    /// When the time is zero, or so short that a single call leads from the maximum to the
    /// threshold, or so long that the maximum takes more than 73 years (2⁶¹ ns) to fill.
    pub fn try_over(self, time: Duration) -> Result<Self, Error> {
        Self::try_with(self.quota, time, self.curve.cold())
    }

    panicking! {
        /// Sets how many times slower a cold key is.
        pub fn cold(self, factor: u32) = try_cold;
    }

    /// Sets how many times slower a cold key is.
    ///
    /// Fractions of a factor are set by [`try_with`](Self::try_with) or text.
    ///
    /// # Errors
    ///
    /// When the factor is not above 1, above 1000, or above the rate per second; or too high for
    /// the time, see [`try_over`](Self::try_over).
    pub fn try_cold(self, factor: u32) -> Result<Self, Error> {
        let over = Duration::from_nanos(self.curve.over);
        Self::try_with(self.quota, over, 1000 * u64::from(factor))
    }

    /// Returns the rate of a warm key.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the greatest cost that can ever pass: the units that a warm key admits in a second.
    pub const fn capacity(&self) -> u64 {
        self.capacity.get()
    }

    /// Returns the time from cold to warm under full load.
    pub const fn warms_over(&self) -> Duration {
        Duration::from_nanos(self.curve.over)
    }

    /// Returns how many times slower a cold key is, in thousandths.
    pub const fn cold_thousandths(&self) -> u64 {
        self.curve.cold()
    }
}

/// Checks that a cold key admits a call a second, and that a state can represent every warmth.
fn checked_quota(quota: Quota, cold: u64) -> Result<(), Error> {
    let (amount, period) = (quota.amount(), quota.period_nanos());
    // In thousandths of a call in a second; at most 2^80, and 2^83.
    let rate = u128::from(amount) * u128::from(SECOND) * 1000;
    if rate < u128::from(cold) * u128::from(period) {
        return Err(Error::new(format!(
            "a warm-up to {quota} lets less than one call a second pass when it is cold, and so never warms: \
             expected at least {} a second; choose a lower cold factor, or `warm-up-spaced`, which has no seconds",
            Factor(cold)
        )));
    }
    // A warmth is a whole number of parts of a nanosecond, which has as many parts as the reduced
    // amount. A span has 32 bits for them, so up to 2^32 parts are represented exactly. More would
    // be rounded up, and the next call in the same second would find more than the last decision
    // contained.
    let divisor = gcd(amount.into(), period.into()) as u64;
    let parts = amount / divisor;
    if parts > MOST_PARTS {
        return Err(Error::new(format!(
            "a warm-up to {quota} cannot be counted exactly, because its quota is {parts} for {} ns when it is reduced: \
             expected a reduced amount of at most 2^32 (4294967296); choose a rounder amount, as in `10000000000/s`, \
             or `warm-up-spaced`, which counts in time",
            period / divisor
        )));
    }
    Ok(())
}

/// The largest number of units in a nanosecond of which a [`Span`] represents every count.
const MOST_PARTS: u64 = 1 << Span::BITS;

of_quota!(
    try WarmUp,
    "Returns a warm-up to `amount` calls a second over 10 s, beginning at a third of it.",
    "Returns a warm-up to `amount` calls a minute over 10 s, beginning at a third of it.",
    "Returns a warm-up to `amount` calls an hour over 10 s, beginning at a third of it.",
    "Returns a warm-up to `amount` calls in 24 hours over 10 s, beginning at a third of it."
);

impl WarmUp {
    fn of_words(words: &mut RuleWords<'_>) -> Result<Self, Error> {
        let column = words.column();
        let quota = words.quota()?;
        let [over, cold] = words.settings(&["over", "cold"])?;
        let cold = cold_of(cold)?;
        checked_quota(quota, cold).map_err(|error| error.at_column(column))?;
        built_over(over, |over| Self::try_with(quota, over, cold))
    }

    fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.quota)?;
        self.curve.fmt_settings(f)
    }
}

text! {
    /// Parses `warm-up 200/s over=10s cold=2.5`; all but the quota may be left out.
    WarmUp
}
