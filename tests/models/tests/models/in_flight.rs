//! Calls in flight: states that shrink, so a charge of the wrong key would never be given back.

use std::time::Duration;

use models::{
    algorithm::InFlight,
    calls::{Store, beside, spend, store},
    model,
    store::local::Local,
    time::TestClock,
};

const K: u64 = 1;
const X: u64 = 2;

type Step = fn(&Store<InFlight>) -> u64;

fn rule() -> InFlight {
    InFlight::at_most(2)
}

fn held(store: &Store<InFlight>, key: u64) -> u64 {
    2 - store.remaining(&rule(), key).unwrap()
}

/// Returns 1 if a call begins.
fn begin(store: &Store<InFlight>) -> u64 {
    spend(store, &rule(), K, 1)
}

fn end(store: &Store<InFlight>) -> u64 {
    store.settle(&rule(), K, 0);
    0
}

#[test]
fn two_new_callers_of_one_key_hold_what_there_is() {
    model(1, || {
        let store = store(10);
        assert!(store.spend(&rule(), X));
        let two = |store: &Store<InFlight>| spend(store, &rule(), K, 2);
        let (this, other) = beside(&store, two, begin);
        assert_eq!((this + other, held(&store, K), store.len()), (2, 2, 2));
        assert!(store.are_all_in_table(&[K], &rule()));
    });
}

#[test]
fn callers_of_a_known_key_begin_and_end() {
    for (other, ended) in [(begin as Step, 0), (end, 1)] {
        model(2, move || {
            let store = store(10);
            assert_eq!(begin(&store), 1);
            let (this, other) = beside(&store, other, |store| begin(store) + begin(store));
            let held = held(&store, K);
            assert_eq!(held, 1 + this + other - ended);
            assert!(held <= 2 && this + other >= 1);
        });
    }
}

/// One of the threads holds the slot from the beginning, or takes the state to the map: a rule
/// with a maximal hold, and one with a larger limit.
#[test]
fn changes_under_a_lock_are_not_lost_either() {
    let several: Step = |store| u64::from(store.spend_all(&rule(), &[K, X]));
    let timed: Step = |store| {
        let rule = InFlight::at_most(2).max_hold(Duration::from_secs(1));
        spend(store, &rule, K, 1)
    };
    let large: Step = |store| spend(store, &InFlight::at_most(5000), K, 1);
    for change in [several, timed, large] {
        model(2, move || {
            let store = store(10);
            assert_eq!(begin(&store), 1);
            let ends_and_begins = |store: &Store<InFlight>| end(store) + begin(store);
            let (this, other) = beside(&store, change, ends_and_begins);
            assert_eq!((this, held(&store, K)), (other, this + other));
            assert_eq!(this, 1);
        });
    }
}

/// Homes that move to the new set, and that stay.
const MOVES: u64 = 1 | 1 << 32;
const STAYS: u64 = 2;

#[test]
fn a_key_that_moves_holds_what_its_calls_do() {
    for key in [MOVES, STAYS] {
        model(3, move || {
            let store = Local::of_one_set(&TestClock::still());
            assert!(store.spend(&rule(), key));
            let grow = |store: &Store<InFlight>| u64::from(store.grow());
            let (began, _) = beside(&store, grow, |store| {
                let began = spend(store, &rule(), key, 2);
                store.settle(&rule(), key, 0);
                began
            });
            assert_eq!((began, held(&store, key)), (1, 1));
            store.settle(&rule(), key, 0);
            assert_eq!(held(&store, key), 0);
            store.reset(key);
            assert_eq!(store.len(), 0, "in one slot");
        });
    }
}

/// The other key finds the slot that the first one left, and its state is equal.
#[test]
fn a_key_in_a_slot_that_was_left_holds_no_call_of_its_predecessor() {
    model(1, || {
        let store = Local::of_one_set(&TestClock::still());
        assert!(store.spend(&rule(), MOVES));
        let grows_and_fills = |store: &Store<InFlight>| {
            store.grow();
            spend(store, &rule(), STAYS, 1)
        };
        let begin = |store: &Store<InFlight>| spend(store, &rule(), MOVES, 1);
        let (this, other) = beside(&store, grows_and_fills, begin);
        assert_eq!((this, other), (1, 1));
        assert_eq!((held(&store, MOVES), held(&store, STAYS)), (2, 1));
    });
}

/// Nothing is held under a key, so another key may take its slot at the capacity.
#[test]
fn a_key_that_takes_a_slot_holds_only_its_own_calls() {
    model(2, || {
        let store = store(1);
        assert_eq!(begin(&store) + end(&store), 1);
        let comes = |store: &Store<InFlight>| spend(store, &rule(), X, 1);
        let (this, other) = beside(&store, comes, begin);
        assert_eq!((held(&store, K), held(&store, X)), (this, other));
        assert_eq!(this + other, 1);
    });
}

/// Also where each change is by several asks, and the time stands still.
#[test]
fn a_key_stays_in_its_slot() {
    model(0, || {
        let store = store(12);
        for _ in 0..40 {
            assert!(store.spend_all(&rule(), &[K, X]));
            assert!(store.are_all_in_table(&[K, X], &rule()));
            store.settle(&rule(), K, 0);
            store.settle(&rule(), X, 0);
        }
        assert_eq!((held(&store, K), held(&store, X)), (0, 0));
    });
}
