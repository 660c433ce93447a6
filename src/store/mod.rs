//! Stores: they keep the states of keys, and decide.
//!
//! A store answers "may this key spend this cost now?" and remembers what was spent. Its atomic operations determine which rules
//! it can run:
//!
//! | class | atomic operation | examples | runs |
//! |---|---|---|---|
//! | local | anything, under a lock | [`Local`] | every [`Algorithm`](crate::algorithm::Algorithm) |
//! | script | a program beside the data | `Redis` (feature `redis`), anything that implements `Evaluate` | every rule that is [`Scripted`](crate::algorithm::Scripted) |
//! | compare-and-swap | replace a value that nobody has written since | `Memcached` (feature `memcached`), `Optimistic` (feature `tokio`) over anything that implements `CompareAndSwap` | every rule whose state has a [`Codec`](crate::algorithm::Codec) |
//! | counter | add, and return the total | `MemcachedCounters` (feature `memcached`), `Counters` (feature `tokio`) over anything that implements `Increment` | `FixedWindow`, `SlidingWindow`, `CountedRule` |
//! | your own | a lock, or a transaction | anything that implements [`Store`], by a [`Transaction`] | every [`Algorithm`](crate::algorithm::Algorithm) |
//!
//! # When a store can fail
//!
//! A layer takes only stores whose [`Error`](Backend::Error) can never happen. The
//! wrappers of [`StoreExt`] make one of any other: [`fail_open`](StoreExt::fail_open) lets undecided
//! requests pass, [`fail_closed`](StoreExt::fail_closed) answers them with 503. Either way the
//! decision is marked as undecided, and no header has an invented number. With
//! [`fall_back_to`](StoreExt::fall_back_to), a local store decides instead.
//!
//! A call that the store [does not support](Error::is_unsupported) is refused as the server's fault, whatever was chosen.
//!
//! A store that [lost every race](Error::is_contended) for a key has not failed: what happens then is a
//! [choice of its own](OnFailure::when_contended).

mod ask;
mod backend;
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
mod owned_ask;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod script;
mod state_key;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod store;
mod store_ext;
mod wrappers;

pub use self::{
    ask::{Ask, Settlement},
    backend::Backend,
    boxed::{BoxFuture, BoxStore},
    check::{Check, CheckFuture, Never},
    engine::{Change, Transaction},
    error::Error,
    local::{AtCapacity, Local, LocalBuilder, Stats},
    never_fails::NeverFails,
    owned_ask::OwnedAsks,
    state_key::StateKey,
    store::Store,
    store_ext::StoreExt,
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
