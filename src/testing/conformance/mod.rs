//! A conformance suite for stores.
//!
//! [`Suite`] calls a store through its [`Store`](crate::store::Store) trait and compares each answer with the decision of the
//! rule at the [instant of the answer](crate::Decision::at). So it depends neither on the store's storage nor on its clock.
//! The page of [`testing`](super) has examples.
//!
//! # Settings
//!
//! | | for | without it |
//! |---|---|---|
//! | [`clock`](Suite::clock) or [`sleep`](Suite::sleep) | waiting, [`Law::Wait`] | that law cannot be checked |
//! | [`sleep`](Suite::sleep) | reporting a call that never ends | the test hangs |
//! | [`spawn`](Suite::spawn) | concurrent callers, [`Law::Race`] | that law cannot be checked |
//! | [`fault`](Suite::fault) | stores that fail, [`Law::Fault`] | that law is left out |
//!
//! A law that cannot be checked is an error, as a broken one is, unless it is [left out](Suite::without).
//!
//! # Stores
//!
//! | store | suite |
//! |---|---|
//! | memory, with a clock of the application | `Suite::new(store).clock(clock).spawn(tokio::spawn)` |
//! | a server that runs a script, or compares and swaps | `Suite::new(store).sleep(tokio::time::sleep).spawn(tokio::spawn)`; [`resolution`](Suite::resolution) if its clock is coarser than nanoseconds |
//! | counters | [`with_rules`](Suite::with_rules) that it supports; [`settling_back`](Suite::settling_back); [`without`](Suite::without) the laws that it does not keep |
//! | leases | [`tolerance`](Suite::tolerance) of the units that a node may hold unused |
//! | periodic synchronisation | `tolerance` of the units that nodes may admit between two of them |
//! | one of those that processes share | once more with [`Alternating`](super::Alternating) around two connections: a store may combine the calls of one connection, which then never [race](Law::Race) |
//! | a wrapper | around a [`Faulty`](super::Faulty) store in memory, switched by the suite's [`fault`](Suite::fault) |

mod checker;
mod compare;
mod law;
mod laws;
mod model;
mod poll;
mod report;
mod rules;
mod settings;
mod spawn;
mod subject;
mod suite;
mod tested;

pub use self::{
    law::Law,
    report::{Broken, Report},
    suite::Suite,
};
