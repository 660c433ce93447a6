//! Bugs that random schedules found, each as a few calls of one node: charges that are corrected,
//! and clocks that step back.

use std::time::Duration;

use super::{bound, rules::bucket};
use crate::{
    TokenBucket,
    algorithm::Algorithm,
    decision::{Charge, Cost},
    fleet::sync::{Bound, KeyView, ViewOutcome},
    time::Timestamp,
};

const SECOND: u64 = 1_000_000_000;

/// The clock of the store is far ahead.
fn there(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(1_000 * SECOND + nanos)
}

fn here(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(100 * SECOND + nanos)
}

/// A node, and the bucket of the store: 20 units, and 10 a second. A call to the store takes no
/// time.
struct Alone {
    rule: TokenBucket,
    bound: Bound,
    view: KeyView<TokenBucket>,
    state: Option<<TokenBucket as Algorithm>::State>,
    number: u64,
}

impl Alone {
    /// A node that has asked for the key at the instant 0.
    fn new() -> Self {
        let (rule, _) = bucket(10, 20);
        let bound = bound(100);
        let mut alone = Self {
            rule,
            bound,
            view: KeyView::new(rule, here(0)),
            state: None,
            number: 0,
        };
        let call = (Cost::ONE, false);
        let tried = alone.view.acquire(&rule, here(0), call, &bound);
        assert!(matches!(tried, ViewOutcome::Sync));
        alone.tell(here(0), there(0));
        alone
    }

    /// Spends units, which must be admitted.
    fn spend(&mut self, now: Timestamp, units: u64) -> Charge {
        let call = (Cost::new(units).unwrap(), false);
        match self.view.acquire(&self.rule, now, call, &self.bound) {
            ViewOutcome::Decided(mut decision) => decision.take_charge().unwrap(),
            tried => panic!("{tried:?}"),
        }
    }

    /// Corrects a charge. Returns the units that the store has to refund.
    fn settle(&mut self, now: Timestamp, charge: &Charge, actual: u64) -> u64 {
        let (rule, bound) = (self.rule, self.bound);
        self.view.settle(&rule, charge, actual, now, &bound)
    }

    /// Pushes to the store, and pulls its state.
    fn tell(&mut self, now: Timestamp, at: Timestamp) {
        let number = &mut self.number;
        let unsent = self.view.send(now, || {
            *number += 1;
            *number
        });
        for unsent in unsent {
            let at = at.saturating_sub(now.saturating_since(unsent.at));
            let charge = Charge::new(at, 0);
            self.rule.settle(&mut self.state, &charge, at, unsent.units);
        }
        self.view.answered((now, at, now), self.state, &self.bound);
    }

    /// Returns what remains, as the store knows it.
    fn in_store(&self, at: Timestamp) -> u64 {
        let look = self.rule.look(self.state.as_ref(), at);
        look.remaining().unwrap()
    }

    fn here(&self, now: Timestamp) -> u64 {
        let look = self.view.look(&self.rule, now).unwrap();
        look.remaining().unwrap()
    }
}

/// A delta of two calls, the first of which is refunded: pushed from its instant on, the units of
/// the second one were refilled before they were spent, and the node admitted them again.
#[test]
fn a_refund_lets_no_later_unit_count_earlier() {
    let mut alone = Alone::new();
    let charge = alone.spend(here(0), 10);
    alone.spend(here(SECOND * 9 / 10), 5);
    assert_eq!(alone.settle(here(SECOND * 95 / 100), &charge, 0), 0);
    alone.tell(here(SECOND), there(SECOND));
    let exact = 15 + 1;
    assert!(alone.in_store(there(SECOND)) <= exact);
    assert!(alone.here(here(SECOND)) <= exact);
    assert!(
        alone.in_store(there(SECOND)) >= exact - 1,
        "nothing is lost but the refill since the last unit"
    );
}

/// A call that costs more in the end, after the bucket was full again: pushed with what was spent
/// before, all of it was refilled.
#[test]
fn a_charge_above_the_estimate_counts_from_its_own_instant() {
    let mut alone = Alone::new();
    let charge = alone.spend(here(0), 5);
    let later = 10 * SECOND;
    assert_eq!(alone.settle(here(later), &charge, 8), 0);
    alone.spend(here(later), 12);
    alone.tell(here(later), there(later));
    assert_eq!(alone.in_store(there(later)), 20 - 3 - 12);
}

/// The clock of the store steps back, so that a call which was pushed long ago seems later than one
/// that was not pushed. Its refund is no part of that.
#[test]
fn a_refund_of_what_was_told_is_not_taken_from_what_was_not() {
    let mut alone = Alone::new();
    let charge = alone.spend(here(SECOND), 10);
    alone.tell(here(SECOND), there(SECOND));
    // By 10 s. What was pushed is refilled before the next call.
    let back = |nanos| there(nanos).saturating_sub(Duration::from_secs(10));
    alone.state = None;
    alone.tell(here(2 * SECOND), back(2 * SECOND));
    alone.spend(here(3 * SECOND), 8);
    assert_eq!(alone.settle(here(4 * SECOND), &charge, 0), 10);
    assert_eq!(alone.view.unsynced(), 8);
}

/// Units that were spent before the clock of the node stepped back lie in its future, where a
/// bucket would be full: an answer counted them from there.
#[test]
fn units_of_before_a_step_back_fill_no_bucket() {
    let mut alone = Alone::new();
    alone.spend(here(5 * SECOND), 15);
    alone.view.send(here(5 * SECOND), || 1);
    alone.spend(here(5 * SECOND), 5);
    // The store took the first call in, and the answer comes after a step back by 3 s.
    let at = there(5 * SECOND);
    alone
        .rule
        .settle(&mut alone.state, &Charge::new(at, 0), at, 15);
    let now = here(2 * SECOND);
    alone
        .view
        .answered((now, at, now), alone.state, &alone.bound);
    assert_eq!(alone.here(now), 0);
}

/// A node whose clock steps back by an hour, on a key that refuses: it asks the store at once,
/// instead of in an hour.
#[test]
fn a_step_back_has_the_store_asked() {
    const HOUR: u64 = 3600 * SECOND;
    let mut alone = Alone::new();
    alone.view.clear_due();
    alone.tell(here(HOUR), there(HOUR));
    alone.spend(here(HOUR), 20);
    let (rule, bound) = (alone.rule, alone.bound);
    let refuse = |alone: &mut Alone, now| {
        let tried = alone.view.acquire(&rule, now, (Cost::ONE, false), &bound);
        assert!(matches!(tried, ViewOutcome::Decided(decision) if !decision.is_admitted()));
    };
    refuse(&mut alone, here(HOUR));
    alone.tell(here(HOUR), there(HOUR));
    refuse(&mut alone, here(HOUR + 1));
    assert!(alone.view.due() > here(HOUR));
    refuse(&mut alone, here(0));
    assert_eq!(alone.view.due(), here(0));
    alone.tell(here(0), there(HOUR + SECOND));
    assert_eq!(alone.here(here(0)), 10);
}
