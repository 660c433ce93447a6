//! An observer that logs.

use std::{fmt, sync::Arc};

use super::{Event, Observer, sampler::Sampler};
use crate::{
    decision::Verdict,
    key::Key,
    time::{Clock, SystemClock},
};

/// Logs a sample of the requests that limits refuse, or that a store could not decide, as `tracing` events.
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
/// At most [10 events per second](Self::per_second) of each level are logged, for all services of a layer together, so a flood of refusals hides no
/// failure. Why a store failed is logged by [`OnFailure`](crate::store::OnFailure#log).
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
/// A digest recognizes a key in the log, and is the same on every node. It does not hide one: the digests of all IPv4 addresses
/// can be computed in minutes.
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
    /// Sets the maximum number of events per second and level; 10 by default. 0 logs nothing. At most 16,777,215 count.
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

impl<C> fmt::Debug for RefusalLog<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusalLog")
            .field("per_second", &self.per_second)
            .finish_non_exhaustive()
    }
}
