//! A key under Guava's form, call by call.

use std::time::Duration;

use tollgate::{
    Cost, Timestamp,
    algorithm::{Algorithm, WarmUpSpaced},
};

use super::seconds::NOON;

/// A key and a client that calls again as soon as its call departs.
pub(super) struct Spaced {
    rule: WarmUpSpaced,
    state: Option<<WarmUpSpaced as Algorithm>::State>,
    now: Timestamp,
    /// The beginning of the next second.
    second: Timestamp,
}

impl Spaced {
    pub(super) fn new(rule: WarmUpSpaced) -> Self {
        Self {
            rule,
            state: None,
            now: NOON,
            second: NOON,
        }
    }

    /// Returns the departures in each of the next seconds.
    pub(super) fn under_load(&mut self, seconds: u64) -> Vec<u64> {
        let second = Duration::from_secs(1);
        let mut departures = Vec::new();
        for _ in 0..seconds {
            let end = self.second.saturating_add(second);
            let mut departed = 0;
            while let Some(next) = self.next().filter(|next| *next < end) {
                self.now = next;
                self.rule.step(&mut self.state, next, Cost::ONE);
                departed += 1;
            }
            departures.push(departed);
            self.second = end;
        }
        departures
    }

    /// Lets seconds pass without calls.
    pub(super) fn rest(&mut self, seconds: u64) {
        self.second = self.second.saturating_add(Duration::from_secs(seconds));
        self.now = self.second;
    }

    /// Returns when a call would depart; `None` if it would be refused.
    fn next(&self) -> Option<Timestamp> {
        let mut state = self.state;
        let mut decision = self.rule.step(&mut state, self.now, Cost::ONE).decision();
        let delay = decision.take_charge()?.delay?;
        Some(self.now.saturating_add(delay))
    }
}
