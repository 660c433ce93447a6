//! Traits and types for stores of your own.
//!
//! Programs that only use stores need nothing of this module, except an [`Ask`] for a
//! [`Local`](super::Local) that is called without a layer.
//!
//! # Choose a trait
//!
//! Implement the trait of what your storage can do atomically. The store beside it does the rest:
//! it decides, combines calls, repeats lost races, and counts.
//!
//! | the storage can | implement | the rest is in | rules |
//! |---|---|---|---|
//! | replace a value that nobody has written since it was read | [`CompareAndSwap`], two functions (feature `tokio`) | [`CasStore`] | all whose state has a [`Codec`](crate::algorithm::Codec) |
//! | add to a number and return the total | [`Increment`], four functions (feature `tokio`) | [`CounterStore`] | fixed and sliding windows |
//! | run a Lua program | [`Evaluate`], one function (feature `redis`) | [`ScriptStore`] | all that are [`Scripted`](crate::algorithm::Scripted) |
//! | lock its states, or run a transaction, in this process | [`Transact`], two functions | [`Transactional`] | all |
//! | something else | [`Store`](super::Store), four functions | [`Transaction`] | as you choose |
//!
//! Each trait's page has a complete example. The project `examples/etcd` is a template for a crate
//! of your own, `examples/dynamodb` one for a managed store.
//!
//! # A call
//!
//! A layer gives a store the [`Ask`]s of one request, and the store returns a [`Check`]: the
//! [`Decisions`], one for each ask in order, or a future of them. A store that decides at once has
//! the future [`Never`], so its calls [never wait](NeverWaits). All asks of a call are spent, or
//! none. [`OwnedAsks`] outlive the call. A state has the name [`StateKey`].
//!
//! A [`Settlement`] corrects the charge of an earlier call. Fleets push units that a node admitted
//! by itself as [`Delta`]s, numbered by [`Batch`], and pull the states ([`Pulled`]); the store also
//! counts the nodes ([`NodeCounts`]). That is a [`FleetStore`], which the stores in the table
//! above implement but for [`Transactional`]. Other stores return themselves from
//! [`fleet`](super::Store::fleet), or leave it out.
//!
//! A wrapper of a store passes the methods on that it does not change by [`delegate!`](delegate).
//!
//! # Test it
//!
//! The [conformance suite](crate::testing::conformance) calls a store, and reports the laws that it
//! breaks.
//!
// Without its feature, a name leads to the table of features.
#![cfg_attr(
    not(feature = "redis"),
    doc = "[`Evaluate`]: crate#features
[`ScriptStore`]: crate#features"
)]
#![cfg_attr(
    not(feature = "tokio"),
    doc = "[`CasStore`]: crate#features
[`CompareAndSwap`]: crate#features
[`CounterStore`]: crate#features
[`Increment`]: crate#features"
)]

pub use super::{
    ask::{Ask, OwnedAsks, Settlement},
    check::{Check, Never, NeverWaits},
    delta::{Batch, Delta, Pulled},
    local::Lines,
    names::StateKey,
    node_counts::NodeCounts,
    traits::{FleetStore, Renewed, StoreId},
    transactional::{Change, Transact, Transaction, Transactional},
};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use super::{
    cas::{CasStore, CasStoreBuilder, CompareAndSwap, Loaded, Swap, Swapped},
    counter::{CounterStore, CounterStoreBuilder, Increment, Totals},
};
#[doc(inline)]
pub use crate::__delegate as delegate;
pub use crate::decision::Decisions;

#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use super::script::{Evaluate, Program, ScriptStore};
