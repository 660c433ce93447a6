//! The messages of nodes to the topic of deltas, as JSON.

use serde::{Deserialize, Serialize};
use tollgate::{
    AnyRule, Charge, Timestamp,
    algorithm::{Algorithm, FleetRule},
    key::Key,
};

pub(crate) type State = <AnyRule as Algorithm>::State;

/// A change of a key's state, which its node made once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) rule: String,
    /// A node has another number each time that it is started.
    pub(crate) node: u64,
    /// Greater than those of all earlier changes of the node to the key.
    pub(crate) number: u64,
    /// The instant of the charge by the clock of the node, in nanoseconds of Unix time.
    pub(crate) at: u64,
    /// The units that were charged before, and are charged now: a delta has charged nothing before,
    /// and a refund has charged more.
    pub(crate) charged: u64,
    pub(crate) actual: u64,
    /// The state is removed.
    pub(crate) is_reset: bool,
}

impl Change {
    /// Returns the rule, unless it cannot be read.
    pub(crate) fn rule(&self) -> Option<AnyRule> {
        self.rule.parse().ok()
    }

    /// Returns `true` if the change can be applied.
    pub(crate) fn is_readable(&self) -> bool {
        self.is_reset || self.rule().is_some()
    }

    /// Applies the change to a state, unless its rule cannot be read.
    pub(crate) fn apply(&self, state: &mut Option<State>) {
        if self.is_reset {
            *state = None;
            return;
        }
        let Some(rule) = self.rule() else {
            return;
        };
        let at = Timestamp::from_nanos(self.at);
        rule.settle(state, &Charge::new(at, self.charged), at, self.actual);
    }

    /// Returns the instant from which a state of this change alone is like none, in nanoseconds of
    /// Unix time.
    pub(crate) fn is_over_at(&self) -> Option<u64> {
        let mut state = None;
        self.apply(&mut state);
        Some(self.rule()?.forgettable_at(&state?).as_nanos())
    }

    /// Returns `true` if the units of both may be added as if all had been spent at the first.
    pub(crate) fn can_merge_with(&self, later: &Self) -> bool {
        let is_delta = |change: &Self| !change.is_reset && change.charged == 0;
        let (at, later_at) = (self.at, later.at);
        is_delta(self)
            && is_delta(later)
            && (self.node, &self.rule) == (later.node, &later.rule)
            && self.rule().is_some_and(|rule| {
                rule.can_merge(Timestamp::from_nanos(at), Timestamp::from_nanos(later_at))
            })
    }
}

/// Returns the partition of a key, of so many, in both topics. All nodes must return the same,
/// whatever their release.
pub(crate) fn partition_of(name: &str, partitions: i32) -> i32 {
    let count = u64::try_from(partitions).unwrap_or(1).max(1);
    i32::try_from(Key::from(name).digest() % count).unwrap_or(0)
}
