//! Keys of the map: single asks, under the lock of a slot alone, beside all that takes the lock of
//! a shard.

use std::time::Duration;

use loom::thread::spawn;
use models::{
    algorithm::{Algorithm, AnyRule, SlidingLog, TokenBucket},
    model,
    store::local::{AtCapacity, Local},
    time::TestClock,
};

const K: u64 = 1;
/// In another shard.
const X: u64 = 2;
/// In the shard of K.
const NEIGHBOUR: u64 = 5;

type Store<A = TokenBucket> = Local<A, TestClock>;

/// A bucket whose states are not packed: a new key begins with one token less.
fn bucket(burst: u64) -> TokenBucket {
    TokenBucket::per_second(1).burst(burst).initial(burst - 1)
}

/// A bucket of the same kind whose states are packed.
fn packed(burst: u64) -> TokenBucket {
    TokenBucket::per_second(1).burst(burst)
}

fn store<A: Algorithm>(capacity: usize) -> Store<A> {
    Store::new(capacity, AtCapacity::InheritDebts, &TestClock::still())
}

/// A store in which each of these keys has spent one token of the rule.
fn knowing<A: Algorithm>(rule: &A, keys: &[u64]) -> Store<A> {
    let store = store(10);
    assert!(keys.iter().all(|key| store.spend(rule, *key)));
    store
}

/// Returns how many of so many calls were admitted.
fn spend<A: Algorithm>(store: &Store<A>, rule: &A, key: u64, calls: u64) -> u64 {
    (0..calls).map(|_| u64::from(store.spend(rule, key))).sum()
}

/// Runs `other` in a thread of its own beside `this`.
fn beside<A: Algorithm, T: 'static, U>(
    store: &Store<A>,
    other: impl FnOnce(&Store<A>) -> T + 'static,
    this: impl FnOnce(&Store<A>) -> U,
) -> (U, T) {
    let of_the_other = store.clone();
    let other = spawn(move || other(&of_the_other));
    let this = this(store);
    (this, other.join().unwrap())
}

#[test]
fn two_threads_spend_what_there_is_and_no_more() {
    model(3, || {
        let store = knowing(&bucket(5), &[K]);
        let twice = |store: &Store| spend(store, &bucket(5), K, 2);
        let (this, other) = beside(&store, twice, twice);
        assert_eq!((this + other, store.len()), (3, 1));
        assert_eq!(store.remaining(&bucket(5), K), Some(0));
    });
}

/// Two tokens of K and X are left: the first call takes both.
#[test]
fn nobody_sees_several_keys_half_spent() {
    for keys in [[K, X], [X, K]] {
        model(3, move || {
            let store = knowing(&bucket(3), &[K, X]);
            let both = move |store: &Store| store.spend_all(&bucket(3), &keys);
            let (each, both) = beside(&store, both, |store| {
                [K, X].map(|key| store.spend(&bucket(3), key))
            });
            assert_eq!(each, [!both; 2]);
            for key in keys {
                assert_eq!(store.remaining(&bucket(3), key), Some(0));
            }
        });
    }
}

#[test]
fn two_lists_and_one_ask_spend_what_there_is_and_no_more() {
    model(2, || {
        let store = knowing(&bucket(4), &[K, X]);
        let both = |store: &Store| u64::from(store.spend_all(&bucket(4), &[K, X]));
        let ((one, list), other) = beside(&store, both, |store| {
            beside(store, both, |store| spend(store, &bucket(4), K, 1))
        });
        assert_eq!(one + list + other, 2);
        assert_eq!(store.remaining(&bucket(4), K), Some(0));
        assert_eq!(store.remaining(&bucket(4), X), Some(2 - list - other));
    });
}

#[test]
fn several_asks_that_are_refused_take_nothing() {
    for keys in [[K, X], [X, K]] {
        model(3, move || {
            let store = knowing(&bucket(3), &[K, X]);
            assert!(store.spend(&bucket(3), X));
            let both = move |store: &Store| store.spend_all(&bucket(3), &keys);
            let (one, both) = beside(&store, both, |store| store.spend(&bucket(3), K));
            assert!(one && !both);
            assert_eq!(store.remaining(&bucket(3), K), Some(0));
        });
    }
}

/// Its state is copied, and written back.
#[test]
fn nothing_is_lost_of_a_key_that_several_asks_name() {
    for keys in [[K, K, X], [X, K, K]] {
        model(3, move || {
            let store = knowing(&bucket(4), &[K, X]);
            let twice = move |store: &Store| store.spend_all(&bucket(4), &keys);
            let (one, twice) = beside(&store, twice, |store| store.spend(&bucket(4), K));
            assert_ne!(one, twice);
            let spent = u64::from(one) + 2 * u64::from(twice);
            assert_eq!(store.remaining(&bucket(4), K), Some(2 - spent));
        });
    }
}

/// Two keys in one call, and room for one.
#[test]
fn newcomers_that_are_turned_away_take_no_charges_along() {
    for keys in [[K, X], [X, K]] {
        model(3, move || {
            let store = Store::new(1, AtCapacity::RefuseNewcomers, &TestClock::still());
            let both = move |store: &Store| store.spend_all(&bucket(3), &keys);
            let (spent, both) = beside(&store, both, |store| spend(store, &bucket(3), K, 1));
            assert!(!both);
            let spent = spent + spend(&store, &bucket(3), K, 3);
            assert_eq!((spent, store.len()), (2, 1));
        });
    }
}

#[test]
fn a_reset_costs_no_more_than_a_new_key_has() {
    model(3, || {
        let store = knowing(&bucket(4), &[K]);
        let reset = |store: &Store| store.reset(K);
        let (spent, ()) = beside(&store, reset, |store| spend(store, &bucket(4), K, 2));
        let left = store.remaining(&bucket(4), K).unwrap();
        assert!(
            (3 - spent..=3).contains(&left),
            "{spent} spent, {left} left"
        );
        assert!(store.len() <= 1);
    });
}

#[test]
fn corrections_are_neither_lost_nor_made_twice() {
    // Refunds one unit, or charges one more.
    for actual in [0, 2] {
        model(3, move || {
            let store = knowing(&bucket(6), &[K]);
            let settle = move |store: &Store| store.settle(&bucket(6), K, actual);
            let (spent, ()) = beside(&store, settle, |store| spend(store, &bucket(6), K, 2));
            assert_eq!((spent, store.len()), (2, 1));
            assert_eq!(store.remaining(&bucket(6), K), Some(5 - 2 - actual));
        });
    }
}

/// The calls of K have just left its window; a new key of its shard removes it.
#[test]
fn a_key_that_is_removed_while_it_is_charged_gains_nothing() {
    model(3, || {
        let (rule, clock) = (SlidingLog::per_second(2), TestClock::moving());
        let store = Store::new(10, AtCapacity::InheritDebts, &clock);
        assert_eq!(spend(&store, &rule, K, 2), 2);
        let newcomer = move |store: &Store<SlidingLog>| {
            clock.advance(Duration::from_secs(1));
            assert!(store.spend(&SlidingLog::per_second(2), NEIGHBOUR));
        };
        let (spent, ()) = beside(&store, newcomer, |store| spend(store, &rule, K, 2));
        assert_eq!(spent + spend(&store, &rule, K, 3), 2);
        assert_eq!(store.len(), 2);
    });
}

/// The time is no earlier than that of the last write, so no wait contains the difference.
#[test]
fn no_decision_is_about_an_earlier_instant_than_the_one_before() {
    model(3, || {
        let clock = TestClock::moving();
        let store = Store::new(10, AtCapacity::InheritDebts, &clock);
        assert!(store.spend(&bucket(2), K));
        let later = move |store: &Store| {
            clock.advance(Duration::from_secs(1));
            store.spend(&bucket(2), K)
        };
        let (decisions, later) = beside(&store, later, |store| {
            [store.ask(&bucket(2), K, 1), store.look_at(&bucket(2), K)]
        });
        let [one, look] = decisions;
        assert_ne!(later, one.is_admitted());
        for decision in [one, look] {
            assert!(
                decision.retry_after() <= Some(Duration::from_secs(1)),
                "{decision:?}"
            );
        }
    });
}

/// One rule packs its states, and so takes the lock of the shard.
#[test]
fn rules_of_which_one_is_packed_spend_from_one_state() {
    model(3, || {
        let store = knowing(&bucket(5), &[K]);
        let (this, other) = beside(
            &store,
            |store| spend(store, &packed(5), K, 2),
            |store| spend(store, &bucket(5), K, 2),
        );
        assert_eq!((this + other, store.len()), (3, 1));
        assert_eq!(store.remaining(&packed(5), K), Some(0));
    });
}

#[test]
fn rules_of_two_lengths_count_all_calls() {
    model(3, || {
        let (long, short) = (SlidingLog::per_minute(6), SlidingLog::per_second(6));
        let store = knowing(&long, &[K]);
        let (this, other) = beside(
            &store,
            |store| spend(store, &SlidingLog::per_second(6), K, 2),
            |store| spend(store, &SlidingLog::per_minute(6), K, 2),
        );
        assert_eq!((this + other, store.len()), (4, 1));
        for rule in [long, short] {
            assert_eq!(store.remaining(&rule, K), Some(1));
        }
    });
}

#[test]
fn rules_of_two_kinds_have_a_state_each() {
    let rules = || ["sliding-log 3/1m", "sliding-window 3/1m"].map(|rule| rule.parse().unwrap());
    model(3, move || {
        let [log, window]: [AnyRule; 2] = rules();
        let store = knowing(&log, &[K]);
        assert!(store.spend(&window, K));
        let list = move |store: &Store<AnyRule>| {
            let [log, window] = &rules();
            store.spend_together(&[(window, K, 1), (log, K, 1)])
        };
        let (spent, list) = beside(&store, list, |store| spend(store, &log, K, 2));
        assert_eq!((spent, store.len()), (2 - u64::from(list), 2));
        let left = [log, window].map(|rule| store.remaining(&rule, K));
        assert_eq!(left, [Some(0), Some(2 - u64::from(list))]);
    });
}
