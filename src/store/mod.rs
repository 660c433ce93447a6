//! Where a key's state lives, and who decides there.
//!
//! A store answers "may this key spend this cost now?" and remembers what was spent. What
//! it can do atomically decides which rules it can run:
//!
//! | class | does atomically | examples | runs |
//! |---|---|---|---|
//! | local | anything, under a lock | [`Local`] | every [`Algorithm`](crate::algorithm::Algorithm) |
//! | script | a program beside the data | `Redis` (feature `redis`), anything that implements `Evaluate` | every rule that is [`Scripted`](crate::algorithm::Scripted) |
//! | compare-and-swap | replace a value that nobody has written since | `Memcached` (feature `memcached`), `Optimistic` (feature `tokio`) over anything that implements `CompareAndSwap` | every rule whose state has a [`Codec`](crate::algorithm::Codec) |
//! | counter | adds, and tells the total | `MemcachedCounters` (feature `memcached`), `Counters` (feature `tokio`) over anything that implements `Increment` | `FixedWindow`, `SlidingWindow`, `CountedRule` |
//! | of one's own | whatever it says | anything that implements [`Store`] | what it says |
//!
//! # When a store can fail
//!
//! A layer takes only stores whose [`Error`](Backend::Error) can never happen. The
//! wrappers of [`StoreExt`] make one of any other: [`fail_open`](StoreExt::fail_open) lets undecided
//! requests pass, [`fail_closed`](StoreExt::fail_closed) answers them with 503. Either way the
//! decision says that it is undecided, and no header carries an invented number. With
//! [`fall_back_to`](StoreExt::fall_back_to), a local store decides instead.
//!
//! A call that the store [does not support](Error::is_unsupported) is refused as the server's fault, whatever was chosen.
//!
//! A store that [lost every race](Error::is_contended) for a key has not failed: what happens then is a
//! [choice of its own](OnFailure::when_contended).

mod ask;
mod boxed;
#[cfg(feature = "tokio")]
mod cas;
mod check;
#[cfg(feature = "tokio")]
mod counter;
mod engine;
mod error;
mod local;
#[cfg(feature = "memcached")]
mod memcached;
#[cfg(feature = "tokio")]
mod name;
mod never_fails;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod script;
#[cfg(feature = "tokio")]
mod task;
mod unsettled;
mod wrappers;

use std::future::Future;

use crate::{key::Key, policy::Policy};

pub use self::{
    ask::{Ask, Settlement},
    boxed::{BoxFuture, BoxStore},
    check::{Check, CheckFuture, Never},
    error::Error,
    local::{AtCapacity, Local, LocalBuilder, Stats},
    never_fails::NeverFails,
    wrappers::{
        CircuitBreaker, CircuitBreakerConfig, CircuitBreakerFuture, CircuitState, FailureMode,
        Fallback, FallbackBuilder, FallbackDone, FallbackFuture, ForgetFuture, OnFailure,
        OnFailureFuture, RememberFuture, RememberRefusals, Scalable,
    },
};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use self::{
    cas::{CasStats, CompareAndSwap, Loaded, Optimistic, OptimisticBuilder, Swap, Swapped},
    counter::{CounterStats, Counters, CountersBuilder, CountersFuture, Increment, Totals},
    wrappers::{Timeout, TimeoutFuture},
};
pub use crate::decision::Decisions;

#[cfg(feature = "memcached")]
#[cfg_attr(docsrs, doc(cfg(feature = "memcached")))]
pub use self::memcached::{
    CasUnique, Memcached, MemcachedBuilder, MemcachedConnection, MemcachedCounters,
};
#[cfg(feature = "redis")]
pub use self::{
    redis::{Redis, RedisBuilder, RedisConnection},
    script::{Evaluate, Program, Script, ScriptStats},
};

/// How a store fails, whatever rule it runs.
pub trait Backend {
    /// What can go wrong; [`Infallible`](std::convert::Infallible) where nothing can.
    ///
    /// Stores that can fail use [`store::Error`](Error), so that wrappers can ask what it was.
    type Error;

    /// The address of the server, for the log of its failures; `None`, the default, where there is none or nobody knows it.
    ///
    /// As `127.0.0.1:6379`, and several with commas between. Without passwords: it is logged.
    fn address(&self) -> Option<&str> {
        None
    }

    /// Returns how many settlements failed or may have failed, including those that no caller waited for.
    ///
    /// Clones share the count. `None`, the default, means that the store does not count: [`OnFailure`] then counts the errors that it
    /// sees, and the settlements whose futures were dropped before they were ready.
    fn unsettled(&self) -> Option<u64> {
        None
    }

    /// Returns the part of the store that holds the state of a key and can fail by itself, such as a shard of a cluster. 0, the
    /// default, for a store without such parts, and while they are not known yet.
    ///
    /// A [circuit breaker](StoreExt::circuit_breaker) has a state for each part. It asks before each call, so this must be fast and
    /// must not block.
    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        let _ = (policy, key);
        0
    }
}

/// Answers whether keys may spend now, and spends if so.
///
/// The rule comes with every call and the store remembers only state. Its key is the pair
/// (policy name, client key), so two layers on one store do not meet unless they bear
/// the same name. Under a key lies a state of each [kind](crate::algorithm::Algorithm::state_kind) of rule that charges it.
///
/// # Writing one
///
/// A store that refuses everybody, and is done with it at once:
///
/// ```
/// use std::convert::Infallible;
/// use tollgate::{Decision, Policy, Timestamp, Verdict, key::Key};
/// use tollgate::store::{Ask, Backend, Check, Decisions, Never, Settlement, Store};
///
/// struct Closed;
///
/// impl Backend for Closed {
///     type Error = Infallible;
/// }
///
/// impl<Rule> Store<Rule> for Closed {
///     type Answer = Never<Result<Decisions, Infallible>>;
///     type Done = Never<Result<(), Infallible>>;
///
///     fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
///         self.look(asks)
///     }
///     fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
///         let refuse = |_: &_| Decision::new(Verdict::Refuse, Timestamp::default(), 0);
///         Check::Ready(Ok(asks.iter().map(refuse).collect()))
///     }
///     fn settle(&self, _: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
///         Check::Ready(Ok(()))
///     }
///     fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
///         Check::Ready(Ok(()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the store `{Self}` cannot run the rule `{Rule}`",
    note = "`Local<Rule>` runs every rule that implements `Algorithm`; a layer's rule and its store \
            must name the same rule type"
)]
pub trait Store<Rule>: Backend {
    /// A future answer, where there is one. [`Never`] for a store that answers at once.
    type Answer: Future<Output = Result<Decisions, Self::Error>>;
    /// A future end of `settle` and `reset`.
    type Done: Future<Output = Result<(), Self::Error>>;

    /// Spends what is asked for: all of it, or nothing.
    ///
    /// One decision for each ask, in order. If one of them refuses, the others spend nothing
    /// and only tell how they stand. A store that cannot do that atomically settles the
    /// earlier ones back, and says so in its documentation.
    ///
    /// # Cancellation
    ///
    /// A [`Check::Ready`] answer is spent already. Of a pending one that is dropped, at most what was asked for
    /// is spent.
    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer>;

    /// Tells how keys stand. Changes nothing; the costs are ignored.
    #[doc(alias("peek", "dry run", "status"))]
    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer>;

    /// Corrects earlier charges to what they really cost.
    ///
    /// # Cancellation
    ///
    /// A settlement should be made even if its future is dropped. A [layer](crate::RateLimitLayer) drops the future when it gives back
    /// the charge of a cancelled request. A store should [count](Backend::unsettled) the settlements that it loses.
    #[doc(alias("refund", "give back"))]
    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done>;

    /// Forgets a key, with the states of all [kinds](crate::algorithm::Algorithm::state_kind) of rules that charged it.
    #[doc(alias("unban", "unblock", "clear"))]
    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done>;

    /// Checks that this store can run a rule, without asking a server. The default is that it runs every rule of its type.
    ///
    /// Layers check their rules when they are [given a store](crate::RateLimitLayer::store). A store that does not run them all
    /// overrides it, and answers calls under the others by [`Error::unsupported`]. Wrappers forward it.
    ///
    /// # Errors
    ///
    /// What keeps the store from running the rule, and what to choose instead.
    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        let _ = rule;
        Ok(())
    }
}

/// What every store can be wrapped in.
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
/// What is written first lies inside. Any order compiles that the errors allow, and this one serves most: a deadline, so
/// that silence is a failure; a breaker, so that failures cost no waiting; the memory of refusals, which answers also
/// while the breaker is open; and at the end what happens to a call that failed.
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
/// To read the counters of a wrapper that lies inside, keep a clone of it: clones share them.
pub trait StoreExt: Backend + Sized {
    /// Lets a request pass when the store cannot tell; [contention](OnFailure::when_contended) may be answered differently.
    fn fail_open(self) -> OnFailure<Self>
    where
        Self: Backend<Error: Into<Error>>,
    {
        let consequence = "undecided requests pass, as `fail_open` says";
        OnFailure::new(self, FailureMode::Open, consequence)
    }

    /// Refuses a request with 503 (gRPC: `UNAVAILABLE`) when the store cannot tell;
    /// [contention](OnFailure::when_contended) may be answered differently.
    fn fail_closed(self) -> OnFailure<Self>
    where
        Self: Backend<Error: Into<Error>>,
    {
        let consequence = "undecided requests are refused, as `fail_closed` says";
        OnFailure::new(self, FailureMode::Closed, consequence)
    }

    /// Fails when no answer comes within a deadline; `settle` and `reset` have the same one.
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

    /// Leaves the store alone for a while when it fails time after time.
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

    /// Refuses here what the store refused, as long as its refusal holds.
    fn remember_refusals<Rule>(self) -> RememberRefusals<Self, Rule> {
        RememberRefusals::new(self)
    }

    /// Erases the store's type, where configuration chooses the store.
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

impl<S: Backend + ?Sized> Backend for std::sync::Arc<S> {
    type Error = S::Error;

    fn address(&self) -> Option<&str> {
        (**self).address()
    }

    fn unsettled(&self) -> Option<u64> {
        (**self).unsettled()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        (**self).shard(policy, key)
    }
}

impl<Rule, S: Store<Rule> + ?Sized> Store<Rule> for std::sync::Arc<S> {
    type Answer = S::Answer;
    type Done = S::Done;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        (**self).acquire(asks)
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        (**self).look(asks)
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        (**self).settle(settlements)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        (**self).reset(policy, key)
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        (**self).fits(rule)
    }
}
