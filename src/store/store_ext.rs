//! The wrappers of every store, as methods.

#[cfg(feature = "tokio")]
use super::Timeout;
use super::{
    Backend, Blocks, BoxStore, CircuitBreaker, CircuitBreakerConfig, FailureMode, FallbackBuilder,
    NeverFails, OnFailure, RememberRefusals, Store, StoreError,
};

/// The wrappers of every store, as methods.
///
/// | wrapper | effect | errors of its calls |
/// |---|---|---|
/// | [`timeout`], feature `tokio` | A call without an answer within the deadline fails. | [`StoreError`] |
/// | [`circuit_breaker`](Self::circuit_breaker) | After several failures in a row, calls fail at once for a while. | [`StoreError`] |
/// | [`leased`], feature `tokio` | Units are granted ahead, and most calls are decided from memory, never above the limit. | [`StoreError`] |
/// | [`synced`], feature `tokio` | Most calls are decided from memory, and pushed to the store later. The limit is exceeded by a stated bound at most. | [`StoreError`] |
/// | [`remember_refusals`](Self::remember_refusals) | While a refusal holds, calls like it are refused without calling the store. | the store's |
/// | [`with_blocks`](Self::with_blocks) | Calls of a blocked key are refused. | the store's |
/// | [`fall_back_to`](Self::fall_back_to) | If a call fails, a local store decides it, under a share of the rule. | none |
/// | [`fail_open`](Self::fail_open) | If a call fails, the request is admitted. | none |
/// | [`fail_closed`](Self::fail_closed) | If a call fails, the request is refused with 503. | none |
/// | [`boxed`](Self::boxed) | The type of the store is erased. | the store's |
///
/// The first method is the innermost wrapper. This order suits most programs:
///
/// 1. a deadline, so that a server that does not answer counts as a failure;
/// 2. a circuit breaker, so that a failing server delays no request;
/// 3. leases or background synchronisation, if keys have many calls a second; they admit even while
///    the circuit is open;
/// 4. blocks, if keys can be blocked: inside of leases or of background synchronisation they are
///    refused;
/// 5. remembered refusals, which are used even while the circuit is open;
/// 6. the answer to a call that failed.
///
/// Any other order keeps to the limit, too, and to the bound of the synchronisation in it, but
///
/// | order | effect |
/// |---|---|
/// | leases or synchronisation around blocks | refused when a layer or a limiter is built: calls that are admitted from memory would not see a block |
/// | synchronisation around leases, remembered refusals, or synchronisation | no effect: the inner wrapper takes in no counts, so it decides each call |
/// | leases around leases | the burst pays for both |
/// | a deadline around leases or synchronisation | calls that are decided from memory take no time; others are watched as usual |
/// | a circuit breaker around leases, synchronisation or remembered refusals | decisions from memory count as answers of the server, so it may stay closed in an outage; while it is open, they fail like all calls |
///
/// Nodes of one store may have different wrappers, as during a
/// [roll-out](crate::operations#roll-outs). Then all together keep to the limit, but for the bound
/// of the synchronisation, and where only some nodes have leases for a sliding log, and for refunds
/// by the other nodes.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, prelude::*, store::{self, BoxStore, CircuitBreakerConfig}};
///
/// fn limited(remote: BoxStore<TokenBucket, store::StoreError>, nodes: u64) {
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
/// A call that the store [does not support](StoreError::is_unsupported) is refused with 500 under
/// `fall_back_to`, `fail_open` and `fail_closed` alike. A circuit breaker does not count it as a
/// failure.
///
/// To read the counters of an inner wrapper, keep a clone of it: clones share them.
///
// Without its feature, a name leads to the table of features.
#[cfg_attr(
    feature = "tokio",
    doc = "[`timeout`]: Self::timeout
[`leased`]: Self::leased
[`synced`]: Self::synced"
)]
#[cfg_attr(
    not(feature = "tokio"),
    doc = "[`timeout`]: crate#features
[`leased`]: crate#features
[`synced`]: crate#features"
)]
pub trait StoreExt: Backend + Sized {
    /// Admits a request if the store fails.
    ///
    /// [Contention](OnFailure::when_contended) may be answered differently.
    fn fail_open(self) -> OnFailure<Self>
    where
        Self: Backend<Error: Into<StoreError>>,
    {
        let consequence = "requests that it cannot decide are admitted, as `fail_open` asks";
        OnFailure::new(self, FailureMode::Open, consequence)
    }

    /// Refuses a request with 503 (gRPC: `UNAVAILABLE`) if the store fails.
    ///
    /// [Contention](OnFailure::when_contended) may be answered differently.
    fn fail_closed(self) -> OnFailure<Self>
    where
        Self: Backend<Error: Into<StoreError>>,
    {
        let consequence = "requests that it cannot decide are refused, as `fail_closed` asks";
        OnFailure::new(self, FailureMode::Closed, consequence)
    }

    /// Fails a call that gets no answer within a deadline. The deadline applies to `settle` and
    /// `reset` too.
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    fn timeout(self, deadline: std::time::Duration) -> Timeout<Self>
    where
        Self: Backend<Error = StoreError>,
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

    /// Fails calls at once, for a while, after several failures of the store in a row.
    fn circuit_breaker(self, settings: CircuitBreakerConfig) -> CircuitBreaker<Self>
    where
        Self: Backend<Error = StoreError>,
    {
        CircuitBreaker::new(self, settings)
    }

    /// Decides by a local store while this one fails, under a share of each rule.
    ///
    /// The share comes next: `.fall_back_to(Local::new()).share(1, nodes)`.
    fn fall_back_to<L>(self, local: L) -> FallbackBuilder<Self, L>
    where
        Self: Backend<Error: Into<StoreError>>,
        L: Backend<Error: NeverFails>,
    {
        FallbackBuilder::new(self, local)
    }

    /// Refuses calls without calling the store while an earlier refusal holds.
    fn remember_refusals<Rule>(self) -> RememberRefusals<Self, Rule> {
        RememberRefusals::new(self)
    }

    /// Decides most calls from memory, by units that the store grants ahead, and never exceeds the
    /// limit.
    ///
    /// The burst pays for it: see [the prices](super::Leased#what-it-costs).
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    fn leased<Rule, C>(self, config: super::LeaseConfig<C>) -> super::Leased<Self, Rule, C>
    where
        Rule: crate::algorithm::Leasable,
    {
        super::Leased::new(self, config)
    }

    /// Decides most calls from memory, and pushes them to the store later, so that all nodes
    /// together exceed the limit by no more than a stated bound.
    ///
    /// The bound is hard, and what exceeds the limit is repaid: see [the
    /// prices](super::Synced#what-it-costs).
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    fn synced<Rule, C>(self, config: super::SyncConfig<C>) -> super::Synced<Self, Rule, C>
    where
        Rule: crate::algorithm::Syncable,
    {
        super::Synced::new(self, config)
    }

    /// Lets keys be [blocked](Blocks::block) for some time, by hand or [after
    /// refusals](Blocks::block_after).
    fn with_blocks(self) -> Blocks<Self> {
        Blocks::new(self)
    }

    /// Erases the store's type, for programs whose configuration chooses the store.
    ///
    /// Costs one allocation for a decision that is not ready at once.
    fn boxed<Rule>(self) -> BoxStore<Rule, Self::Error>
    where
        Self: Store<Rule, Answer: Send + 'static> + Send + Sync + 'static,
    {
        BoxStore::new(self)
    }
}

impl<S: Backend> StoreExt for S {}
