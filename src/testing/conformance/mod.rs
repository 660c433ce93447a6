//! The suite that tells whether a store is right.
//!
//! [`Suite`] calls a store through its [`Store`](crate::store::Store) trait alone, and compares each answer with what the rule itself
//! decides at the instant that the answer [tells](crate::Decision::at): so it needs to know neither where the store keeps
//! its state nor what time it is there. The page of [`testing`](super) shows how it is used.
//!
//! # What it has to be given
//!
//! | | for | without it |
//! |---|---|---|
//! | [`clock`](Suite::clock) or [`sleep`](Suite::sleep) | waiting, [`Law::Wait`] | that law cannot be checked |
//! | [`sleep`](Suite::sleep) | a call that never ends | the test hangs, instead of telling |
//! | [`spawn`](Suite::spawn) | callers at once, [`Law::Race`] | that law cannot be checked |
//! | [`fault`](Suite::fault) | stores that fail, [`Law::Fault`] | that law is left out |
//!
//! A law that cannot be checked is an error like one that is broken: leave it out by name.
//!
//! # For each class of stores
//!
//! | store | suite |
//! |---|---|
//! | memory, by a clock that it is given | `Suite::new(store).clock(clock).spawn(tokio::spawn)` |
//! | a server that runs a script, or compares and swaps | `Suite::new(store).sleep(tokio::time::sleep).spawn(tokio::spawn)`; [`resolution`](Suite::resolution) where its clock tells no nanoseconds |
//! | counters | [`with_rules`](Suite::with_rules) that it can count; [`settling_back`](Suite::settling_back); [`without`](Suite::without) what it does not do |
//! | leases | [`missing_by`](Suite::missing_by) what a node may hold unused |
//! | synchronised now and then | `missing_by` what nodes may admit meanwhile |
//! | a wrapper | around a [`Faulty`](super::Faulty) store in memory, whose faults are the suite's [`fault`](Suite::fault) |

mod answer;
mod bench;
mod law;
mod laws;
mod model;
mod place;
mod poll;
mod report;
mod rules;
mod spawn;
mod suite;

pub use self::{
    law::Law,
    report::{Broken, Report},
    suite::Suite,
};
