//! A distance between calls that shrinks with use.

mod step;
mod wire;

use std::{fmt, num::NonZeroU64, time::Duration};

use self::step::Resolution;
pub(super) use self::step::WarmUpSpacedState;
use super::{
    rule::{RuleWords, Setting, fmt_time, of_quota, set, text},
    warmth::{COLD, LONGEST, OVER, WarmthCurve, built_over, cold_of},
};
use crate::{
    error::{Error, panicking},
    quota::{Quota, Written},
};

/// A warm-up that spaces calls: the first calls of an idle key lie further apart than later ones.
///
/// For services that are slow after a pause and must not get bursts. This is the form of Guava's
/// `RateLimiter` with a warm-up (`SmoothWarmingUp`). A decision contains how long the call has to
/// wait ([`Verdict::Delay`](crate::Verdict::Delay)), which is until the calls before it are paid
/// for. A call's cost delays later calls, not itself, so the first call of an idle key departs at
/// once, whatever its cost. A layer holds the request until its departure, which takes the feature
/// `tokio` (`axum` and `tonic` enable it).
///
/// | setting | | default |
/// |---|---|---|
/// | [`over`](Self::over) | the time from cold to warm under full load | 10 s |
/// | [`cold`](Self::cold) | how many times longer the distance is for a cold key | 3 |
/// | [`max_wait`](Self::max_wait) | the longest wait; calls that would wait longer are refused at once | the same as `over` |
///
/// An idle key stores permits, up to a maximum at which it is cold. A new key is cold, and so is a
/// key that has been idle for the time `over`. `2/s over=4s` stores up to 8 permits. A permit costs
/// 1.5 s with 8 permits stored, and 0.5 s with 4, the threshold, or fewer; in between, the area
/// under the straight line. A permit that is not stored costs 0.5 s.
///
/// # Guarantee
///
/// The distance between the departures of two calls is at least the cost of the first one, in
/// permits, divided by the rate. So in any span Δt at most the cost of one call + rate · Δt units
/// depart. A cold key admits less: in its first `over`, the permits that it stores above the
/// threshold, which are 2 / (cold + 1) of the full rate's, plus the cost of one call. The greatest
/// cost is the number of permits that a key can store, at least 1 and at most 2⁴⁰.
///
/// Delays are rounded up to the nanosecond. Internally, time is counted in ticks of 2⁻³² ns. The
/// cost of a call and the cooling of a pause are rounded to ticks in favour of the limit. So while
/// calls wait, a delay is too long by less than 2 · cold ticks for each call before it: six ticks
/// by default, or one nanosecond for 700 million calls. After a pause, a key that was one tick
/// later is warmer by one tick, and a pause can turn that into three ticks until the key is cold
/// again. Threshold and maximum are rounded by less than a nanosecond, towards the cold.
///
/// A store that runs a script beside its data counts in coarser ticks, as fine as the numbers of
/// the script allow: 2⁻¹⁵ ns for the default settings, with which a delay is one nanosecond too
/// long for each 5,000 calls before it.
///
/// # Limits of the guarantee
///
/// A call departs when its caller has waited, and a caller may oversleep: tokio's timer wakes in
/// whole milliseconds. A call that was admitted together with other rules (a pair, `… & …`) waits
/// for the longest of their delays.
///
/// # Calls that are cancelled or corrected
///
/// The call that was delayed last gives its place back if it has not departed
/// ([`settle`](crate::algorithm::Algorithm::settle) to 0, as a layer does when its future is
/// dropped): the next call gets its departure, and the key is as cold as before, or colder. If the
/// call cost less than it was charged, the key is left as if it had cost that from the beginning; a
/// call that has departed keeps the distance of one unit behind it. Then the call before it is the
/// last one.
///
/// Nothing is refunded for calls in the middle, for calls that were charged together with other
/// rules or while the clock had stepped back, and for rates above 10⁹/s. Nor is anything refunded
/// if the state no longer contains the warmth before the call: for a call that began above the
/// threshold and spent more than was stored, and for calls before such a call. If something was
/// refunded behind a call, it is the last one only if all of it was.
///
/// If a call cost more than it was charged, later calls wait for the difference at the full rate.
/// It warms nothing.
///
/// # Cost
///
/// 32 bytes per key.
///
/// # When the rule changes
///
/// Earlier delays stay, and the first call under the new rule departs behind them. The warmth of a
/// key behind them carries over as time: the distance to the maximum at the full rate. The new rule
/// determines how fast it cools. So a new rate finds a key as warm as it was, and under a longer
/// warm-up the key is colder.
///
/// # When the clock steps back
///
/// Time stands still for a key at its last write until the clock has caught up. Delays count from
/// there, so no step makes a delay longer than the maximum. All other waits are by the clock and
/// contain the step.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, Timestamp};
/// use tollgate::algorithm::{Algorithm, WarmUpSpaced};
///
/// let rule = WarmUpSpaced::per_second(2).over(Duration::from_secs(4));
/// let (mut state, mut now) = (None, Timestamp::from_nanos(43_200_000_000_000));
/// let mut waits = [0; 7];
/// for wait in &mut waits {
///     let mut decision = rule.step(&mut state, now, Cost::ONE).decision();
///     let delay = decision.take_charge().unwrap().delay.unwrap();
///     *wait = delay.as_millis();
///     now = now.saturating_add(delay);
/// }
/// assert_eq!(waits, [0, 1375, 1125, 875, 625, 500, 500]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WarmUpSpaced {
    quota: Quota,
    curve: WarmthCurve,
    /// The permits that a key can store, at least 1.
    capacity: NonZeroU64,
    /// In nanoseconds; `None` for the time from cold to warm.
    max_wait: Option<NonZeroU64>,
    resolution: Resolution,
}

impl WarmUpSpaced {
    /// Returns a warm-up to `quota` over 10 s, beginning at a third of it, in which calls wait for
    /// up to 10 s.
    pub const fn new(quota: Quota) -> Self {
        let Some(curve) = WarmthCurve::of(quota, OVER, COLD) else {
            unreachable!()
        };
        Self::on(quota, curve, None)
    }

    const fn on(quota: Quota, curve: WarmthCurve, max_wait: Option<NonZeroU64>) -> Self {
        // At most 2^101.
        let permits = curve.most as u128 * curve.per_nano as u128 / curve.per_permit as u128;
        let permits = if permits < Quota::MAX_AMOUNT as u128 {
            permits as u64
        } else {
            Quota::MAX_AMOUNT
        };
        Self {
            quota,
            curve,
            capacity: match NonZeroU64::new(permits) {
                Some(permits) => permits,
                None => NonZeroU64::MIN,
            },
            max_wait,
            resolution: Resolution::FINEST,
        }
    }

    panicking! {
        /// Sets the time from cold to warm, and the maximum wait unless that is set.
        pub fn over(self, time: Duration) = try_over;
    }

    /// Sets the time from cold to warm, and the maximum wait unless that is set.
    ///
    /// # Errors
    ///
    /// When the time is zero, or when it or the time to store the maximum is above 73 years (2⁶¹
    /// ns).
    pub fn try_over(self, time: Duration) -> Result<Self, Error> {
        let curve = WarmthCurve::try_new(self.quota, time, self.curve.cold())?;
        Ok(Self::on(self.quota, curve, self.max_wait))
    }

    panicking! {
        /// Sets how many times longer the distance is for a cold key.
        pub fn cold(self, factor: u32) = try_cold;
    }

    /// Sets how many times longer the distance is for a cold key.
    ///
    /// # Errors
    ///
    /// When the factor is not above 1, or above 1000.
    pub fn try_cold(self, factor: u32) -> Result<Self, Error> {
        self.try_cold_thousandths(1000 * u64::from(factor))
    }

    /// Sets how many times longer the distance is for a cold key, in thousandths.
    ///
    /// # Errors
    ///
    /// When the factor is not above 1, above 1000, or so close to 1 that the time to store the
    /// maximum is above 73 years (2⁶¹ ns).
    pub fn try_cold_thousandths(self, thousandths: u64) -> Result<Self, Error> {
        let over = Duration::from_nanos(self.curve.over);
        let curve = WarmthCurve::try_new(self.quota, over, thousandths)?;
        Ok(Self::on(self.quota, curve, self.max_wait))
    }

    panicking! {
        /// Sets the maximum wait: a call that would wait longer is refused at once.
        pub fn max_wait(self, wait: Duration) = try_max_wait;
    }

    /// Sets the maximum wait: a call that would wait longer is refused at once.
    ///
    /// # Errors
    ///
    /// When `wait` is zero, or above 73 years (2⁶¹ ns).
    pub fn try_max_wait(self, wait: Duration) -> Result<Self, Error> {
        let nanos = u64::try_from(wait.as_nanos());
        match nanos.map(NonZeroU64::new) {
            Ok(None) => Err(Error::new(
                "a max-wait of 0: expected a positive wait, as in `max-wait=5s`; \
                 where nothing may wait, use `warm-up` instead",
            )),
            Ok(max_wait) if max_wait.is_some_and(|wait| wait.get() <= LONGEST) => {
                Ok(Self { max_wait, ..self })
            }
            _ => Err(Error::new(format!(
                "a max-wait of {}: expected at most 73 years (2^61 ns); choose a shorter one",
                Written(wait)
            ))),
        }
    }

    /// Returns the rate of a warm key.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the greatest cost that can ever pass: the permits that a key can store, at least 1.
    pub const fn capacity(&self) -> u64 {
        self.capacity.get()
    }

    /// Returns the time from cold to warm under full load.
    pub const fn warms_over(&self) -> Duration {
        Duration::from_nanos(self.curve.over)
    }

    /// Returns how many times longer the distance is for a cold key, in thousandths.
    pub const fn cold_thousandths(&self) -> u64 {
        self.curve.cold()
    }

    /// Returns the maximum wait.
    pub const fn longest_wait(&self) -> Duration {
        Duration::from_nanos(self.longest_wait_nanos())
    }

    #[inline]
    const fn longest_wait_nanos(&self) -> u64 {
        match self.max_wait {
            Some(wait) => wait.get(),
            None => self.curve.over,
        }
    }
}

of_quota!(
    WarmUpSpaced,
    "Returns a warm-up to `amount` calls a second over 10 s, beginning at a third of it.",
    "Returns a warm-up to `amount` calls a minute over 10 s, beginning at a third of it.",
    "Returns a warm-up to `amount` calls an hour over 10 s, beginning at a third of it.",
    "Returns a warm-up to `amount` calls in 24 hours over 10 s, beginning at a third of it."
);

impl WarmUpSpaced {
    fn of_words(words: &mut RuleWords<'_>) -> Result<Self, Error> {
        let quota = words.quota()?;
        let [over, cold, max_wait] = words.settings(&["over", "cold", "max-wait"])?;
        let cold = cold_of(cold)?;
        let curve = built_over(over, |over| WarmthCurve::try_new(quota, over, cold))?;
        let rule = Self::on(quota, curve, None);
        set(rule, max_wait, Setting::duration, Self::try_max_wait)
    }

    fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.quota)?;
        self.curve.fmt_settings(f)?;
        fmt_time(f, "max-wait", self.max_wait)
    }
}

text! {
    /// Parses `warm-up-spaced 2/s over=4s cold=2.5 max-wait=5s`; all but the quota may be left out.
    WarmUpSpaced
}
