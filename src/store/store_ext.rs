//! The wrappers of every store, as methods.

#[cfg(feature = "tokio")]
use super::Timeout;
use super::{
    Backend, BoxStore, CircuitBreaker, CircuitBreakerConfig, Error, FailureMode, FallbackBuilder,
    NeverFails, OnFailure, RememberRefusals, Store,
};

/// The wrappers of every store, as methods.
///
/// | wrapper | a call | its error |
/// |---|---|---|
/// | `timeout`, feature `tokio` | fails when no answer comes within a deadline | [`store::Error`](Error) |
/// | [`circuit_breaker`](Self::circuit_breaker) | fails at once, for a while, after several failures in a row | [`store::Error`](Error) |
/// | [`remember_refusals`](Self::remember_refusals) | is refused here as long as a refusal of the store holds | the store's |
/// | [`fall_back_to`](Self::fall_back_to) | that fails is decided by a local store, under a share of the rule | none |
/// | [`fail_open`](Self::fail_open) | that fails lets the request pass | none |
/// | [`fail_closed`](Self::fail_closed) | that fails turns the request away with 503 | none |
/// | [`boxed`](Self::boxed) | is the same; the store's type is erased | the store's |
///
/// The first method is the innermost wrapper. Any order compiles that the errors allow. This one serves most: a deadline, so
/// that silence is a failure; a breaker, so that failures cost no waiting; the memory of refusals, which answers also
/// while the breaker is open; and last the answer to a call that failed.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, prelude::*, store::{self, BoxStore, CircuitBreakerConfig}};
///
/// fn limited(remote: BoxStore<TokenBucket, store::Error>, nodes: u64) {
///     # #[cfg(feature = "tokio")]
///     let remote = remote.timeout(Duration::from_millis(100));
///     let store = remote
///         .circuit_breaker(CircuitBreakerConfig::new())
///         .remember_refusals()
///         .fall_back_to(Local::new())
///         .share(1, nodes);
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(store);
/// #   let _ = layer;
/// }
/// # let _: fn(_, _) = limited;
/// ```
///
/// A call that the store [does not support](Error::is_unsupported) is refused with 500 by `fall_back_to`, `fail_open` and
/// `fail_closed` alike, and is no failure to a circuit breaker.
///
/// To read the counters of an inner wrapper, keep a clone of it: clones share them.
pub trait StoreExt: Backend + Sized {
    /// Lets a request pass if the store fails; [contention](OnFailure::when_contended) may be answered differently.
    fn fail_open(self) -> OnFailure<Self>
    where
        Self: Backend<Error: Into<Error>>,
    {
        let consequence = "undecided requests pass, as `fail_open` says";
        OnFailure::new(self, FailureMode::Open, consequence)
    }

    /// Refuses a request with 503 (gRPC: `UNAVAILABLE`) if the store fails;
    /// [contention](OnFailure::when_contended) may be answered differently.
    fn fail_closed(self) -> OnFailure<Self>
    where
        Self: Backend<Error: Into<Error>>,
    {
        let consequence = "undecided requests are refused, as `fail_closed` says";
        OnFailure::new(self, FailureMode::Closed, consequence)
    }

    /// Fails if no answer comes within a deadline, which holds for `settle` and `reset`, too.
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    fn timeout(self, deadline: std::time::Duration) -> Timeout<Self>
    where
        Self: Backend<Error = Error>,
    {
        Timeout::new(self, deadline)
    }

    #[cfg(not(feature = "tokio"))]
    #[doc(hidden)]
    fn timeout(self, _: std::time::Duration) -> Self
    where
        Self: crate::unsatisfied::FeatureTokio,
    {
        self
    }

    /// Does not ask the store for a while after several failures in a row.
    fn circuit_breaker<C>(self, settings: CircuitBreakerConfig<C>) -> CircuitBreaker<Self, C>
    where
        Self: Backend<Error = Error>,
    {
        CircuitBreaker::new(self, settings)
    }

    /// Lets a local store decide while this one fails, under the share of each rule that is stated next:
    /// `.fall_back_to(Local::new()).share(1, nodes)`.
    fn fall_back_to<L>(self, local: L) -> FallbackBuilder<Self, L>
    where
        Self: Backend<Error: Into<Error>>,
        L: Backend<Error: NeverFails>,
    {
        FallbackBuilder::new(self, local)
    }

    /// Refuses calls without asking the store as long as an earlier refusal holds.
    fn remember_refusals<Rule>(self) -> RememberRefusals<Self, Rule> {
        RememberRefusals::new(self)
    }

    /// Erases the store's type, for programs whose configuration chooses the store.
    ///
    /// Costs one allocation for a decision that is not ready at once.
    fn boxed<Rule>(self) -> BoxStore<Rule, Self::Error>
    where
        Self: Store<Rule, Answer: Send + 'static, Done: Send + 'static> + Send + Sync + 'static,
    {
        BoxStore::new(self)
    }
}

impl<S: Backend> StoreExt for S {}
