//! A store whose errors are replaced by answers.

use std::{convert::Infallible, future::Future, sync::Arc};

use super::{
    counters::{FailureCounters, FailureKind, Policies, policies_of_asks, policies_of_settlements},
    failure_mode::{FailureMode, unsupported},
    future::{ErrorHandler, OnFailureFuture, Substitute},
};
use crate::{
    key::Key,
    policy::Policy,
    store::{Ask, Backend, Check, Decisions, Error, Settlement, Store, StoreId, engine::Unsettled},
};

/// A store whose errors are replaced by answers: the request is admitted or refused.
///
/// The decision is [undecided](crate::Verdict::Undecided).
///
/// Created by [`fail_open`](crate::store::StoreExt::fail_open) and [`fail_closed`](crate::store::StoreExt::fail_closed). Clones
/// share their counters.
///
/// | the store | the request | counter |
/// |---|---|---|
/// | failed | is admitted (`fail_open`), or is refused with 503 (`fail_closed`) | [`failures`](Self::failures) |
/// | [took no write](Error::is_unwritten) | the same | `failures`, and [`unwritten`](Self::unwritten) |
/// | [lost every race](Error::is_contended) for a key | the same, or as set by [`when_contended`](Self::when_contended) | [`contentions`](Self::contentions) |
/// | [does not support](Error::unsupported) the call | is refused with 500 (gRPC: `INTERNAL`), even by `fail_open` | [`unsupported`](Self::unsupported), and [`misconfigured`](crate::RateLimitLayer::misconfigured) of the layer |
///
/// The last answer cannot be changed: a client whose calls the store cannot decide would have no limit.
///
/// A failed `settle` or `reset` is counted and not repeated. Failed settlements have a
/// [counter of their own](Backend::unsettled).
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Ask, Check, Error, Store, StoreExt};
/// # use tollgate::{key::Key, store::{Backend, Decisions, Never, Settlement}};
/// # fn down<T>() -> Check<Never<Result<T, Error>>> { Check::Ready(Err(Error::unavailable("connection refused"))) }
/// # struct Down;
/// # impl Backend for Down { type Error = Error; }
/// # impl Store<TokenBucket> for Down {
/// #     type Answer = Never<Result<Decisions, Error>>;
/// #     type Done = Never<Result<(), Error>>;
/// #     fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> { down() }
/// #     fn look(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> { down() }
/// #     fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> { down() }
/// #     fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> { down() }
/// # }
///
/// // `Down` cannot be reached.
/// let store = Down.fail_open();
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(10));
/// let Check::Ready(Ok(decisions)) = store.acquire(&[Ask::new(&policy, &rule, "alice".into(), Cost::ONE)]) else {
///     unreachable!();
/// };
/// assert!(decisions.is_admitted());
/// assert_eq!(store.failures(), 1);
/// ```
///
/// # Contention
///
/// A store that [lost every race](Error::is_contended) for a key works, and the client may be within its quota. So contention is
/// neither a failure nor a refusal. It has its own counter, and is answered as a failure unless
/// [`when_contended`](Self::when_contended) sets another answer.
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
/// The first failure of each policy and cause is logged at once, and later ones at most once a minute; at most 32 events a
/// minute are logged for each store. The first answer of the server after such an event is one of level `WARN`, with `address` and
/// `failures`. Contention is not logged. An unsupported call is logged once for each policy and cause,
/// with the fields `policy`, `cause` and `address`.
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
    /// `consequence` is the part of the log line that describes what happens to requests.
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

    /// Sets the answer for calls that [lost every race](Error::is_contended) for a key; by default that of a failure.
    ///
    /// The documentation of [`FailureMode`] has an example.
    pub fn when_contended(self, contended: FailureMode) -> Self {
        Self { contended, ..self }
    }

    /// Returns the number of failures, without [contention](Self::contentions) and [unsupported](Self::unsupported) calls.
    pub fn failures(&self) -> u64 {
        self.counters.failures()
    }

    /// Returns how many of the [failures](Self::failures) were [writes that the server did not take](Error::is_unwritten).
    pub fn unwritten(&self) -> u64 {
        self.counters.unwritten()
    }

    /// Returns the number of calls that lost every race for a key.
    pub fn contentions(&self) -> u64 {
        self.counters.contentions()
    }

    /// Returns the number of calls that the store does not [support](Error::unsupported).
    ///
    /// Above 0, some requests have a limit that this store cannot keep, and are refused.
    pub fn unsupported(&self) -> u64 {
        self.counters.unsupported()
    }

    /// Returns the wrapped store, for example to read its counters.
    // Callers in this crate that ask it `record` its errors.
    pub fn get_ref(&self) -> &S {
        &self.store
    }

    /// Logs that the store has answered a call, if a failure is the last that was logged.
    pub(in crate::store) fn answered(&self) {
        self.counters.answered();
    }

    /// Counts and logs the error of a call with `count` asks; returns the answer, unless the store failed.
    pub(in crate::store) fn record<'a>(
        &self,
        error: impl Into<Error>,
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
        policies: impl FnOnce() -> Policies,
    ) -> Check<OnFailureFuture<F>>
    where
        F: Future<Output = Result<V, E>>,
        V: Substitute,
        E: Into<Error>,
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
            Check::Ready(Ok(value)) => Check::Ready(Ok(value)),
            Check::Ready(Err(error)) => Check::Ready(Ok(handler().substitute(error))),
            Check::Pending(future) => Check::Pending(OnFailureFuture::new(future, handler())),
        }
    }
}

impl<S: Backend> Backend for OnFailure<S> {
    type Error = Infallible;

    fn id(&self) -> Option<StoreId> {
        self.store.id()
    }

    fn address(&self) -> Option<&str> {
        self.store.address()
    }

    fn unsettled(&self) -> Option<u64> {
        let own = || self.unsettled.count();
        Some(self.store.unsettled().unwrap_or_else(own))
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.store.shard(policy, key)
    }

    fn refuses_beyond_rules(&self) -> bool {
        self.store.refuses_beyond_rules()
    }

    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        self.store.note_refusal(policy, key)
    }
}

impl<Rule, S: Store<Rule, Error: Into<Error>>> Store<Rule> for OnFailure<S> {
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
        let policies = || Policies::from_elem(policy.clone(), 1);
        self.replace_error(self.store.reset(policy, key), 0, 0, policies)
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.store.fits(rule)
    }
}
