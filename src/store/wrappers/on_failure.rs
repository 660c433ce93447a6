//! Answers the calls that fail: `fail_open` and `fail_closed`.

#[cfg(feature = "tracing")]
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use smallvec::SmallVec;

use crate::{
    decision::Decision,
    key::Key,
    policy::Policy,
    stats::Counter,
    store::{
        Ask, Backend, Check, Decisions, Settlement, Store, StoreError, delegate,
        engine::{SettlementGuard, Unsettled},
    },
    time::{Clock, SystemClock},
};
#[cfg(feature = "tracing")]
use crate::{log::OnceAMinute, time::Timestamp};

/// A store whose errors are replaced by answers: the request is admitted or refused.
///
/// The decision is [undecided](crate::Verdict::Undecided).
///
/// Created by [`fail_open`](crate::store::StoreExt::fail_open) and
/// [`fail_closed`](crate::store::StoreExt::fail_closed). Clones share their counters.
///
/// | the store | the request | counter |
/// |---|---|---|
/// | failed | is admitted (`fail_open`), or is refused with 503 (`fail_closed`) | [`failures`](Self::failures) |
/// | [took no write](StoreError::is_unwritten) | the same | `failures`, and [`unwritten`](Self::unwritten) |
/// | [lost every race](StoreError::is_contended) for a key | the same, or as set by [`when_contended`](Self::when_contended) | [`contentions`](Self::contentions) |
/// | [does not support](StoreError::unsupported) the call | is refused with 500 (gRPC: `INTERNAL`), even by `fail_open` | [`unsupported`](Self::unsupported), and [`misconfigured`](crate::RateLimitLayer::misconfigured) of the layer |
///
/// The last answer cannot be changed: a client whose calls the store cannot decide would have no
/// limit.
///
/// A failed `settle` or `reset` is counted and not repeated. Failed settlements have a
/// [counter of their own](Backend::unsettled).
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Store, StoreError, StoreExt, driver::{Ask, Check}};
/// # use tollgate::{key::Key, store::{Backend, driver::{Decisions, Never, Settlement}}};
/// # fn down<T>() -> Check<Never<Result<T, StoreError>>> { Check::Ready(Err(StoreError::unavailable("connection refused"))) }
/// # struct Down;
/// # impl Backend for Down { type Error = StoreError; }
/// # impl Store<TokenBucket> for Down {
/// #     type Answer = Never<Result<Decisions, StoreError>>;
/// #     type Done = Never<Result<(), StoreError>>;
/// #     fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> { down() }
/// #     fn look(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> { down() }
/// #     fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> { down() }
/// #     fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> { down() }
/// # }
///
/// // `Down` cannot be reached.
/// let store = Down.fail_open();
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(10));
/// let Check::Ready(Ok(decisions)) =
///     store.acquire(&[Ask::new(&policy, &rule, "alice".into(), Cost::ONE)])
/// else {
///     unreachable!();
/// };
/// assert!(decisions.is_admitted());
/// assert_eq!(store.failures(), 1);
/// ```
///
/// # Contention
///
/// A store that [lost every race](StoreError::is_contended) for a key works, and the client may be
/// within its quota. So contention is neither a failure nor a refusal. It has its own counter, and
/// is answered as a failure unless [`when_contended`](Self::when_contended) sets another answer.
///
/// # Log
///
/// With the feature `tracing`, a failure is an event of level `ERROR` with these fields:
///
/// | field | value |
/// |---|---|
/// | `policy` | the policies of the call |
/// | `cause` | the error |
/// | `address` | the address of the server, if the [store has one](Backend::address) |
/// | `failures` | number of failures so far |
/// | `unlogged` | number of failures of that policy and cause that were not logged since the last such event |
///
/// The first failure of each policy and cause is logged at once, and later ones at most once a
/// minute; at most 32 events a minute are logged for each store. After such an event, the first
/// answer that follows a minute without a failure is one of level `WARN`, with `address` and
/// `failures`. Contention is not logged. An unsupported call is logged once for each policy and
/// cause, with the fields `policy`, `cause` and `address`.
#[derive(Clone, Debug)]
#[doc(alias = "fail open")]
#[doc(alias = "fail closed")]
#[must_use]
pub struct OnFailure<S> {
    store: S,
    failed: FailureMode,
    contended: FailureMode,
    counters: Arc<FailureCounters>,
    unsettled: Unsettled,
}

impl<S> OnFailure<S> {
    /// Wraps a store. `consequence` is the part of the log line that describes what happens to
    /// requests.
    pub(in crate::store) fn new(store: S, failed: FailureMode, consequence: &'static str) -> Self
    where
        S: Backend,
    {
        let counters = Arc::new(FailureCounters::new(store.address(), consequence));
        Self {
            store,
            failed,
            contended: failed,
            counters,
            unsettled: Unsettled::default(),
        }
    }

    /// Sets the answer for calls that [lost every race](StoreError::is_contended) for a key; by
    /// default that of a failure.
    ///
    /// The documentation of [`FailureMode`] has an example.
    pub fn when_contended(self, contended: FailureMode) -> Self {
        Self { contended, ..self }
    }

    /// Returns the number of failures, without [contention](Self::contentions) and
    /// [unsupported](Self::unsupported) calls.
    pub fn failures(&self) -> u64 {
        self.counters.failures.get()
    }

    /// Returns the number of [failures](Self::failures) that were [writes that the server did not
    /// take](StoreError::is_unwritten).
    pub fn unwritten(&self) -> u64 {
        self.counters.unwritten.get()
    }

    /// Returns the number of calls that lost every race for a key.
    pub fn contentions(&self) -> u64 {
        self.counters.contentions.get()
    }

    /// Returns the number of calls that the store does not [support](StoreError::unsupported).
    ///
    /// Above 0, some requests have a limit that this store cannot keep, and are refused.
    pub fn unsupported(&self) -> u64 {
        self.counters.unsupported.get()
    }

    /// Returns the wrapped store, for example to read its counters.
    // Callers in this crate that call it `record` its errors.
    pub fn get_ref(&self) -> &S {
        &self.store
    }

    /// Logs that the store answers again, if the last event in the log is a failure and none
    /// followed for a minute.
    #[inline]
    pub(in crate::store) fn answered(&self) {
        self.counters.answered();
    }

    /// Counts and logs the error of a call with `count` asks; returns the answer, unless the store
    /// failed.
    pub(in crate::store) fn record<'a>(
        &self,
        error: impl Into<StoreError>,
        policies: impl IntoIterator<Item = &'a Policy>,
        count: usize,
    ) -> Option<Decisions> {
        match self.counters.record(&error.into(), policies) {
            FailureKind::Failed => None,
            FailureKind::Contended => Some(self.contended.decisions(count)),
            FailureKind::Unsupported => Some(unsupported(count)),
        }
    }

    /// Replaces an error of `check`, which has `asks` asks or `settlements` settlements.
    fn replace_error<F, V, E>(
        &self,
        check: Check<F>,
        asks: usize,
        settlements: usize,
        policies: impl FnOnce() -> CallPolicies,
    ) -> Check<OnFailureFuture<F>>
    where
        F: Future<Output = Result<V, E>>,
        V: Substitute,
        E: Into<StoreError>,
    {
        let handler = || ErrorHandler {
            counters: Arc::clone(&self.counters),
            policies: policies(),
            failed: self.failed,
            contended: self.contended,
            count: asks,
            settling: (settlements > 0).then(|| self.unsettled.settling(settlements)),
        };
        match check {
            Check::Ready(Ok(value)) => {
                self.answered();
                Check::Ready(Ok(value))
            }
            Check::Ready(Err(error)) => Check::Ready(Ok(handler().substitute(error))),
            Check::Pending(future) => Check::Pending(OnFailureFuture::new(future, handler())),
        }
    }
}

/// The answer to a request that a store could not decide.
///
/// [`fail_open`](crate::store::StoreExt::fail_open) and
/// [`fail_closed`](crate::store::StoreExt::fail_closed) choose it for failures,
/// [`when_contended`](crate::store::OnFailure::when_contended) for contention:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, prelude::*, store::{self, BoxStore, FailureMode}};
///
/// fn limited(remote: BoxStore<TokenBucket, store::StoreError>) {
///     // Open while the store fails; on contention, clients retry after two seconds.
///     let store = remote
///         .fail_open()
///         .when_contended(FailureMode::RetryAfter(Duration::from_secs(2)));
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(store);
/// #   let _ = layer;
/// }
/// # let _: fn(_) = limited;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureMode {
    /// The request is admitted.
    #[doc(alias = "fail open")]
    Open,
    /// The request is refused with 503 (gRPC: `UNAVAILABLE`).
    #[doc(alias = "fail closed")]
    Closed,
    /// The request is refused as by `Closed`, with a wait: in `Retry-After`, and over gRPC in
    /// `RetryInfo` and `grpc-retry-pushback-ms`.
    ///
    /// Clients that get the same wait retry at the same time, unless
    /// [`retry_jitter`](crate::respond::Http::retry_jitter) spreads them.
    RetryAfter(Duration),
}

impl FailureMode {
    /// Returns `count` undecided decisions.
    pub(in crate::store) fn decisions(self, count: usize) -> Decisions {
        let (admitted, retry_after) = match self {
            Self::Open => (true, None),
            Self::Closed => (false, None),
            Self::RetryAfter(wait) => (false, Some(wait)),
        };
        let now = SystemClock::default().now();
        Decisions::repeat(Decision::undecided(admitted, now, retry_after), count)
    }
}

impl<S: Backend> Backend for OnFailure<S> {
    type Error = Infallible;

    delegate!(Backend, self => self.store; identity, refusals);

    fn unsettled(&self) -> Option<u64> {
        let own = || self.unsettled.count();
        Some(self.store.unsettled().unwrap_or_else(own))
    }
}

impl<Rule, S: Store<Rule, Error: Into<StoreError>>> Store<Rule> for OnFailure<S> {
    type Answer = OnFailureFuture<S::Answer>;
    type Done = OnFailureFuture<S::Done>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let policies = || policies_of_asks(asks);
        self.replace_error(self.store.acquire(asks), asks.len(), 0, policies)
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let policies = || policies_of_asks(asks);
        self.replace_error(self.store.look(asks), asks.len(), 0, policies)
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let (count, policies) = (settlements.len(), policies_of_settlements(&settlements));
        self.replace_error(self.store.settle(settlements), 0, count, || policies)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let policies = || CallPolicies::from_elem(policy.clone(), 1);
        self.replace_error(self.store.reset(policy, key), 0, 0, policies)
    }

    delegate!(Store<Rule>, self => self.store; fits);
}

/// Returns `count` decisions for a call that the store does not support.
fn unsupported(count: usize) -> Decisions {
    let now = SystemClock::default().now();
    Decisions::repeat(Decision::unsupported(now), count)
}

/// An output that can replace an error.
pub trait Substitute: Sized {
    #[doc(hidden)]
    fn substitute(mode: Option<FailureMode>, count: usize) -> Self;
}

impl Substitute for Decisions {
    fn substitute(mode: Option<FailureMode>, count: usize) -> Self {
        mode.map_or_else(|| unsupported(count), |mode| mode.decisions(count))
    }
}

impl Substitute for () {
    fn substitute(_: Option<FailureMode>, _: usize) -> Self {}
}

/// Counts and logs the error of one call, and returns the answer instead.
struct ErrorHandler {
    counters: Arc<FailureCounters>,
    policies: CallPolicies,
    failed: FailureMode,
    contended: FailureMode,
    /// Number of asks.
    count: usize,
    /// The settlements of a `settle`, which are counted unless it succeeds.
    settling: Option<SettlementGuard>,
}

impl ErrorHandler {
    fn substitute<V: Substitute>(&self, error: impl Into<StoreError>) -> V {
        let mode = match self.counters.record(&error.into(), &self.policies) {
            FailureKind::Failed => Some(self.failed),
            FailureKind::Contended => Some(self.contended),
            FailureKind::Unsupported => None,
        };
        V::substitute(mode, self.count)
    }
}

pin_project! {
    /// The future of an [`OnFailure`] store.
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct OnFailureFuture<F> {
        #[pin]
        future: F,
        handler: ErrorHandler,
    }
}

impl<F> OnFailureFuture<F> {
    fn new(future: F, handler: ErrorHandler) -> Self {
        Self { future, handler }
    }
}

impl<F> fmt::Debug for OnFailureFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnFailureFuture").finish_non_exhaustive()
    }
}

impl<F, V, E> Future for OnFailureFuture<F>
where
    F: Future<Output = Result<V, E>>,
    V: Substitute,
    E: Into<StoreError>,
{
    type Output = Result<V, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        let settling = this.handler.settling.take();
        if result.is_ok() {
            this.handler.counters.answered();
            settling.into_iter().for_each(SettlementGuard::all_made);
        }
        Poll::Ready(result.or_else(|error| Ok(this.handler.substitute(error))))
    }
}

/// The policies of one call, owned.
type CallPolicies = SmallVec<[Policy; 1]>;

fn policies_of_asks<Rule>(asks: &[Ask<'_, Rule>]) -> CallPolicies {
    asks.iter().map(|ask| ask.policy().clone()).collect()
}

fn policies_of_settlements<Rule>(settlements: &[Settlement<'_, Rule>]) -> CallPolicies {
    let policies = settlements.iter().map(|settlement| settlement.policy);
    policies.cloned().collect()
}

/// The kinds of errors that are answered differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    /// The store failed.
    Failed,
    /// The store works, but lost every race for a key.
    Contended,
    /// The store cannot decide this call, but may decide others.
    Unsupported,
}

/// Counters of one store's errors, and their log (feature `tracing`).
#[derive(Debug)]
struct FailureCounters {
    failures: Counter,
    unwritten: Counter,
    contentions: Counter,
    unsupported: Counter,
    #[cfg(feature = "tracing")]
    log: StoreFailureLog,
}

impl FailureCounters {
    /// Creates the counters of a store at `address`. `consequence` is the part of the log line that
    /// describes what happens to requests.
    fn new(address: Option<&str>, consequence: &'static str) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = (address, consequence);
        Self {
            failures: Counter::default(),
            unwritten: Counter::default(),
            contentions: Counter::default(),
            unsupported: Counter::default(),
            #[cfg(feature = "tracing")]
            log: StoreFailureLog::new(address, consequence),
        }
    }

    /// Logs that the store answers again, if the last event in the log is a failure and none
    /// followed for a minute.
    #[inline]
    fn answered(&self) {
        #[cfg(feature = "tracing")]
        self.log.log_answer(|| self.failures.get());
    }

    /// Counts and logs the error of a call.
    fn record<'a>(
        &self,
        error: &StoreError,
        policies: impl IntoIterator<Item = &'a Policy>,
    ) -> FailureKind {
        if error.is_contended() {
            self.contentions.add(1);
            return FailureKind::Contended;
        }
        if error.is_unsupported() {
            self.unsupported.add(1);
            #[cfg(feature = "tracing")]
            self.log.log_unsupported(error, policies);
            return FailureKind::Unsupported;
        }
        if error.is_unwritten() {
            self.unwritten.add(1);
        }
        let failures = self.failures.increment();
        #[cfg(feature = "tracing")]
        self.log.log_failure(error, policies, failures);
        #[cfg(not(feature = "tracing"))]
        let _ = (failures, policies);
        FailureKind::Failed
    }
}

/// Maximum number of lines that are remembered. Bounds the memory and, with [`OnceAMinute`], the
/// rate of the log.
#[cfg(feature = "tracing")]
const MAX_LINES: usize = 32;

#[cfg(feature = "tracing")]
#[derive(Debug)]
struct StoreFailureLog {
    address: Option<Box<str>>,
    consequence: &'static str,
    lines: Mutex<FailureLines>,
    /// `true` if the last event in the log is a failure. Written under the lock.
    is_failing: AtomicBool,
}

#[cfg(feature = "tracing")]
#[derive(Debug, Default)]
struct FailureLines {
    list: Vec<FailureLine>,
    /// The time of the last failure, logged or not.
    failed_at: Timestamp,
}

/// A line of the log: a cause, and the policies of the call.
#[cfg(feature = "tracing")]
#[derive(Debug)]
struct FailureLine {
    policies: String,
    cause: String,
    failures: OnceAMinute,
}

#[cfg(feature = "tracing")]
impl StoreFailureLog {
    fn new(address: Option<&str>, consequence: &'static str) -> Self {
        Self {
            address: address.map(Into::into),
            consequence,
            lines: Mutex::default(),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Logs that the store answers again, if the last event in the log is a failure and none
    /// followed for a minute.
    ///
    /// So there are at most as many answers as failures in the log, and a failure after an answer
    /// is logged at once.
    #[inline]
    fn log_answer(&self, failures: impl FnOnce() -> u64) {
        // Relaxed: the line may come a call late.
        if self.is_failing.load(Ordering::Relaxed) {
            self.log_return(failures());
        }
    }

    #[cold]
    fn log_return(&self, failures: u64) {
        if self.has_returned(SystemClock::default().now()) {
            tracing::warn!(
                address = self.address.as_deref(),
                failures,
                "the rate limit store answers again: no call has failed for a minute (`failures` counts all so far)"
            );
        }
    }

    /// Returns `true` once after a failure was logged: at the first answer that follows a minute
    /// without a failure.
    fn has_returned(&self, now: Timestamp) -> bool {
        // Whoever holds the lock logs; the next answer comes soon.
        let Ok(lines) = self.lines.try_lock() else {
            return false;
        };
        let is_calm = lines.failed_at.saturating_add(OnceAMinute::INTERVAL) <= now;
        is_calm && self.is_failing.swap(false, Ordering::Relaxed)
    }

    /// Logs a failure, unless a line of the same policies and cause was logged within the last
    /// minute.
    #[cold]
    fn log_failure<'a>(
        &self,
        error: &StoreError,
        policies: impl IntoIterator<Item = &'a Policy>,
        failures: u64,
    ) {
        let (policies, cause) = (names(policies), cause(error));
        let now = SystemClock::default().now();
        if let Some(unlogged) = self.due(&policies, &cause, now) {
            tracing::error!(
                policy = policies,
                cause,
                address = self.address.as_deref(),
                failures,
                unlogged,
                "the rate limit store failed; {} (logged once a minute for each policy and cause; `failures` counts all)",
                self.consequence
            );
        }
    }

    /// Logs an unsupported call, once for each policy and cause.
    #[cold]
    fn log_unsupported<'a>(
        &self,
        error: &StoreError,
        policies: impl IntoIterator<Item = &'a Policy>,
    ) {
        let address = self.address.as_deref();
        crate::log::unsupported(&names(policies), cause(error), address);
    }

    /// Returns the number of unlogged failures since the last line, if a line may be logged now;
    /// otherwise counts this failure as unlogged.
    fn due(&self, policies: &str, cause: &str, now: Timestamp) -> Option<u64> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let FailureLines { list, failed_at } = &mut *lines;
        *failed_at = now;
        let unlogged = Self::line(list, policies, cause, now)?
            .failures
            .record(now)?;
        self.is_failing.store(true, Ordering::Relaxed);
        Some(unlogged)
    }

    /// Returns the line of these policies and this cause; `None` if there is no room for it.
    fn line<'a>(
        lines: &'a mut Vec<FailureLine>,
        policies: &str,
        cause: &str,
        now: Timestamp,
    ) -> Option<&'a mut FailureLine> {
        let known = |line: &FailureLine| line.policies == policies && line.cause == cause;
        if let Some(at) = lines.iter().position(known) {
            return lines.get_mut(at);
        }
        let new = FailureLine {
            policies: policies.to_owned(),
            cause: cause.to_owned(),
            failures: OnceAMinute::default(),
        };
        if lines.len() < MAX_LINES {
            lines.push(new);
            return lines.last_mut();
        }
        // Replaces a line that is older than a minute.
        let line = lines.iter_mut().find(|line| line.failures.is_due(now))?;
        *line = new;
        Some(line)
    }
}

/// Joins the names of policies by commas.
#[cfg(feature = "tracing")]
fn names<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> String {
    let mut names: Vec<&str> = policies.into_iter().map(Policy::name).collect();
    names.dedup();
    names.join(", ")
}

/// Returns the text of an error, which contains those of its causes.
#[cfg(feature = "tracing")]
fn cause(error: &StoreError) -> String {
    /// Limit in characters: errors may quote replies of a server, of any length.
    const MAX_CAUSE: usize = 1024;
    let mut cause = error.to_string();
    if let Some((end, _)) = cause.char_indices().nth(MAX_CAUSE) {
        cause.truncate(end);
    }
    cause
}

#[cfg(all(test, feature = "tracing"))]
impl<S> OnFailure<S> {
    /// Makes the last failure older than a minute. Returns `true` if it is the last event in the
    /// log.
    pub(in crate::store) fn age_failure(&self) -> bool {
        let log = &self.counters.log;
        let mut lines = log.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.failed_at = Timestamp::default();
        log.is_failing.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos((100 + seconds) * 1_000_000_000)
    }

    #[test]
    fn a_line_comes_once_a_minute_for_each_policy_and_cause_and_counts_the_others() {
        let log = StoreFailureLog::new(None, "");
        for second in 0..180 {
            for policy in ["a", "b"] {
                for cause in ["refused", "silent"] {
                    // Each twice.
                    let due = [(); 2].map(|()| log.due(policy, cause, at(second)));
                    let expected = match second {
                        0 => Some(0),
                        60 | 120 => Some(119),
                        _ => None,
                    };
                    assert_eq!(due, [expected, None], "{second}");
                }
            }
        }
        // A clock that steps back brings no line sooner.
        assert_eq!(log.due("a", "refused", at(0)), None);
    }

    #[test]
    fn unlimited_causes_fill_neither_memory_nor_the_log() {
        let log = StoreFailureLog::new(None, "");
        let lines = |second| {
            let causes = (0..10_000).map(|number| format!("{second} {number}"));
            let due = causes.filter(|cause| log.due("a", cause, at(second)).is_some());
            due.count()
        };
        assert_eq!([0, 1, 59].map(lines), [MAX_LINES, 0, 0]);
        assert_eq!([60, 61].map(lines), [MAX_LINES, 0]);
        assert_eq!(log.lines.lock().unwrap().list.len(), MAX_LINES);
    }

    #[test]
    fn a_return_is_logged_after_a_minute_without_a_failure_and_once() {
        let log = StoreFailureLog::new(None, "");
        assert!(!log.has_returned(at(0)));
        // Every second call fails, for two minutes.
        for second in 0..=120 {
            log.due("a", "refused", at(second));
            assert!(!log.has_returned(at(second)), "{second}");
        }
        // The last failure counts, although it was not logged.
        log.due("a", "refused", at(130));
        assert!(!log.has_returned(at(189)));
        assert!(log.has_returned(at(190)));
        assert!(!log.has_returned(at(1_000)));
        // What fails after that is logged at once.
        assert_eq!(log.due("a", "refused", at(1_001)), Some(1));
        // A clock that steps back brings no return sooner.
        assert!(!log.has_returned(at(0)));
        assert!(log.has_returned(at(1_061)));
    }

    #[test]
    fn a_cause_repeats_nothing() {
        let cause = cause(&StoreError::unavailable("connection refused"));
        assert_eq!(cause.matches("connection refused").count(), 1, "{cause}");
    }
}
