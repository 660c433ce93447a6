//! A queue that calls leave at a constant rate.

mod step;
mod wire;

use std::{
    fmt,
    num::{NonZeroU64, NonZeroU128},
    time::Duration,
};

pub(super) use self::step::LeakyBucketState;
use super::{
    rate::{Misfit, Rate},
    rule::{RuleWords, Setting, fmt_time, of_quota, set, text},
};
use crate::{
    error::{Error, panicking},
    quota::Quota,
};

/// A leaky bucket as a queue: calls leave one after the other at the quota's rate, first in, first
/// out. Calls that find the queue full are refused.
///
/// The answer to a call is how long it has to wait ([`Verdict::Delay`](crate::Verdict::Delay)). The
/// first call of an idle queue leaves at once. Every later one leaves at least an interval (period
/// / amount) after the one before. Nothing is saved up while the queue is idle, because smoothing
/// is the point. A call of cost c departs as one, and occupies the c − 1 intervals after its
/// departure. It is admitted if it fits into the queue and the one slot of the call that is just
/// leaving, so the capacity is the queue + 1. Behind a layer a request is held until its departure,
/// without any capacity of the inner service. That requires the feature `tokio`, which `axum` and
/// `tonic` enable; without it only a `queue` of 0 works.
///
/// | setting | | default |
/// |---|---|---|
/// | [`queue`](Self::queue) | how many units may wait; with 0 nothing ever waits | the quota's amount |
/// | [`max_wait`](Self::max_wait) | calls that would wait longer are refused at once | none |
///
/// # Guarantees
///
/// Departures lie at least an interval apart, to the nanosecond to which a delay is rounded up; the
/// roundings never add up. A delay is at most queue · interval. In any span Δt at most 1 + rate ·
/// Δt calls depart, and in units at most rate · Δt and the last one's cost, whatever the arrivals
/// were. Without a maximum wait it admits, call for call, what a
/// [`TokenBucket`](crate::algorithm::TokenBucket) with a burst of queue + 1 admits: it is that
/// bucket upside down.
///
/// The interval is rounded down to ticks of a third of a nanosecond, as that of a [token
/// bucket](crate::algorithm::TokenBucket#rounding) is.
///
/// # Limitations
///
/// A call departs when its caller has waited, and a caller may oversleep. Tokio's timer wakes in
/// whole milliseconds: requests behind a layer may follow each other by a millisecond less than
/// their delays, and above 1000/s several leave at once. A call that was admitted together with
/// other rules or limits waits for the longest of their delays, and so may leave this queue late.
///
/// # Calls that are cancelled
///
/// A waiting call that is refunded ([`settle`](crate::algorithm::Algorithm::settle) to 0, which is
/// what a layer does when the future of a response is dropped) leaves its slot to calls that have
/// no delay yet:
///
/// - The last slot of the queue is free at once, and with it all slots right before it that were
///   refunded earlier. A queue whose calls are all cancelled is idle, if these slots were
///   remembered: always, if no more than 32 calls wait.
/// - A slot in the middle is remembered until it is the last one, or has passed. The calls behind
///   it keep their delays, and no later call leaves before them.
/// - Slots that touch are remembered as one, and 16 that do not touch. Otherwise a client could
///   make each settlement slower than the one before, by opening and closing thousands of requests.
///   A further slot stays taken until its time has passed, and is counted where a store counts
///   [settlements that failed](crate::store::Backend::unsettled).
///
/// A call is recognised by its cost and its departure. So nothing is refunded by a call that was
/// admitted while the clock had stepped back; and a call of a pair of rules or of `… & …` gives its
/// slot back only if it is the only call at its instant and none has come since.
///
/// # Memory
///
/// A packed state of 8 bytes per key if the queue drains within two years; 32 bytes otherwise.
/// While slots in the middle are refunded, 32 and 128 for up to four of them, then 24 to 48 for
/// each one more, of at most 16.
///
/// # When the rule changes
///
/// The backlog carries over as time: delayed calls keep their delays, and the first call under the
/// new rule departs behind them. A backlog that is longer than the new queue is a full queue. It
/// carries over up to 48 years.
///
/// # When the clock steps back
///
/// Time stands still for a key at its last write, until the clock has caught up. Delays count from
/// there, so no step makes a delay longer than queue · interval. All other waits are by the clock
/// and contain the step.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, LeakyBucket, Timestamp, Verdict};
/// use tollgate::algorithm::Algorithm;
///
/// let rule = LeakyBucket::per_second(10).queue(2);
/// let (mut state, noon) = (None, Timestamp::from_nanos(43_200_000_000_000));
/// let mut call = || rule.step(&mut state, noon, Cost::ONE).decision();
/// assert_eq!(call().verdict(), Verdict::Allow);
/// assert_eq!(call().verdict(), Verdict::Delay(Duration::from_millis(100)));
/// assert_eq!(call().verdict(), Verdict::Delay(Duration::from_millis(200)));
/// let refused = call();
/// assert_eq!(refused.verdict(), Verdict::Refuse);
/// assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
/// ```
#[doc(alias("throttle", "queue", "traffic shaping", "cooldown"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    quota: Quota,
    /// The queue and one more.
    capacity: NonZeroU64,
    /// In nanoseconds.
    max_wait: Option<NonZeroU64>,
    rate: Rate,
}

impl LeakyBucket {
    /// Creates a queue that calls leave at `quota`'s rate, with room for the quota's amount.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) fails; meant for literals.
    #[track_caller]
    pub const fn new(quota: Quota) -> Self {
        match Self::of_amount(quota) {
            Ok(bucket) => bucket,
            Err(misfit) => panic!("{}", misfit.message()),
        }
    }

    /// Creates a queue that calls leave at `quota`'s rate, with room for the quota's amount.
    ///
    /// # Errors
    ///
    /// When the quota is above 3·10⁷ units a second, or such a queue takes more than 24 years to
    /// drain.
    pub fn try_new(quota: Quota) -> Result<Self, Error> {
        Self::of_amount(quota).map_err(|misfit| Error::new(misfit.message()))
    }

    const fn of_amount(quota: Quota) -> Result<Self, Misfit> {
        let capacity = NonZeroU64::MIN.saturating_add(quota.amount());
        match Rate::of(quota, capacity.get(), capacity.get()) {
            Ok(rate) => Ok(Self {
                quota,
                capacity,
                max_wait: None,
                rate,
            }),
            Err(misfit) => Err(misfit),
        }
    }

    panicking! {
        /// Sets how many units may wait.
        pub fn queue(self, units: u64) = try_queue;
    }

    /// Sets how many units may wait.
    ///
    /// # Errors
    ///
    /// When `units` is above 2⁴⁰, or such a queue takes more than 24 years to drain; or when it is
    /// 0 and a maximum wait is set.
    pub fn try_queue(self, units: u64) -> Result<Self, Error> {
        if units > Quota::MAX_AMOUNT {
            return Err(Error::new(format!(
                "a queue of {units}: expected at most 2^40 (1099511627776); count in larger units"
            )));
        }
        let capacity = NonZeroU64::MIN.saturating_add(units);
        let rate = Rate::of(self.quota, capacity.get(), capacity.get())
            .map_err(|misfit| misfit.of(self.quota, "queue", units))?;
        Self {
            capacity,
            rate,
            ..self
        }
        .checked()
    }

    panicking! {
        /// Refuses calls at once that would wait longer than `wait`.
        pub fn max_wait(self, wait: Duration) = try_max_wait;
    }

    /// Refuses calls at once that would wait longer than `wait`.
    ///
    /// Cut to 2⁶⁴ − 1 ns.
    ///
    /// # Errors
    ///
    /// When `wait` is zero, or the queue is 0, in which nothing waits.
    pub fn try_max_wait(self, wait: Duration) -> Result<Self, Error> {
        let wait = NonZeroU128::new(wait.as_nanos()).ok_or_else(|| {
            Error::new(
                "a max-wait of 0: expected a positive wait; to let nothing wait, set `queue=0` instead",
            )
        })?;
        let max_wait = Some(NonZeroU64::try_from(wait).unwrap_or(NonZeroU64::MAX));
        Self { max_wait, ..self }.checked()
    }

    /// Checks that its settings go together.
    fn checked(self) -> Result<Self, Error> {
        if self.capacity == NonZeroU64::MIN && self.max_wait.is_some() {
            return Err(Error::new(
                "a queue of 0 together with a max-wait: expected one of them; nothing waits where the queue is 0, \
                 so leave the max-wait out, or choose a queue of at least 1",
            ));
        }
        Ok(self)
    }

    /// Returns `true` if a [`PackedState`](crate::algorithm::PackedState) holds its states.
    #[inline]
    pub(super) const fn is_packed(&self) -> bool {
        self.rate.fits_packed_state()
    }

    /// Returns the rate at which calls leave, as written.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the greatest cost that can ever pass: the queue and one unit more.
    pub const fn capacity(&self) -> u64 {
        self.capacity.get()
    }

    /// Returns the maximum wait that was set.
    pub const fn longest_wait(&self) -> Option<Duration> {
        match self.max_wait {
            Some(nanos) => Some(Duration::from_nanos(nanos.get())),
            None => None,
        }
    }
}

of_quota!(
    bucket LeakyBucket,
    "A queue that `amount` calls leave within a second, with room for as many.",
    "A queue that `amount` calls leave within a minute, with room for as many.",
    "A queue that `amount` calls leave within an hour, with room for as many.",
    "A queue that `amount` calls leave within a day of 24 hours, with room for as many."
);

impl LeakyBucket {
    /// Parses a quota and settings, without the name before them.
    fn of_words(words: &mut RuleWords<'_>) -> Result<Self, Error> {
        let bucket = words.bucket(Self::try_new)?;
        let [queue, max_wait] = words.settings(&["queue", "max-wait"])?;
        let bucket = set(bucket, queue, Setting::number, Self::try_queue)?;
        set(bucket, max_wait, Setting::duration, Self::try_max_wait)
    }

    /// Writes the quota, and the settings that differ from the defaults.
    fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.quota)?;
        let queue = self.capacity.get() - 1;
        if queue != self.quota.amount() {
            write!(f, " queue={queue}")?;
        }
        fmt_time(f, "max-wait", self.max_wait)
    }
}

text! {
    /// Parses `leaky-bucket 10/s queue=50 max-wait=2s`; all but the quota may be left out.
    LeakyBucket
}
