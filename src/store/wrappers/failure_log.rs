//! The errors of a store, counted and logged: for the wrappers that answer in its place.

#[cfg(feature = "tracing")]
use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

#[cfg(feature = "tracing")]
use crate::{
    locks::lock,
    log::OnceAMinute,
    time::{Clock, SystemClock, Timestamp},
};
use crate::{policy::Policy, stats::Counter, store::StoreError};

/// The kinds of errors that are answered differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The store failed.
    Failed,
    /// The store works, but lost every race for a key.
    Contended,
    /// The store cannot decide this call, but may decide others.
    Unsupported,
}

/// Counters of one store's errors, and their log (feature `tracing`).
#[derive(Debug)]
pub(super) struct FailureCounters {
    pub(super) failures: Counter,
    pub(super) unwritten: Counter,
    pub(super) contentions: Counter,
    pub(super) unsupported: Counter,
    #[cfg(feature = "tracing")]
    log: StoreFailureLog,
}

impl FailureCounters {
    /// Creates the counters of a store at `address`. `consequence` is the part of the log line that
    /// describes what happens to requests.
    pub(super) fn new(address: Option<&str>, consequence: &'static str) -> Self {
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
    pub(super) fn answered(&self) {
        #[cfg(feature = "tracing")]
        self.log.log_answer(|| self.failures.get());
    }

    /// Counts and logs the error of a call.
    pub(super) fn record<'a>(
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

    /// Makes the last failure older than a minute. Returns `true` if it is the last event in the
    /// log.
    #[cfg(all(test, feature = "tracing"))]
    pub(super) fn age_failure(&self) -> bool {
        let mut lines = lock(&self.log.lines);
        lines.failed_at = Timestamp::default();
        self.log.is_failing.load(Ordering::Relaxed)
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
        let mut lines = lock(&self.lines);
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
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use super::*;
    use crate::{
        algorithm::TokenBucket,
        decision::Cost,
        key::Key,
        store::{
            Ask, Backend, BoxFuture, Check, Decisions, FailureMode, Fallback, FallbackBuilder,
            Local, NeverFails, OnFailure, Settlement, Store,
        },
    };

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

    /// A store that answers at once or later, and fails while it is down.
    struct Flaky {
        inner: Local<TokenBucket>,
        at_once: bool,
        is_down: Arc<AtomicBool>,
    }

    impl Flaky {
        fn answer<T: Send + 'static, F>(
            &self,
            answer: Check<F>,
        ) -> Check<BoxFuture<Result<T, StoreError>>>
        where
            F: Future<Output = Result<T, Infallible>>,
        {
            let answer = match answer {
                _ if self.is_down.load(Ordering::Relaxed) => {
                    Err(StoreError::unavailable("refused"))
                }
                Check::Ready(answer) => Ok(answer.unwrap_or_else(NeverFails::never)),
                Check::Pending(_) => unreachable!("`Local` answers at once"),
            };
            if self.at_once {
                Check::Ready(answer)
            } else {
                Check::Pending(Box::pin(async { answer }))
            }
        }
    }

    impl Backend for Flaky {
        type Error = StoreError;
    }

    impl Store<TokenBucket> for Flaky {
        type Answer = BoxFuture<Result<Decisions, StoreError>>;
        type Done = BoxFuture<Result<(), StoreError>>;

        fn acquire(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
            self.answer(self.inner.acquire(asks))
        }

        fn look(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
            self.answer(Store::look(&self.inner, asks))
        }

        fn settle(&self, settlements: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
            self.answer(self.inner.settle(settlements))
        }

        fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
            self.answer(Store::<TokenBucket>::reset(&self.inner, policy, key))
        }
    }

    /// Fails, and answers at once and after a minute. Only the latter is a return.
    async fn check_return<S: Store<TokenBucket, Error = Infallible>>(
        store: S,
        is_down: &AtomicBool,
        age_failure: impl Fn(&S) -> bool,
    ) {
        let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(10));
        let acquire = async || {
            let asks = [Ask::new(&policy, &rule, Key::from("ann"), Cost::ONE)];
            store.acquire(&asks).await
        };
        assert!(!age_failure(&store));
        is_down.store(true, Ordering::Relaxed);
        acquire().await.unwrap();
        is_down.store(false, Ordering::Relaxed);
        acquire().await.unwrap();
        assert!(age_failure(&store), "within the minute");
        acquire().await.unwrap();
        assert!(!age_failure(&store), "after the minute");
    }

    #[tokio::test]
    async fn a_store_that_answers_at_once_or_later_returns_after_a_minute() {
        for at_once in [true, false] {
            let flaky = || {
                let is_down = Arc::new(AtomicBool::new(false));
                let flaky = Flaky {
                    inner: Local::new(),
                    at_once,
                    is_down: Arc::clone(&is_down),
                };
                (flaky, is_down)
            };
            let (store, is_down) = flaky();
            let open = OnFailure::new(store, FailureMode::Open, "");
            check_return(open, &is_down, OnFailure::age_failure).await;
            let (store, is_down) = flaky();
            let local = FallbackBuilder::new(store, Local::new()).rule(|rule| Some(*rule));
            check_return(local, &is_down, Fallback::age_failure).await;
        }
    }
}
