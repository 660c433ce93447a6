//! What counters come to, and what a rule makes of it.

use super::place::{Asked, Slices};
use crate::{algorithm::Counted, decision::Decision, time::Timestamp};

/// The totals of the slices that a call concerns, without what the call itself has added.
pub(super) struct Found {
    pub(super) now: Timestamp,
    pub(super) slices: Slices,
    /// The newest first, as many as there are slices.
    pub(super) totals: Vec<u64>,
}

impl Found {
    /// The state of the key, as the rule has it.
    ///
    /// A slice ahead in which something is counted has begun for some host: time then stands at its beginning
    /// for this key, until the clock of this host has caught up.
    fn state<Rule: Counted>(&self, asked: &Asked<Rule>) -> Option<Rule::State> {
        let ahead = self.slices.ahead();
        let begun = self.totals.iter().take(ahead).position(|total| *total > 0);
        let (first, at) = match begun {
            Some(first) => (first, asked.place.slicing.begin(self.slices.nth(first))),
            None => (ahead, self.now),
        };
        let totals = self.totals.get(first..).unwrap_or_default();
        asked.rule.state_of_totals(totals, at)
    }

    /// The answer to spending.
    pub(super) fn step<Rule: Counted>(&self, asked: &Asked<Rule>) -> Decision {
        let mut state = self.state(asked);
        asked.rule.step(&mut state, self.now, asked.cost).decision()
    }

    /// The answer to a look.
    pub(super) fn look<Rule: Counted>(&self, asked: &Asked<Rule>) -> Decision {
        asked.rule.look(self.state(asked).as_ref(), self.now)
    }

    /// How the key stands, where it was asked together with others and one of them is refused: its own refusal, or a look.
    pub(super) fn stand<Rule: Counted>(&self, asked: &Asked<Rule>) -> Decision {
        let step = self.step(asked);
        if step.is_admitted() {
            self.look(asked)
        } else {
            step
        }
    }
}
