//! A state, and until when it must be remembered.

use crate::{
    algorithm::{Algorithm, Step},
    decision::Cost,
    store::Settlement,
    time::Timestamp,
};

/// What is kept of a key outside of the table.
///
/// Rules travel with the calls, so several rules may charge one key, and a bucket that is full to a short rule
/// is not full to a longer one. A slot is remembered until no rule that charged it sees a debt in it.
#[derive(Clone)]
pub(super) struct MapSlot<S> {
    pub(super) state: Option<S>,
    until: Timestamp,
}

impl<S> MapSlot<S> {
    /// A state that must be remembered until an instant, whatever the rules say that write it from now on.
    pub(super) fn until(state: Option<S>, until: Timestamp) -> Self {
        Self { state, until }
    }

    /// The state of a key that one rule alone has charged.
    pub(super) fn of<A: Algorithm<State = S>>(state: S, rule: &A) -> Self {
        Self {
            until: rule.forgettable_at(&state),
            state: Some(state),
        }
    }

    /// Whether it says nothing any more, to any rule that charged it.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        // The last instant stands for never.
        self.until <= now && self.until < Timestamp::MAX
    }

    pub(super) fn step<A: Algorithm<State = S>>(
        &mut self,
        rule: &A,
        now: Timestamp,
        cost: Cost,
    ) -> Step {
        let before = self.matters_until(rule);
        let step = rule.step(&mut self.state, now, cost);
        if let Step::Wrote(_) = step {
            self.extend_until(before, self.matters_until(rule), now);
        }
        step
    }

    /// Corrects a charge; tells whether the state said anything to the rule, before or after.
    pub(super) fn settle<A: Algorithm<State = S>>(
        &mut self,
        settlement: &Settlement<'_, A>,
        now: Timestamp,
    ) -> bool {
        let Settlement {
            rule,
            charge,
            actual,
            ..
        } = settlement;
        let before = self.matters_until(*rule);
        // A state that says nothing to this rule has nothing to give back to it. It may say something to another one.
        if before <= now && *actual <= charge.cost {
            return false;
        }
        rule.settle(&mut self.state, charge, now, *actual);
        let after = self.matters_until(*rule);
        if before.max(after) <= now {
            return false;
        }
        self.extend_until(before, after, now);
        true
    }

    /// Until when the state matters to a rule.
    fn matters_until<A: Algorithm<State = S>>(&self, rule: &A) -> Timestamp {
        let state = self.state.as_ref();
        state.map_or(Timestamp::default(), |state| rule.forgettable_at(state))
    }

    /// Moves the date: a rule to which the state mattered until `before` has written it, and now it matters to
    /// that rule until `after`.
    fn extend_until(&mut self, before: Timestamp, after: Timestamp, now: Timestamp) {
        self.until = if self.state.is_none() || self.until <= before.max(now) {
            // No rule sees it for longer than this one.
            after
        } else {
            // What was charged postpones by as much what longer rules see. What was given back does not move the date.
            let postponed = after.saturating_since(before);
            after.max(self.until.saturating_add(postponed))
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::{SlidingLog, TokenBucket},
        decision::Charge,
        key::Key,
        policy::Policy,
    };

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * SECOND)
    }

    fn step<A: Algorithm>(slot: &mut MapSlot<A::State>, rule: &A, seconds: u64, cost: u64) -> Step {
        slot.step(rule, at(seconds), Cost::new(cost).unwrap())
    }

    #[test]
    fn a_charge_by_a_shorter_rule_postpones_what_a_longer_one_sees() {
        let bucket = |burst| TokenBucket::per_second(1).burst(burst);
        let (long, short) = (bucket(100), bucket(5));
        let mut slot = MapSlot::until(None, Timestamp::default());
        step(&mut slot, &long, 0, 95);
        assert_eq!(slot.until, at(95));
        step(&mut slot, &short, 0, 5);
        assert_eq!(slot.until, at(100));
        for second in 1..50 {
            step(&mut slot, &short, second, 1);
            assert_eq!(slot.until, at(100 + second));
        }
        // Under one rule alone the date is that rule's own.
        step(&mut slot, &long, 200, 10);
        assert_eq!(slot.until, at(210));
    }

    #[test]
    fn a_log_is_remembered_for_the_longest_window_that_counts_it() {
        let (long, short) = (SlidingLog::per_minute(9), SlidingLog::per_second(9));
        let mut slot = MapSlot::until(None, Timestamp::default());
        step(&mut slot, &long, 0, 1);
        for second in [0, 10, 50] {
            step(&mut slot, &short, second, 1);
            assert_eq!(slot.until, at(60 + second));
        }
    }

    #[test]
    fn what_is_given_back_moves_no_date_that_another_rule_has_set() {
        let bucket = |burst| TokenBucket::per_second(1).burst(burst);
        for settled_by in [bucket(5), bucket(100)] {
            let mut slot = MapSlot::until(None, Timestamp::default());
            step(&mut slot, &bucket(100), 0, 95);
            step(&mut slot, &bucket(5), 0, 1);
            assert_eq!(slot.until, at(96));
            let settlement = Settlement {
                policy: &Policy::default(),
                rule: &settled_by,
                key: Key::GLOBAL,
                charge: Charge::new(at(0), 1),
                actual: 0,
            };
            assert!(slot.settle(&settlement, at(0)));
            assert_eq!(slot.until, at(96));
        }
    }
}
