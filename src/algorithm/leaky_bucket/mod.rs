//! A queue that calls leave at a constant rate.

mod codec;
mod meter;
mod script;
mod settle;
mod step;
mod text;

use std::{
    num::{NonZeroU64, NonZeroU128},
    time::Duration,
};

pub(super) use self::meter::QueueMeter;
use self::settle::Freed;
use super::{credit::Credit, of_quota::of_quota, rate::Rate};
use crate::{clock::Timestamp, error::Error, quota::Quota};

/// A leaky bucket as a queue: calls leave one after the other at the quota's rate, first in, first out, and
/// what finds the queue full is refused.
///
/// The answer to a call is how long it has to wait ([`Verdict::Delay`](crate::Verdict::Delay)). The first
/// of an idle queue leaves at once, every later one at least an interval (period / amount) after the one
/// before, also after any idle time: nothing is saved up, for smoothing is the point. A call of cost c
/// departs as one, and keeps the c − 1 intervals after its departure for itself. It is admitted if it fits
/// into the queue and one place more, that of who is just leaving; so the capacity is the queue + 1.
/// Behind a layer a request is held until its departure, without any capacity of the inner service. That takes
/// the feature `tokio`, which `axum` and `tonic` bring; without it only a `queue` of 0 can be limited by.
///
/// | setting | | default |
/// |---|---|---|
/// | [`queue`](Self::queue) | how many units may wait; with 0 nothing ever waits | the quota's amount |
/// | [`max_wait`](Self::max_wait) | who would wait longer is refused at once | none |
///
/// # What it guarantees
///
/// Departures lie at least an interval apart, to the nanosecond to which a delay is rounded up; the
/// roundings never add up. A delay is at most queue · interval. In any span Δt at most 1 + rate · Δt calls
/// depart, and in units at most rate · Δt and the last one's cost, whatever the arrivals were. Without a
/// maximum wait it admits, call for call, what a [`TokenBucket`](super::TokenBucket) with a burst of
/// queue + 1 admits: it is that bucket upside down.
///
/// All arithmetic is exact. Two kinds of rule are rounded, in favour of the limit: an amount that stays
/// above 2³² after reducing it by the period, by at most 3·10⁻⁷ of the rate; and a queue that takes more
/// than 146 years to drain at an interval that is no whole number of nanoseconds, by a nanosecond a call.
///
/// # What it does not guarantee
///
/// A call departs when its caller has waited, and a caller may oversleep. Tokio's timer wakes in whole
/// milliseconds: requests behind a layer may follow each other a millisecond closer than told, and
/// above 1000/s several leave at once. What is admitted together with other rules or limits waits for the
/// longest delay of all, and so may leave this queue late.
///
/// # Calls that are cancelled
///
/// A waiting call that is given back ([`settle`](super::Algorithm::settle) to 0, which is what a layer does
/// when the future of a response is dropped) leaves its place to those who are not told their delay yet:
///
/// - The last place of the queue is free at once, and with it all places right before it that were
///   given back earlier. A queue whose calls are all cancelled, in any order, is idle.
/// - A place in the middle is remembered until it is the last one, or has passed. Those who wait behind it
///   keep what they were told, and nobody who comes later leaves before them.
///
/// A call is recognised by its cost and its departure. So nothing is given back by a call that was admitted
/// while the clock had stepped back; and a call of a pair of rules or of `… & …`, or one at a rate
/// above 10⁹/s, gives its place back only if it is the only call at its instant and none has come since.
///
/// # What it costs
///
/// A [mark](super::Mark) of 8 bytes per key where the interval is a whole number of thirds of a nanosecond, one nanosecond at
/// least, and the queue drains within two years (`10/s`, `60/1m`, `3/s`, not `7/s`); 32 bytes otherwise. While
/// places in the middle are given back, 32 and 128 for up to four of them, then 24 to 48 for each one more.
///
/// # When the rule changes
///
/// The backlog carries over as time: who was told a delay keeps it, and the first call under the new rule
/// departs behind them. A backlog that is longer than the new queue is a full queue.
///
/// # When the clock steps back
///
/// Time stands still for a key at its last write, until the clock has caught up. Delays count from there, so
/// that no step makes one longer than queue · interval; all other waits are on the clock, and contain the
/// step.
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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    quota: Quota,
    /// The queue and one more.
    capacity: NonZeroU64,
    /// In nanoseconds.
    max_wait: Option<NonZeroU64>,
    rate: Rate,
    /// The same in words of 64 bits, where it can be counted in those.
    meter: Option<QueueMeter>,
}

/// What a [`LeakyBucket`] remembers of a key: when the next departure is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucketState {
    written_at: Timestamp,
    /// Places before the last one that were given back. Thin, for there are seldom any.
    freed: Option<Box<Freed>>,
    /// From the last write to the next free departure, never below zero.
    backlog: Credit,
    /// Whether the last write was the only call at its instant.
    sole: bool,
}

impl LeakyBucket {
    /// A queue that is left at `quota`'s rate, with room for the quota's amount.
    pub const fn new(quota: Quota) -> Self {
        let bucket = Self {
            quota,
            capacity: NonZeroU64::MIN.saturating_add(quota.amount()),
            max_wait: None,
            rate: Rate::of(quota),
            meter: None,
        };
        bucket.measured()
    }

    /// The same bucket with room for `units` units that wait.
    ///
    /// # Panics
    ///
    /// Where [`try_queue`](Self::try_queue) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn queue(self, units: u64) -> Self {
        self.try_queue(units)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same bucket with room for `units` units that wait.
    ///
    /// # Errors
    ///
    /// When `units` is above 2⁴⁰, or so many and one more take more than 2⁹⁵ ns to leave; or when it is 0 and
    /// a maximum wait is set.
    pub fn try_queue(self, units: u64) -> Result<Self, Error> {
        if units > Quota::MAX_AMOUNT {
            return Err(Error::new(format!(
                "a queue of {units}: expected at most 2^40 (1099511627776); count in larger units"
            )));
        }
        let capacity = NonZeroU64::MIN.saturating_add(units);
        let nanos = self.rate.price(capacity.get()) / i128::from(self.rate.per_nano);
        if nanos >= Credit::MAX_NANOS as i128 {
            return Err(Error::new(format!(
                "a queue of {units} at {} takes more than 10^12 years to drain: \
                 expected less; choose a smaller one or a faster rate",
                self.quota
            )));
        }
        Self { capacity, ..self }.checked()
    }

    /// The same bucket, refusing at once what would wait longer than `wait`.
    ///
    /// # Panics
    ///
    /// Where [`try_max_wait`](Self::try_max_wait) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn max_wait(self, wait: Duration) -> Self {
        self.try_max_wait(wait)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same bucket, refusing at once what would wait longer than `wait`.
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

    /// With its meter, if its settings go together.
    fn checked(self) -> Result<Self, Error> {
        if self.capacity == NonZeroU64::MIN && self.max_wait.is_some() {
            return Err(Error::new(
                "a queue of 0 together with a max-wait: expected one of them; nothing waits where the queue is 0, \
                 so leave the max-wait out, or choose a queue of at least 1",
            ));
        }
        Ok(self.measured())
    }

    /// With its meter, where it has one.
    const fn measured(mut self) -> Self {
        self.meter = QueueMeter::of(self.quota, self.capacity, self.max_wait, self.rate);
        self
    }

    /// The rate at which calls leave.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The greatest cost that could ever pass: the queue and one unit more.
    pub const fn capacity(&self) -> u64 {
        self.capacity.get()
    }

    /// The maximum wait that was set.
    pub const fn longest_wait(&self) -> Option<Duration> {
        match self.max_wait {
            Some(nanos) => Some(Duration::from_nanos(nanos.get())),
            None => None,
        }
    }
}

of_quota!(
    LeakyBucket,
    "A queue that `amount` calls leave within a second, with room for as many.",
    "A queue that `amount` calls leave within a minute, with room for as many.",
    "A queue that `amount` calls leave within an hour, with room for as many.",
    "A queue that `amount` calls leave within a day of 24 hours, with room for as many."
);
