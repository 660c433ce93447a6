//! Not asking a store that does not answer.

mod breaker;
mod gate;
mod settings;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

pub use self::settings::CircuitBreakerConfig;

use self::breaker::{Breaker, Call, IsOpen};
use crate::{
    key::Key,
    policy::Policy,
    store::{Ask, Backend, Check, Error, Settlement, Store, unsettled::Unsettled},
    time::{Clock, SystemClock},
};

/// A store that is left alone for a while when it fails time after time.
///
/// Made by [`circuit_breaker`](super::super::StoreExt::circuit_breaker).
///
/// | state | a call | until |
/// |---|---|---|
/// | [closed](CircuitState::Closed) | asks the store | so many [failures](CircuitBreakerConfig::failures) in a row open it |
/// | [open](CircuitState::Open) | fails at once, as [unavailable](Error::is_unavailable) | a [pause](CircuitBreakerConfig::open_for) is over |
/// | [half-open](CircuitState::HalfOpen) | is the one probe, or fails at once | the probe is answered: closed; or fails: open for twice as long |
///
/// Every error is a failure, except two. [Contention](Error::is_contended) is an answer: a store that lost a race is there. An error
/// of the [call alone](Error::is_unsupported), such as a rule that does not fit the store, is neither an answer nor a failure, so that
/// no client opens the breaker for the others; a probe that ends so gives its place to the next call. Refusals are answers. A result
/// counts only in the state in which its call began. `look`, `settle` and `reset` take part as `acquire` does.
///
/// # Shards
///
/// A store whose parts fail by themselves, such as a cluster, has a breaker for each of them, as it tells by
/// [`Backend::shard`]: a shard that is dead keeps no call to another one away. A call about several keys counts for the shard of
/// the first. More than 1024 shards share that of shard 0.
///
/// # Order
///
/// A deadline belongs inside: `.timeout(…).circuit_breaker(…)`. Only then is a store that never answers a failure, and
/// a probe sure to end. A probe that is dropped gives its place to the next call.
///
/// # Cancellation
///
/// A call that is dropped is neither an answer nor a failure.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Ask, CircuitBreakerConfig, CircuitState, Error, Store, StoreExt};
/// # use tollgate::{key::Key, store::{Backend, Check, Decisions, Never, Settlement}};
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
/// let store = Down.circuit_breaker(CircuitBreakerConfig::new().failures(3));
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(10));
/// let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
/// for _ in 0..10 {
///     drop(store.acquire(&ask));
/// }
/// assert_eq!(store.state(), CircuitState::Open);
/// assert_eq!((store.opened(), store.rejected()), (1, 7));
/// ```
#[derive(Debug)]
pub struct CircuitBreaker<S, C = SystemClock> {
    store: S,
    breaker: Arc<Breaker<C>>,
    /// Settlements that were rejected while the breaker was open.
    unsettled: Unsettled,
}

/// Whether a circuit breaker lets calls through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitState {
    /// All calls pass.
    Closed,
    /// None does.
    Open,
    /// One does, or will as soon as it comes.
    HalfOpen,
}

impl<S: Clone, C> Clone for CircuitBreaker<S, C> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            breaker: Arc::clone(&self.breaker),
            unsettled: self.unsettled.clone(),
        }
    }
}

impl<S, C> CircuitBreaker<S, C> {
    pub(in crate::store) fn new(store: S, settings: CircuitBreakerConfig<C>) -> Self {
        let breaker = Arc::new(Breaker::new(settings));
        let unsettled = Unsettled::default();
        Self {
            store,
            breaker,
            unsettled,
        }
    }

    /// How often it was opened, all clones and shards together.
    pub fn opened(&self) -> u64 {
        self.breaker.opened()
    }

    /// How many calls failed without the store being asked.
    pub fn rejected(&self) -> u64 {
        self.breaker.rejected()
    }

    /// How many calls asked the store as probes.
    pub fn probes(&self) -> u64 {
        self.breaker.probes()
    }

    /// Whether calls pass now. Where the store has several [shards](#shards), this is the state of the one that is worst off:
    /// open where calls to any of them are rejected.
    pub fn state(&self) -> CircuitState
    where
        C: Clock,
    {
        self.breaker.state()
    }

    /// The shard of a call: that of its first ask.
    fn shard_of<Rule>(&self, asks: &[Ask<'_, Rule>]) -> u32
    where
        S: Backend,
    {
        let first = asks.first();
        first.map_or(0, |ask| self.store.shard(ask.policy(), ask.key()))
    }

    fn call<F, T>(&self, shard: u32, ask: impl FnOnce(&S) -> Check<F>) -> Check<BreakerFuture<F, C>>
    where
        F: Future<Output = Result<T, Error>>,
        C: Clock,
    {
        let Some(mut call) = self.breaker.enter(shard) else {
            return Check::Ready(Err(Error::unavailable(IsOpen)));
        };
        match ask(&self.store) {
            Check::Ready(result) => {
                call.ended(&result);
                Check::Ready(result)
            }
            Check::Pending(answer) => Check::Pending(BreakerFuture { answer, call }),
        }
    }
}

pin_project! {
    /// The future of a store [behind a circuit breaker](CircuitBreaker).
    #[must_use = "futures do nothing unless polled"]
    pub struct BreakerFuture<F, C = SystemClock> {
        #[pin]
        answer: F,
        call: Call<C>,
    }
}

impl<F, C> fmt::Debug for BreakerFuture<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerFuture").finish_non_exhaustive()
    }
}

impl<F, T, C: Clock> Future for BreakerFuture<F, C>
where
    F: Future<Output = Result<T, Error>>,
{
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.answer.poll(cx));
        this.call.ended(&result);
        Poll::Ready(result)
    }
}

impl<S: Backend<Error = Error>, C> Backend for CircuitBreaker<S, C> {
    type Error = Error;

    fn address(&self) -> Option<&str> {
        self.store.address()
    }

    /// Adds the settlements that were rejected while the breaker was open.
    fn unsettled(&self) -> Option<u64> {
        let made = self.store.unsettled()?;
        Some(made + self.unsettled.count())
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.store.shard(policy, key)
    }
}

impl<Rule, S: Store<Rule, Error = Error>, C: Clock> Store<Rule> for CircuitBreaker<S, C> {
    type Answer = BreakerFuture<S::Answer, C>;
    type Done = BreakerFuture<S::Done, C>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.call(self.shard_of(asks), |store| store.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.call(self.shard_of(asks), |store| store.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let settling = self.unsettled.settling(settlements.len());
        let first = settlements.first();
        let shard = first.map_or(0, |one| self.store.shard(one.policy, &one.key));
        self.call(shard, move |store| {
            // From here on the store counts them.
            settling.all_made();
            store.settle(settlements)
        })
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.call(self.store.shard(policy, key), |store| {
            store.reset(policy, key)
        })
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.store.fits(rule)
    }
}
