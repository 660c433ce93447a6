//! What is written to the topics, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate::{
    AnyRule, Charge, Timestamp,
    algorithm::{Algorithm, Codec},
};

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
    /// What was charged before, and is charged now: a delta has charged nothing before, and a refund has charged more.
    pub(crate) charged: u64,
    pub(crate) actual: u64,
    /// The state is removed.
    pub(crate) is_reset: bool,
}

/// The state of a key, with the last change of each node that is in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Total {
    pub(crate) state: Option<Vec<u8>>,
    pub(crate) last: BTreeMap<u64, u64>,
    /// When it was written, by the clock of the aggregator.
    pub(crate) at: u64,
    /// When the key is like new.
    pub(crate) until: u64,
}

/// The key of the totals topic under which the aggregator says that it lives.
pub(crate) const HEARTBEAT: &str = "heartbeat";

pub(crate) type State = <AnyRule as Algorithm>::State;

impl Change {
    /// Applies the change to a state, unless its rule cannot be read.
    pub(crate) fn apply(&self, state: &mut Option<State>) {
        if self.is_reset {
            *state = None;
            return;
        }
        let Ok(rule) = self.rule.parse::<AnyRule>() else {
            return;
        };
        let at = Timestamp::from_nanos(self.at);
        rule.settle(state, &Charge::new(at, self.charged), at, self.actual);
    }
}

impl Total {
    pub(crate) fn state(&self) -> Option<State> {
        let bytes = self.state.as_deref()?;
        State::from_bytes(bytes).ok()
    }

    /// Takes in a change. Returns `false` if it is in the total already.
    pub(crate) fn take_in(&mut self, change: &Change) -> bool {
        let last = self.last.entry(change.node).or_default();
        if change.number <= *last {
            return false;
        }
        *last = change.number;
        let mut state = self.state();
        change.apply(&mut state);
        let rule = change.rule.parse::<AnyRule>().ok();
        if let (Some(rule), Some(state)) = (rule, &state) {
            self.until = self.until.max(rule.forgettable_at(state).as_nanos());
        }
        self.state = state.map(|state| state.to_bytes());
        true
    }
}
