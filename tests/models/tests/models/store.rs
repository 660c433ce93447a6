//! The whole store: its locks and its table together.

use std::time::Duration;

use models::{
    algorithm::{AnyRule, FixedWindow, SlidingWindow, TokenBucket},
    calls::{Store, beside, bucket, spend, store},
    model,
    store::local::AtCapacity,
    time::TestClock,
};

const K: u64 = 1;
const X: u64 = 2;

/// Returns that rule with another start for new keys, so its states are not packed.
fn unmetered(burst: u64) -> TokenBucket {
    bucket(burst).initial(burst - 1)
}

fn any(text: &str) -> AnyRule {
    text.parse().unwrap()
}

#[test]
fn two_newcomers_of_one_key_spend_its_burst() {
    model(2, || {
        let (rule, store) = (bucket(3), store(10));
        let twice = |store: &Store| spend(store, &bucket(3), K, 2);
        let (this, other) = beside(&store, twice, twice);
        assert_eq!((this + other, store.len()), (3, 1));
        assert_eq!(store.remaining(&rule, K), Some(0));
    });
}

/// Room for one key: each evicts the other, and inherits its usage.
#[test]
fn a_key_that_is_evicted_and_returns_gains_nothing() {
    model(2, || {
        let (rule, store) = (bucket(4), store(1));
        assert!(store.spend(&rule, K));
        let spent = beside(
            &store,
            |store| spend(store, &bucket(4), X, 1),
            |store| spend(store, &bucket(4), K, 2),
        );
        let spent = 1 + spent.0 + spent.1;
        assert_eq!(store.len(), 1);
        let debts = [K, X].map(|key| 4 - store.remaining(&rule, key).unwrap());
        assert!(debts.contains(&spent), "{debts:?} for {spent}");
    });
}

/// One refund moves K to another slot, or into the map.
#[test]
fn nothing_is_lost_of_a_key_that_moves() {
    model(2, || {
        let (rule, store) = (bucket(5), store(10));
        assert_eq!(spend(&store, &rule, K, 2), 2);
        let refund = |store: &Store| {
            store.refund(&bucket(5), K);
            0
        };
        let (spent, _) = beside(&store, refund, |store| spend(store, &bucket(5), K, 2));
        assert_eq!((spent, store.len()), (2, 1));
        assert_eq!(store.remaining(&rule, K), Some(2));
    });
}

#[test]
fn nothing_is_lost_of_a_key_that_moves_to_the_map() {
    model(2, || {
        let (rule, store) = (bucket(4), store(10));
        assert!(store.spend(&rule, K));
        let unmetered = |store: &Store| spend(store, &unmetered(4), K, 1);
        let (this, other) = beside(&store, unmetered, |store| spend(store, &bucket(4), K, 3));
        assert_eq!((this + other, store.len()), (3, 1));
        assert_eq!(store.remaining(&rule, K), Some(0));
    });
}

#[test]
fn a_reset_costs_no_more_than_the_burst() {
    model(2, || {
        let (rule, store) = (bucket(2), store(10));
        assert_eq!(spend(&store, &rule, K, 1), 1);
        let reset = |store: &Store| {
            store.reset(K);
            0
        };
        let (spent, _) = beside(&store, reset, |store| spend(store, &bucket(2), K, 2));
        let spent = 1 + spent + spend(&store, &rule, K, 3);
        assert!((2..=4).contains(&spent), "{spent}");
        assert_eq!((store.remaining(&rule, K), store.len()), (Some(0), 1));
    });
}

#[test]
fn several_keys_are_spent_together_or_not_at_all() {
    model(2, || {
        let (rule, store) = (bucket(2), store(10));
        assert!(store.spend(&rule, K));
        let both = |store: &Store| u64::from(store.spend_all(&bucket(2), &[X, K]));
        let (this, both) = beside(&store, both, |store| spend(store, &bucket(2), K, 1));
        assert_eq!(this + both, 1);
        assert_eq!(store.remaining(&rule, K), Some(0));
        assert_eq!(store.remaining(&rule, X), Some(2 - both));
    });
}

/// Two keys in one call, and room for one.
#[test]
fn newcomers_that_are_turned_away_take_no_charges_along() {
    model(2, || {
        let rule = bucket(3);
        let store = Store::new(1, AtCapacity::RefuseNewcomers, &TestClock::still());
        let both = |store: &Store| u64::from(store.spend_all(&bucket(3), &[K, X]));
        let (this, both) = beside(&store, both, |store| spend(store, &bucket(3), K, 1));
        assert_eq!(both, 0);
        let spent = this + spend(&store, &rule, K, 3);
        assert_eq!((spent, store.len()), (3, 1));
    });
}

/// K has just filled up: it expires, or spends its tokens.
#[test]
fn a_key_that_is_removed_while_it_is_charged_gains_nothing() {
    model(2, || {
        let (rule, clock) = (bucket(2), TestClock::moving());
        let store = Store::new(10, AtCapacity::InheritDebts, &clock);
        assert_eq!(spend(&store, &rule, K, 2), 2);
        let forgetting = move |store: &Store| {
            clock.advance(Duration::from_secs(2));
            store.sweep();
            0
        };
        // A list of asks is decided under the lock from the beginning.
        let listed = |store: &Store| u64::from(store.spend_all(&bucket(2), &[K]));
        let (spent, _) = beside(&store, forgetting, listed);
        assert_eq!(spent + spend(&store, &rule, K, 3), 2);
    });
}

/// Queues and windows: each evicts the other, and inherits its usage.
#[test]
fn who_is_pushed_out_of_a_queue_or_a_window_mints_nothing() {
    for text in ["leaky-bucket 1/1s queue=3", "fixed-window 4/1m"] {
        model(2, move || {
            let (rule, store) = (any(text), store(1));
            assert!(store.spend(&rule, K));
            let spent = beside(
                &store,
                move |store| spend(store, &any(text), X, 1),
                |store| spend(store, &rule, K, 2),
            );
            let spent = 1 + spent.0 + spent.1;
            assert_eq!(store.len(), 1);
            let debts = [K, X].map(|key| 4 - store.remaining(&rule, key).unwrap());
            assert!(debts.contains(&spent), "{debts:?} for {spent}");
        });
    }
}

/// Two kinds of states of one new key take a slot each, in any order, and a reset removes both.
#[test]
fn rules_of_two_kinds_have_a_state_each() {
    for text in [
        "leaky-bucket 1/1s queue=2",
        "fixed-window 3/1m",
        "sliding-window 3/1m slices=4",
    ] {
        model(2, move || {
            let (bucket, store) = (any("token-bucket 1/1s burst=3"), store(10));
            assert!(store.spend(&bucket, K));
            let (this, other) = beside(
                &store,
                move |store| spend(store, &any(text), K, 1),
                |store| spend(store, &bucket, K, 1),
            );
            assert_eq!((this, other, store.len()), (1, 1, 2));
            let left = || [&bucket, &any(text)].map(|rule| store.remaining(rule, K));
            assert_eq!(left(), [Some(1), Some(2)]);
            store.reset(K);
            assert_eq!((left(), store.len()), ([Some(3), Some(3)], 0));
        });
    }
}

/// Also while the kind of its word changes, and changes back.
#[test]
fn windows_of_two_lengths_lose_no_count() {
    model(2, || {
        let minute = FixedWindow::per_minute(6);
        let store = store(10);
        assert!(store.spend(&minute, K));
        let (this, other) = beside(
            &store,
            |store| spend(store, &FixedWindow::per_hour(6), K, 1),
            |store| spend(store, &minute, K, 2),
        );
        assert_eq!((this + other, store.len()), (3, 1));
        for rule in [minute, FixedWindow::per_hour(6)] {
            assert_eq!(store.remaining(&rule, K), Some(2));
        }
    });
}

/// Also with other slices: the calls are counted again, and a refusal moves the state to the map.
#[test]
fn sliding_windows_of_two_lengths_lose_no_count() {
    for limit in [2, 6] {
        model(2, move || {
            let minute = || SlidingWindow::per_minute(6);
            let hour = move || SlidingWindow::per_hour(limit).slices(4);
            let store = store(10);
            assert_eq!(spend(&store, &minute(), K, 2), 2);
            let (this, other) = beside(
                &store,
                move |store| spend(store, &hour(), K, 1),
                |store| spend(store, &minute(), K, 2),
            );
            assert_eq!((this, other, store.len()), (2, u64::from(limit > 2), 1));
            assert_eq!(store.remaining(&minute(), K), Some(2 - other));
            let left = limit.saturating_sub(4 + other);
            assert_eq!(store.remaining(&hour(), K), Some(left));
        });
    }
}

/// A charge and a correction, each of the word that it has seen.
#[test]
fn a_sliding_window_is_corrected_while_it_is_charged() {
    model(2, || {
        let rule = || SlidingWindow::per_minute(4).slices(2);
        let store = store(10);
        assert!(store.spend(&rule(), K));
        let (this, _) = beside(
            &store,
            move |store| {
                store.refund(&rule(), K);
                0
            },
            |store| spend(store, &rule(), K, 2),
        );
        assert_eq!(store.remaining(&rule(), K), Some(4 - this));
    });
}
