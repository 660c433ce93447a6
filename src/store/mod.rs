//! Stores, which keep the states of keys and decide.
//!
//! A store answers "may this key spend this cost now?" and remembers what was spent. Its atomic
//! operations determine which rules it can run:
//!
//! | class | atomic operation | examples | runs |
//! |---|---|---|---|
//! | local | anything, in this process | [`Local`] | every [`Algorithm`](crate::algorithm::Algorithm) |
//! | script | a program beside the data | [`Redis`] (feature `redis`), anything that implements [`Evaluate`] | every rule that is [`Scripted`](crate::algorithm::Scripted) |
//! | compare-and-swap | replace a value if it has not been written since it was read | [`Memcached`] (feature `memcached`), [`CasStore`] (feature `tokio`) over anything that implements [`CompareAndSwap`] | every rule whose state has a [`Codec`](crate::algorithm::Codec) |
//! | counter | add, and return the total | [`MemcachedCounters`] (feature `memcached`), [`CounterStore`] (feature `tokio`) over anything that implements [`Increment`] | [`FixedWindow`](crate::FixedWindow), [`SlidingWindow`](crate::SlidingWindow), an [`AnyRule`](crate::AnyRule) of them |
//! | transaction | a lock, or a transaction, in this process | [`Transactional`] over anything that implements [`Transact`] | every [`Algorithm`](crate::algorithm::Algorithm) |
//! | your own | as you choose | anything that implements [`Store`], by a [`Transaction`] | every [`Algorithm`](crate::algorithm::Algorithm) |
//!
//! Calls [in flight](crate::InFlight#stores) need a lease in each store but [`Local`]. Counters
//! have no such rule. Calls [wait](crate::InFlight#waiting) for their turn in [`Local`] alone; a
//! wrapper of your own lets them wait if it passes on all methods of [`Backend`] by
//! [`delegate!`](driver::delegate).
//!
//! The traits for stores of your own, and what they take and return, are in [`driver`].
//!
//! # When a store can fail
//!
//! A layer accepts only a store whose [`StoreError`](Backend::Error) can never happen. The wrappers
//! of [`StoreExt`] turn any other store into one. If the store fails,
//!
//! - [`fail_open`](StoreExt::fail_open) admits the request;
//! - [`fail_closed`](StoreExt::fail_closed) refuses it with 503;
//! - [`fall_back_to`](StoreExt::fall_back_to) decides with a local store.
//!
//! With the first two, the decision is [undecided](crate::Verdict::Undecided): it has no numbers,
//! so the response has no `RateLimit` fields for it.
//!
//! A call that the store [does not support](StoreError::is_unsupported) is refused with 500 under
//! any of them.
//!
//! Stores on servers work in tasks of the runtimes from which they are called, runtimes of tokio
//! with their timers. When one shuts down, others take over. One that stays, but is not driven any
//! more, such as that of a `block_on` that has returned, may hold up calls from other runtimes:
//! keep it running while the store is used.
//!
//! A store that [lost every race](StoreError::is_contended) for a key has not failed. The answer to
//! such a call can be [set separately](OnFailure::when_contended).
//!
// Without its feature, a name leads to the table of features.
#![cfg_attr(
    not(feature = "redis"),
    doc = "[`Redis`]: crate#features
[`Evaluate`]: crate#features"
)]
#![cfg_attr(
    not(feature = "memcached"),
    doc = "[`Memcached`]: crate#features
[`MemcachedCounters`]: crate#features"
)]
#![cfg_attr(
    not(feature = "tokio"),
    doc = "[`CasStore`]: crate#features
[`CompareAndSwap`]: crate#features
[`CounterStore`]: crate#features
[`Increment`]: crate#features"
)]

pub(crate) mod ask;
pub(crate) mod boxed;
#[cfg(feature = "tokio")]
mod cas;
pub(crate) mod check;
#[cfg(feature = "tokio")]
pub(crate) mod counter;
mod delegate;
mod delta;
pub mod driver;
pub(crate) mod engine;
mod error;
pub(crate) mod local;
#[cfg(feature = "memcached")]
mod memcached;
mod names;
mod node_counts;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod script;
mod store_ext;
pub(crate) mod traits;
mod transactional;
pub(crate) mod wrappers;

pub use self::{
    boxed::BoxStore,
    error::{MayFail, NeverFails, StoreError},
    local::{AtCapacity, Local, LocalBuilder, LocalStats},
    store_ext::StoreExt,
    traits::{Backend, Store},
    wrappers::{
        Blocks, CircuitBreaker, CircuitBreakerConfig, CircuitState, FailureMode, Fallback,
        FallbackBuilder, OnFailure, RememberRefusals,
    },
};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use self::{cas::CasStats, counter::CounterStats, wrappers::Timeout};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use crate::fleet::{LeaseConfig, LeaseStats, Leased, SyncConfig, SyncStats, Synced};

#[cfg(feature = "memcached")]
#[cfg_attr(docsrs, doc(cfg(feature = "memcached")))]
pub use self::memcached::{
    Memcached, MemcachedConnection, MemcachedConnectionBuilder, MemcachedCounters,
};
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use self::{
    redis::{Redis, RedisBuilder, RedisConnection},
    script::ScriptStats,
};

#[cfg(any(feature = "redis", all(test, feature = "tokio")))]
pub(crate) use self::ask::Spend;
// Within the crate, the names of authors and the futures stand beside those of users.
pub(crate) use self::{
    boxed::BoxFuture,
    check::{Then, ThenFuture},
    driver::*,
    engine::{Progress, Steps, StepsFuture, give_back, run},
    local::Place,
    traits::SyncFuture,
    wrappers::{BlockFuture, OnFailureFuture},
};
