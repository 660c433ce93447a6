//! The states of all keys on one machine.

use tollgate::{AnyRule, Charge, Cost, algorithm::Algorithm};

use crate::{
    owned_delta::State,
    timeline::{Instant, Timeline},
};

/// The states of keys, which are numbers from 0 on, under the real rule.
pub(super) struct States {
    rule: AnyRule,
    of_key: Vec<Option<State>>,
}

impl States {
    pub(super) fn new(rule: &AnyRule, keys: u64) -> Self {
        Self {
            rule: rule.clone(),
            of_key: vec![None; keys as usize],
        }
    }

    /// Spends one unit if the rule allows it. Returns `true` if it does.
    pub(super) fn decide(&mut self, key: u64, now: Instant) -> bool {
        let state = &mut self.of_key[key as usize];
        let step = self.rule.step(state, Timeline::timestamp(now), Cost::ONE);
        step.decision().is_admitted()
    }

    /// Charges units that were admitted elsewhere, even into debt.
    pub(super) fn charge(&mut self, key: u64, now: Instant, units: u64) {
        let now = Timeline::timestamp(now);
        let state = &mut self.of_key[key as usize];
        self.rule.settle(state, &Charge::new(now, 0), now, units);
    }

    pub(super) fn get(&self, key: u64) -> Option<State> {
        self.of_key[key as usize].clone()
    }

    pub(super) fn set(&mut self, key: u64, state: Option<State>) {
        self.of_key[key as usize] = state;
    }
}
