//! A state, and the time at which it expires.

use crate::{
    algorithm::{Algorithm, Step},
    decision::Cost,
    store::Settlement,
    time::Timestamp,
};

/// The state of a key in the map.
///
/// Rules travel with the calls, so several rules may charge one key. A bucket that is full under a short rule may not be full
/// under a longer one. So a slot expires when no rule that charged it sees a debt in it.
#[derive(Clone)]
pub(super) struct MapSlot<S> {
    pub(super) state: Option<S>,
    until: Timestamp,
}

impl<S> MapSlot<S> {
    /// Creates a slot that does not expire before `until`, whichever rules write it from now on.
    pub(super) fn until(state: Option<S>, until: Timestamp) -> Self {
        Self { state, until }
    }

    /// Creates the slot of a key that only `rule` has charged.
    pub(super) fn of<A: Algorithm<State = S>>(state: S, rule: &A) -> Self {
        Self {
            until: rule.forgettable_at(&state),
            state: Some(state),
        }
    }

    /// Returns the time from which on the state no longer matters to any rule that charged it.
    pub(super) fn expires_at(&self) -> Timestamp {
        self.until
    }

    /// Returns `true` if the state no longer matters to any rule that charged it.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        // The last instant means never.
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

    /// Corrects a charge. Returns `true` if the state mattered to the rule, before or after.
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
        // A state that no longer matters to this rule has no units to give back under it. It may still matter to another rule.
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

    /// Returns `true` if a settlement gives nothing back because too many did before.
    pub(super) fn forgets<A: Algorithm<State = S>>(
        &self,
        settlement: &Settlement<'_, A>,
        now: Timestamp,
    ) -> bool {
        let (charge, actual) = (&settlement.charge, settlement.actual);
        settlement
            .rule
            .forgets(self.state.as_ref(), charge, now, actual)
    }

    /// Returns the time until which the state matters to a rule.
    fn matters_until<A: Algorithm<State = S>>(&self, rule: &A) -> Timestamp {
        let state = self.state.as_ref();
        state.map_or(Timestamp::default(), |state| rule.forgettable_at(state))
    }

    /// Updates the expiry after a rule wrote the state. The state mattered to that rule until `before`, and now matters to it
    /// until `after`.
    fn extend_until(&mut self, before: Timestamp, after: Timestamp, now: Timestamp) {
        let [until, before, after, now] = [self.until, before, after, now].map(Timestamp::as_nanos);
        self.until = Timestamp::from_nanos(match self.state {
            Some(_) => postponed(until, before, after, now),
            None => after,
        });
    }
}

/// Returns the expiry of a state, which was `until`, after a rule wrote it. It mattered to that rule until `before`, and now matters to it
/// until `after`.
#[inline]
pub(super) fn postponed(until: u64, before: u64, after: u64, now: u64) -> u64 {
    if until <= before.max(now) {
        // It matters to no other rule for longer.
        after
    } else {
        // A charge postpones the expiry under longer rules by the same span. A refund does not change it.
        after.max(until.saturating_add(after.saturating_sub(before)))
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
        // Once the other rule no longer matters, the expiry is that of this rule alone.
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
                is_grant: false,
            };
            assert!(slot.settle(&settlement, at(0)));
            assert_eq!(slot.until, at(96));
        }
    }
}
