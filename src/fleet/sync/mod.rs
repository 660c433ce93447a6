//! Background synchronisation: what a node knows of a key, what it admitted that the store does not
//! know yet, and when to push it.
//!
//! Nothing here reads a clock or does I/O: each function takes the time, and returns what the
//! caller has to do. So the store wrapper [`Synced`](crate::store::Synced) and a simulation run the
//! same code.
//!
//! # Why the bound is (N − 1) · U
//!
//! A node that may not go further ahead pushes to the store first, and decides on its answer. The
//! node that admits last knows all but what the others have not pushed: U each. A call that costs
//! more than U, or that has waited four times, is decided by the store, and nothing is admitted
//! here meanwhile; otherwise that node would be two things at once, ahead of the store and behind
//! it. A pull that was under way at that time is thrown away: random schedules found a node that
//! took it for the state afterwards.
//!
//! A node decides by the rule itself, on its view of the state. So refusals, waits and headers are
//! those of the rule, and a store needs one function, which takes deltas and returns states. The
//! alternatives were verdicts, which differ between nodes in ways that nobody can bound, and
//! counters beside the rule, which would be a second rule.
//!
//! After `flush` a node admits nothing by itself, not even offline: the process is about to end,
//! and nobody would push to the store. So such a call fails, and the outer wrapper decides. To go
//! on until the end would lose units without a count.
//!
//! A fallback that repays is an overshoot of 0. The store decides while it can be reached, the same
//! view takes what was admitted in an outage, and the same deltas push it. `fall_back_to` serves
//! rules and stores of any kind.

use std::time::Duration;

mod estimates;
mod offline;
#[cfg(test)]
mod proof;
mod schedule;
mod unsent;
mod view;
mod views;

pub(crate) use self::{
    schedule::{Due, MAX_DELTAS, Schedule, together},
    unsent::Unsent,
    view::{KeyView, ViewOutcome},
    views::{ViewEntry, Views},
};

/// The bound by which a node may decide alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// Another one for each rule, so that equal rules need not be compared.
    pub(crate) number: u64,
    /// The most units that the store does not know yet.
    pub(crate) most: u64,
    /// The usual time between two synchronisations of a key.
    pub(crate) period: Duration,
    /// The nodes that share the limit; `None` while it is not known.
    pub(crate) nodes: Option<u64>,
    /// `true` once the node may admit nothing by itself, because nobody would push to the store.
    pub(crate) is_closed: bool,
}
