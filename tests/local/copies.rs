//! The store in memory does not copy long states, such as logs: a rule counts the copies of its
//! state.

use std::cell::Cell;

use proptest::prelude::*;
use tollgate::{
    Charge, Cost, Policy, SlidingLog, Timestamp, TokenBucket,
    algorithm::{Algorithm, Step},
    store::{
        Local, LocalBuilder, Store,
        driver::{Ask, Check, Decisions, Settlement},
    },
    time::ManualClock,
};

type SlidingLogState = <SlidingLog as Algorithm>::State;

thread_local! {
    static COPIES: Cell<u64> = const { Cell::new(0) };
}

/// Decides as a log.
#[derive(Clone, Debug)]
struct Watched(SlidingLog);

/// A log that counts its copies.
struct Log(SlidingLogState);

impl Clone for Log {
    fn clone(&self) -> Self {
        COPIES.set(COPIES.get() + 1);
        Self(self.0.clone())
    }
}

/// Changes the log in the state.
fn with<T>(state: &mut Option<Log>, work: impl FnOnce(&mut Option<SlidingLogState>) -> T) -> T {
    let mut log = state.take().map(|log| log.0);
    let done = work(&mut log);
    *state = log.map(Log);
    done
}

impl Algorithm for Watched {
    type State = Log;

    fn step(&self, state: &mut Option<Log>, now: Timestamp, cost: Cost) -> Step {
        with(state, |log| self.0.step(log, now, cost))
    }

    fn look(&self, state: Option<&Log>, now: Timestamp) -> tollgate::Decision {
        self.0.look(state.map(|log| &log.0), now)
    }

    fn settle(&self, state: &mut Option<Log>, charge: &Charge, now: Timestamp, actual: u64) {
        with(state, |log| self.0.settle(log, charge, now, actual));
    }

    fn forgettable_at(&self, state: &Log) -> Timestamp {
        self.0.forgettable_at(&state.0)
    }
}

/// The number of copies that `work` makes.
fn copies<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = COPIES.get();
    let done = work();
    (COPIES.get() - before, done)
}

fn acquire<A: Algorithm>(store: &Local<A, ManualClock>, asks: &[Ask<'_, A>]) -> Decisions {
    match store.acquire(asks) {
        Check::Ready(Ok(decisions)) => decisions,
        Check::Pending(_) => unreachable!("memory answers at once"),
    }
}

fn store<A: Algorithm>() -> Local<A, ManualClock> {
    LocalBuilder::new().clock(ManualClock::default()).build()
}

/// Of one rule, of pairs, and of pairs of pairs.
fn nothing_is_copied<A: Algorithm>(rule: &A) {
    let store = store();
    let policies = ["a", "b", "c"].map(Policy::new);
    let ask = |policy, cost| Ask::new(policy, rule, "key".into(), Cost::new(cost).unwrap());
    let [a, b, c] = &policies;
    for _ in 0..7 {
        assert!(store.decide(&ask(a, 1)).is_admitted());
    }
    let (admitted, charged) = copies(|| {
        assert!(acquire(&store, &[ask(a, 1), ask(b, 1), ask(c, 1)]).is_admitted());
        store.decide(&ask(a, 1))
    });
    let (refused, _) = copies(|| {
        assert!(!acquire(&store, &[ask(a, 5), ask(b, 1)]).is_admitted());
        assert!(!acquire(&store, &[ask(b, 1), ask(a, 5), ask(a, 6)]).is_admitted());
        assert!(!store.decide(&ask(a, 5)).is_admitted());
    });
    let (looked, left) = copies(|| store.look(a, rule, &"key".into()).remaining());
    let (settled, _) = copies(|| {
        for actual in [0, 3] {
            let charge = { charged }.take_charge().unwrap();
            let settlement = Settlement::new(a, rule, "key".into(), charge, actual).unwrap();
            assert!(matches!(
                store.settle(vec![settlement]),
                Check::Ready(Ok(()))
            ));
        }
    });
    assert_eq!(left, Some(1));
    assert_eq!((admitted, refused, looked, settled), (0, 0, 0, 0));
    // A key that is asked for twice: the first ask may pass, and the second be refused.
    let (twice, _) = copies(|| assert!(acquire(&store, &[ask(b, 1), ask(b, 1)]).is_admitted()));
    assert!(twice > 0, "nothing counts the copies");
}

#[test]
fn no_request_copies_a_state_in_the_map_but_one_that_asks_for_a_key_twice() {
    let rule = Watched(SlidingLog::per_minute(10));
    nothing_is_copied(&rule);
    nothing_is_copied(&(rule.clone(), rule.clone()));
    nothing_is_copied(&(rule.clone(), (TokenBucket::per_minute(10), rule.clone())));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Asks that come together are spent as one by one, or not at all, whichever keys are named how
    /// often.
    #[test]
    fn asks_together_spend_what_they_would_one_by_one_or_nothing(
        requests in prop::collection::vec(prop::collection::vec((0..3_u64, 0..2_usize, 1..5_u64), 1..5), 1..20),
    ) {
        let rules = [SlidingLog::per_minute(20), SlidingLog::per_minute(9)].map(Watched);
        let (together, one_by_one, policy) = (store(), store(), Policy::default());
        for request in requests {
            let asks = request.iter().map(|&(key, rule, cost)| {
                Ask::new(&policy, &rules[rule], key.into(), Cost::new(cost).unwrap())
            });
            let asks: Vec<_> = asks.collect();
            let decisions = acquire(&together, &asks);
            // One log to a key: the units that passed are all that it holds.
            let mut spent = [0; 3];
            let passes = request.iter().all(|&(key, rule, cost)| {
                let left = one_by_one.look(&policy, &rules[rule], &key.into()).remaining();
                let passes = left.is_some_and(|left| left >= spent[key as usize] + cost);
                spent[key as usize] += cost;
                passes
            });
            prop_assert_eq!(decisions.is_admitted(), passes, "{:?}", request);
            if passes {
                for (ask, decision) in asks.iter().zip(decisions.as_slice()) {
                    prop_assert_eq!(one_by_one.decide(ask), *decision);
                }
            }
            for (key, rule) in (0..3_u64).flat_map(|key| [(key, &rules[0]), (key, &rules[1])]) {
                let look = |store: &Local<_, _>| store.look(&policy, rule, &key.into());
                prop_assert_eq!(look(&together), look(&one_by_one));
            }
        }
    }
}
