//! The totals of a key, and the decision that follows.

use super::counter_set::{CounterAsk, Slices};
use crate::{
    algorithm::Counted,
    decision::{Cost, Decision},
    time::Timestamp,
};

/// The totals of the slices that a call concerns, without what the call itself has added.
pub(super) struct SliceTotals {
    pub(super) now: Timestamp,
    pub(super) slices: Slices,
    /// One for each slice, the newest first.
    pub(super) totals: Vec<u64>,
}

impl SliceTotals {
    /// Returns the state of the key for the rule.
    ///
    /// A slice ahead in which something is counted has begun for some host: time then stands at its beginning
    /// for this key, until the clock of this host has caught up.
    pub(super) fn state<Rule: Counted>(&self, asked: &CounterAsk<Rule>) -> Option<Rule::State> {
        let ahead = self.slices.ahead();
        let begun = self.totals.iter().take(ahead).position(|total| *total > 0);
        let (first, at) = match begun {
            Some(first) => (first, asked.place.slicing.begin(self.slices.nth(first))),
            None => (ahead, self.now),
        };
        let totals = self.totals.get(first..).unwrap_or_default();
        asked.rule.state_of_totals(totals, at)
    }

    /// Returns what a call spends of what it has added, if the cost passes.
    pub(super) fn granted<Rule: Counted>(&self, asked: &CounterAsk<Rule>) -> Cost {
        let cost = asked.cost.get();
        if asked.added == cost {
            return asked.cost;
        }
        let remaining = self.look(asked).remaining().unwrap_or(0);
        Cost::new(asked.added.min(remaining).max(cost)).unwrap_or(asked.cost)
    }

    /// Returns the answer to a call that spends `cost`.
    pub(super) fn step<Rule: Counted>(&self, asked: &CounterAsk<Rule>, cost: Cost) -> Decision {
        let mut state = self.state(asked);
        asked.rule.step(&mut state, self.now, cost).decision()
    }

    /// Returns the answer to a look.
    pub(super) fn look<Rule: Counted>(&self, asked: &CounterAsk<Rule>) -> Decision {
        asked.rule.look(self.state(asked).as_ref(), self.now)
    }

    /// Returns the answer if another ask of the call may be refused: the refusal of this ask, or a look.
    pub(super) fn stand<Rule: Counted>(&self, asked: &CounterAsk<Rule>) -> Decision {
        let step = self.step(asked, asked.cost);
        if step.is_admitted() {
            self.look(asked)
        } else {
            step
        }
    }
}
