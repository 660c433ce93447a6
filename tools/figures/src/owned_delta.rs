//! A delta that travels.

use std::time::Duration;

use tollgate::{
    AnyRule, Charge, Timestamp,
    algorithm::Algorithm,
    store::driver::{Batch, Delta, StateKey},
};

pub(crate) type State = <AnyRule as Algorithm>::State;

/// Units that a node admitted by itself, or a question for the state alone.
pub(crate) struct OwnedDelta {
    pub(crate) key: StateKey,
    pub(crate) rule: AnyRule,
    pub(crate) batch: Batch,
    pub(crate) age: Duration,
    pub(crate) units: u64,
}

impl OwnedDelta {
    pub(crate) fn new(delta: &Delta<'_, AnyRule>) -> Self {
        Self {
            key: delta.state_key(),
            rule: delta.rule_for_key().unwrap_or_else(|| delta.rule().clone()),
            batch: delta.batch(),
            age: delta.age(),
            units: delta.units(),
        }
    }

    /// Adds the units as of the instant of the first one, if the delta arrives `now`.
    pub(crate) fn add_to(&self, state: &mut Option<State>, now: Timestamp) {
        let at = now.saturating_sub(self.age);
        let charge = Charge::new(at, 0);
        self.rule.settle(state, &charge, at, self.units);
    }
}
