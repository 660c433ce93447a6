//! Answers the calls that fail: `fail_open` and `fail_closed`.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::failure_log::{FailureCounters, FailureKind};
use crate::{
    decision::Decision,
    key::Key,
    policy::Policy,
    store::{
        Ask, Backend, Check, Decisions, Settlement, Store, StoreError, Then, ThenFuture, delegate,
        engine::{SettlementGuard, Unsettled},
    },
    time::{Clock, SystemClock},
};

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
            check => check.then(handler()),
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

    delegate!(Store<Rule>, self => self.store; renew, fits);
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
pub struct ErrorHandler {
    counters: Arc<FailureCounters>,
    policies: CallPolicies,
    failed: FailureMode,
    contended: FailureMode,
    /// Number of asks.
    count: usize,
    /// The settlements of a `settle`, which are counted unless it succeeds.
    settling: Option<SettlementGuard>,
}

impl_debug!(ErrorHandler);

impl<V: Substitute, E: Into<StoreError>> Then<Result<V, E>> for ErrorHandler {
    type Output = Result<V, Infallible>;

    fn then(&mut self, result: Result<V, E>) -> Self::Output {
        let settling = self.settling.take();
        let error = match result {
            Ok(value) => {
                self.counters.answered();
                settling.into_iter().for_each(SettlementGuard::all_made);
                return Ok(value);
            }
            Err(error) => error.into(),
        };
        let mode = match self.counters.record(&error, &self.policies) {
            FailureKind::Failed => Some(self.failed),
            FailureKind::Contended => Some(self.contended),
            FailureKind::Unsupported => None,
        };
        Ok(V::substitute(mode, self.count))
    }
}

/// The future of an [`OnFailure`] store.
pub(crate) type OnFailureFuture<F> = ThenFuture<F, ErrorHandler>;

/// The policies of one call, owned.
type CallPolicies = SmallVec<[Policy; 1]>;

fn policies_of_asks<Rule>(asks: &[Ask<'_, Rule>]) -> CallPolicies {
    asks.iter().map(|ask| ask.policy().clone()).collect()
}

fn policies_of_settlements<Rule>(settlements: &[Settlement<'_, Rule>]) -> CallPolicies {
    let policies = settlements.iter().map(|settlement| settlement.policy);
    policies.cloned().collect()
}

#[cfg(all(test, feature = "tracing"))]
impl<S> OnFailure<S> {
    /// Makes the last failure older than a minute. Returns `true` if it is the last event in the
    /// log.
    pub(in crate::store) fn age_failure(&self) -> bool {
        self.counters.age_failure()
    }
}
