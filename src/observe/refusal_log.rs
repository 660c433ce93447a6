//! An observer that logs a sample of refusals.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{Event, Observer};
use crate::{
    decision::Verdict,
    key::Key,
    time::{Clock, SystemClock, Timestamp},
};

/// Logs a sample of the requests that limits refuse, or that a store could not decide, as `tracing`
/// events.
///
/// | event | level | `verdict` |
/// |---|---|---|
/// | a limit refused a request | `INFO` | `refused` |
/// | a limit on a dry run would have refused a request | `INFO` | `dry_run_refused` |
/// | the store could not decide, and the request proceeds | `WARN` | `undecided_admitted` |
/// | the store could not decide, and the request is refused | `WARN` | `undecided_refused` |
///
/// | field | value |
/// |---|---|
/// | `policy` | the name of the limit |
/// | `verdict` | as above |
/// | `key` | the key's digest in hexadecimal digits, or as [`key`](Self::key) sets |
/// | `retry_after` | the client's wait in seconds, if it has an end |
/// | `remaining` | the units that are left, if the store knows |
/// | `skipped` | number of requests since the last such event that were not logged |
///
/// At most [10 events per second](Self::per_second) of each level are logged, for all services of a
/// layer together, so a flood of refusals hides no failure. Why a store failed is logged by
/// [`OnFailure`](crate::store::OnFailure#log).
///
/// ```
/// use tollgate::{RateLimitLayer, TokenBucket, key::PeerIp, observe::RefusalLog};
///
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10))
///     .key(PeerIp::new())
///     .observe(RefusalLog::new().per_second(5));
/// # let _ = layer;
/// ```
///
/// # Privacy
///
/// A digest recognizes a key in the log, and is the same on every node. It does not hide one: the
/// digests of all IPv4 addresses can be computed in minutes.
#[derive(Clone)]
#[doc(alias = "tracing")]
#[must_use = "a log is empty until a layer reports to it"]
pub struct RefusalLog<C = SystemClock> {
    per_second: u32,
    key: Arc<dyn Fn(&Key) -> String + Send + Sync>,
    clock: C,
    refused: Arc<Sampler>,
    undecided: Arc<Sampler>,
}

impl RefusalLog {
    /// Creates a log of 10 events per second that shows the digests of keys.
    pub fn new() -> Self {
        Self {
            per_second: 10,
            key: Arc::new(|key| format!("{:016x}", key.digest())),
            clock: SystemClock::default(),
            refused: Arc::default(),
            undecided: Arc::default(),
        }
    }
}

impl Default for RefusalLog {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> RefusalLog<C> {
    /// Sets the maximum number of events per second and level; 10 by default. 0 logs nothing. At
    /// most 16,777,215 count.
    pub fn per_second(self, events: u32) -> Self {
        Self {
            per_second: events,
            ..self
        }
    }

    /// Sets the text of the field `key`. It is called for events that are logged only.
    ///
    /// ```
    /// use tollgate::observe::RefusalLog;
    ///
    /// // The content of keys that their extractors label, and the kind of all others.
    /// let log = RefusalLog::new().key(|key| format!("{key:?}"));
    /// # let _ = log;
    /// ```
    pub fn key(self, text: impl Fn(&Key) -> String + Send + Sync + 'static) -> Self {
        Self {
            key: Arc::new(text),
            ..self
        }
    }

    /// Sets another clock than the system's.
    pub fn clock<D: Clock>(self, clock: D) -> RefusalLog<D> {
        RefusalLog {
            per_second: self.per_second,
            key: self.key,
            clock,
            refused: self.refused,
            undecided: self.undecided,
        }
    }
}

/// Logs one event if it is sampled. A macro, because the level of an event is a constant.
macro_rules! log {
    ($log:ident, $sampler:ident, $level:expr, $event:ident, $verdict:expr, $message:literal) => {
        // An event that nobody reads takes no sample.
        if tracing::enabled!($level)
            && let Some(skipped) = $log.$sampler.take($log.clock.now(), $log.per_second)
        {
            let decision = $event.decision();
            tracing::event!(
                $level,
                policy = $event.policy().name(),
                verdict = $verdict,
                key = ($log.key)($event.key()),
                retry_after = decision.retry_after().map(|wait| wait.as_secs_f64()),
                remaining = decision.remaining(),
                skipped,
                $message
            );
        }
    };
}

impl<C: Clock> Observer for RefusalLog<C> {
    fn refused(&self, event: &Event<'_>) {
        log!(
            self,
            refused,
            tracing::Level::INFO,
            event,
            "refused",
            "a rate limit refused a request"
        );
    }

    fn undecided(&self, event: &Event<'_>) {
        let verdict = if event.decision().is_admitted() {
            "undecided_admitted"
        } else {
            "undecided_refused"
        };
        log!(
            self,
            undecided,
            tracing::Level::WARN,
            event,
            verdict,
            "the rate limit store could not decide about a request"
        );
    }

    fn dry_run(&self, event: &Event<'_>) {
        if event.decision().verdict() == Verdict::Refuse {
            log!(
                self,
                refused,
                tracing::Level::INFO,
                event,
                "dry_run_refused",
                "a rate limit on a dry run would have refused a request"
            );
        }
    }
}

impl_debug!(RefusalLog<C>, |it| per_second = it.per_second);

/// The bits of [`Sampler::current`] that count samples. Seconds need 35 of the others.
const COUNT_BITS: u32 = 24;

/// Takes a number of samples in each second of a clock, and counts the events that it skips.
#[derive(Debug, Default)]
struct Sampler {
    /// The latest second in the high bits, and the number of samples taken in it in the low ones.
    current: AtomicU64,
    skipped: AtomicU64,
}

impl Sampler {
    /// Takes a sample, unless `most` were taken in this second; returns the number of those that
    /// were skipped before it.
    // Relaxed throughout: one word decides, and the count is for a report.
    fn take(&self, now: Timestamp, most: u32) -> Option<u64> {
        let second = now.as_nanos() / 1_000_000_000;
        let most = u64::from(most).min((1 << COUNT_BITS) - 1);
        let take = |current: u64| {
            // A clock that steps back stands still.
            let begun = second > current >> COUNT_BITS;
            let current = if begun { second << COUNT_BITS } else { current };
            let taken = current & ((1 << COUNT_BITS) - 1);
            (taken < most).then_some(current + 1)
        };
        let taken = self
            .current
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.skipped.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(1_800_000_000_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn a_second_has_a_number_of_samples_and_the_next_one_counts_the_others() {
        for most in [1, 3, 100] {
            let sampler = Sampler::default();
            let mut skipped = 0;
            // 200 events in each of five seconds.
            for event in 0..1000 {
                let in_second = event % 200;
                let expected = (in_second < most).then_some(skipped);
                assert_eq!(sampler.take(at(5 * event), most as u32), expected);
                skipped = if expected.is_some() { 0 } else { skipped + 1 };
            }
        }
    }

    #[test]
    fn none_and_all_can_be_taken() {
        let sampler = Sampler::default();
        assert!((0..10).all(|_| sampler.take(at(0), 0).is_none()));
        assert_eq!(sampler.take(at(0), u32::MAX), Some(10));
        assert!((0..10).all(|_| sampler.take(at(0), u32::MAX) == Some(0)));
    }

    #[test]
    fn a_clock_that_steps_back_brings_no_more_samples() {
        let sampler = Sampler::default();
        assert!(sampler.take(at(5000), 1).is_some());
        assert!((0..5).all(|second| sampler.take(at(1000 * second), 1).is_none()));
        assert_eq!(sampler.take(at(6000), 1), Some(5));
        assert!(sampler.take(Timestamp::MAX, 1).is_some());
        assert!(sampler.take(Timestamp::MAX, 1).is_none());
    }
}
