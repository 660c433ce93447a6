//! A limit for each second that grows with use.

mod codec;
mod script;
mod step;
mod text;

use std::{num::NonZeroU64, time::Duration};

use super::{
    rate::gcd,
    span::Span,
    warm_curve::{COLD, Curve, Factor, OVER, checked_cold},
};
use crate::{
    clock::Timestamp,
    error::Error,
    quota::{Quota, Written},
};

/// A warm-up: an idle key begins at a third of its rate, and using that brings it to all of it.
///
/// For what is slow after a pause: empty caches, connections still to be made, code that is compiled as it runs. It
/// is the form of Sentinel's `WarmUpController`, which limits the number in each second of the calendar (Unix time,
/// UTC) and does not space the calls within it; [`WarmUpSpaced`](super::WarmUpSpaced) is Guava's form, which does.
///
/// | setting | | default |
/// |---|---|---|
/// | [`over`](Self::over) | the time from cold to warm under full load, about | 10 s |
/// | [`cold`](Self::cold) | how many times slower a cold key goes | 3 |
///
/// A key stores a token for each call that it could have made and did not, up to a maximum at which it is cold:
/// that is how it begins. Of `200/s` it stores up to 2000. At 2000 it lets ⌊200 / 3⌋ = 66 calls a second pass, at
/// 1000, the threshold, and below that all 200; between them 1 / (1/200 + 10⁻⁵ · (stored − 1000)), rounded down. At
/// each full second tokens are made for the second that has ended, and what passed in it is taken off. Above the
/// threshold they are made only where fewer than 66 passed: so a key that lets pass what it may becomes warm, after
/// 11 seconds here, and one that is used less becomes cold again.
///
/// # What it guarantees
///
/// In a second of the calendar at most ⌊rate⌋ units pass, and for a key that is cold at most ⌊rate / cold factor⌋.
/// The numbers are exact: rates are compared as fractions. The two marks, threshold and maximum, are rounded to a
/// nanosecond's worth of tokens, towards the cold, where they are no whole number of those. A quota that cannot be
/// counted exactly is an error: one whose amount stays above 2³² after reducing it by the period in nanoseconds.
///
/// # What it does not guarantee
///
/// Seconds are those of the calendar, so that twice the number can pass around a full second. While nothing passes
/// a key only becomes colder: a cost that neither this second nor the next one has room for is refused without a
/// retry time, unless others warm the key. So is a cost that rules beside it (a pair, `… & …`) let pass only when the key
/// has become too cold for it; a limit of its own beside it (`.also`) does not know of that.
///
/// # What it costs
///
/// 28 bytes per key.
///
/// # When the rule changes
///
/// What passed in a key's last second stays, in calls: it counts against the new limit of that second, and warms
/// the key by as many calls. How warm it began that second carries over as time: what lacked to the maximum, at the
/// full rate. So a new rate finds a key as warm as it was, and under a longer warm-up it is colder.
///
/// # When the clock steps back
///
/// Time stands still for a key at its last second, until the clock has caught up.
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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WarmUp {
    quota: Quota,
    curve: Curve,
    /// What passes in a second when it is warm.
    capacity: NonZeroU64,
    /// What passes in a second when it is cold.
    least: NonZeroU64,
}

/// What a [`WarmUp`] remembers of a key: how warm it began its last second, and what passed in it.
// Packed: 28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct WarmUpState {
    /// The beginning of the second.
    second: Timestamp,
    passed: u64,
    warmth: Span,
}

impl WarmUp {
    /// A warm-up to `quota`, over 10 s and from a third of it.
    ///
    /// # Panics
    ///
    /// Where [`try_new`](Self::try_new) fails; meant for literals.
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        Self::try_new(quota).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A warm-up to `quota`, over 10 s and from a third of it.
    ///
    /// # Errors
    ///
    /// When the quota is below three a second, or cannot be counted; see [`try_with`](Self::try_with).
    pub fn try_new(quota: Quota) -> Result<Self, Error> {
        Self::try_with(quota, Duration::from_nanos(OVER), COLD)
    }

    /// A warm-up to `quota` over a time and from a cold factor in thousandths: all settings at once.
    ///
    /// # Errors
    ///
    /// - When less than one call a second passes while it is cold: when the quota is below the cold factor a
    ///   second. As nothing would pass, it would never warm.
    /// - When the amount of the quota stays above 2³² after reducing it by the period in nanoseconds: a state has
    ///   room for 32 bits of a nanosecond, so it could not hold every warmth.
    /// - When the cold factor is not above 1 (1000 thousandths), or above 1000.
    /// - When the time is zero, or so short that a single call leads from the maximum to the threshold,
    ///   or so long that the maximum takes more than 73 years (2⁶¹ ns) to fill.
    pub fn try_with(quota: Quota, over: Duration, cold_thousandths: u64) -> Result<Self, Error> {
        checked_quota(quota, checked_cold(cold_thousandths)?)?;
        let curve = Curve::try_new(quota, over, cold_thousandths)?;
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

    /// A warm-up to `amount` calls a second, over 10 s and from a third of it.
    ///
    /// # Panics
    ///
    /// When the amount is below 3, above 2⁴⁰, or [cannot be counted](Self::try_with).
    #[track_caller]
    pub fn per_second(amount: u64) -> Self {
        Self::new(Quota::per_second(amount))
    }

    /// A warm-up to `amount` calls a minute, over 10 s and from a third of it.
    ///
    /// # Panics
    ///
    /// When the amount is below 180, above 2⁴⁰, or [cannot be counted](Self::try_with).
    #[track_caller]
    pub fn per_minute(amount: u64) -> Self {
        Self::new(Quota::per_minute(amount))
    }

    /// A warm-up to `amount` calls an hour, over 10 s and from a third of it.
    ///
    /// # Panics
    ///
    /// When the amount is below 10,800, above 2⁴⁰, or [cannot be counted](Self::try_with).
    #[track_caller]
    pub fn per_hour(amount: u64) -> Self {
        Self::new(Quota::per_hour(amount))
    }

    /// A warm-up to `amount` calls in a day of 24 hours, over 10 s and from a third of it.
    ///
    /// # Panics
    ///
    /// When the amount is below 259,200, above 2⁴⁰, or [cannot be counted](Self::try_with).
    #[track_caller]
    pub fn per_day(amount: u64) -> Self {
        Self::new(Quota::per_day(amount))
    }

    /// The same warm-up over another time.
    ///
    /// # Panics
    ///
    /// Where [`try_over`](Self::try_over) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn over(self, time: Duration) -> Self {
        self.try_over(time)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same warm-up over another time.
    ///
    /// # Errors
    ///
    /// When the time is zero, or so short that a single call leads from the maximum to the threshold,
    /// or so long that the maximum takes more than 73 years (2⁶¹ ns) to fill.
    pub fn try_over(self, time: Duration) -> Result<Self, Error> {
        Self::try_with(self.quota, time, self.curve.cold())
    }

    /// The same warm-up from a rate that is `factor` times lower.
    ///
    /// # Panics
    ///
    /// Where [`try_cold`](Self::try_cold) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn cold(self, factor: u32) -> Self {
        self.try_cold(factor)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same warm-up from a rate that is `factor` times lower.
    ///
    /// Fractions of a factor are set by [`try_with`](Self::try_with) or text.
    ///
    /// # Errors
    ///
    /// When the factor is not above 1, above 1000, or above the rate per second; or too high for the time, see
    /// [`try_over`](Self::try_over).
    pub fn try_cold(self, factor: u32) -> Result<Self, Error> {
        let over = Duration::from_nanos(self.curve.over);
        Self::try_with(self.quota, over, 1000 * u64::from(factor))
    }

    /// The rate of a key that is warm.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The greatest cost that could ever pass: what passes in a second when it is warm.
    pub const fn capacity(&self) -> u64 {
        self.capacity.get()
    }

    /// The time from cold to warm under full load.
    pub const fn warms_over(&self) -> Duration {
        Duration::from_nanos(self.curve.over)
    }

    /// How many times slower a cold key goes, in thousandths.
    pub const fn cold_thousandths(&self) -> u64 {
        self.curve.cold()
    }
}

/// A quota that lets a call a second pass when it is cold, and at which every warmth can be stored.
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
    // A warmth is a whole number of parts of a nanosecond, of which it has as many as the reduced amount. A span of
    // 32 bits behind the nanosecond gives back every one of up to 2^32. Of more parts it gives back a greater number,
    // so that the next call in the same second would find more than the last one was told.
    let divisor = gcd(amount, period);
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

/// Up to so many units a nanosecond, a [`Span`] gives back every number of them.
const MOST_PARTS: u64 = 1 << Span::BITS;

const SECOND: u64 = 1_000_000_000;

impl TryFrom<Quota> for WarmUp {
    type Error = Error;

    fn try_from(quota: Quota) -> Result<Self, Error> {
        Self::try_new(quota)
    }
}
