//! States in two words, which are read without holding their slot.

use models::{
    algorithm::{Cascade, TokenBucket},
    calls::{Store, beside, bucket, spend, store},
    model,
    store::local::Local,
    time::TestClock,
};

const K: u64 = 1;
const X: u64 = 2;

type Pair = (TokenBucket, TokenBucket);

/// The second bucket admits less.
fn pair(burst: u64) -> Pair {
    (bucket(burst + 2), bucket(burst))
}

#[test]
fn two_new_callers_of_one_key_spend_its_burst() {
    model(1, || {
        let store = store(10);
        // Takes the memory for such states, which loom's threads cannot do.
        assert!(store.spend(&pair(1), X));
        let once = |store: &Store<Pair>| spend(store, &pair(1), K, 1);
        let (this, other) = beside(&store, once, once);
        assert_eq!((this + other, store.len()), (1, 2));
        assert_eq!(store.remaining(&pair(1), K), Some(0));
        assert!(store.are_all_in_table(&[K], &pair(1)));
    });
}

#[test]
fn two_callers_of_a_known_key_spend_its_burst() {
    model(2, || {
        let store = store(10);
        assert!(store.spend(&pair(2), K));
        let once = |store: &Store<Pair>| spend(store, &pair(2), K, 1);
        let (this, other) = beside(&store, once, once);
        assert_eq!(this + other, 1);
        assert_eq!(store.remaining(&pair(2), K), Some(0));
    });
}

/// The second bucket fills last, so charges of the first one do not move the expiry.
#[test]
fn charges_that_do_not_move_the_expiry_are_not_lost() {
    model(2, || {
        let (rule, store) = (|| Cascade::new(bucket(2)).then(bucket(9)), store(10));
        assert!(store.ask(&rule(), K, 9).is_admitted());
        let once = move |store: &Store<Cascade>| spend(store, &rule(), K, 1);
        let (this, other) = beside(&store, once, once);
        assert_eq!(this + other, 2);
        assert_eq!(store.remaining(&rule(), K), Some(0));
    });
}

/// One of the threads holds the slot from the beginning: a call of several keys, or a correction.
#[test]
fn changes_under_a_lock_are_not_lost_either() {
    type Change = fn(&Store<Cascade>) -> u64;
    let rule = || Cascade::new(bucket(2)).then(bucket(9));
    let several: Change = |store| {
        let rule = Cascade::new(bucket(2)).then(bucket(9));
        u64::from(store.spend_all(&rule, &[K, X]))
    };
    let settle: Change = |store| {
        // Charged as one, in the first bucket.
        store.settle(&Cascade::new(bucket(2)).then(bucket(9)), K, 2);
        1
    };
    for change in [several, settle] {
        model(2, move || {
            let store = store(10);
            assert!(store.ask(&rule(), K, 9).is_admitted());
            assert!(store.spend(&rule(), X));
            let once = |store: &Store<Cascade>| spend(store, &rule(), K, 1);
            let (this, other) = beside(&store, change, once);
            assert_eq!((this, other), (1, 1));
            assert_eq!(store.remaining(&rule(), K), Some(0));
        });
    }
}

#[test]
fn a_key_that_moves_is_charged_once() {
    /// Homes that move to the new set, and that stay.
    const MOVES: u64 = 1 | 1 << 32;
    const STAYS: u64 = 2;
    for key in [MOVES, STAYS] {
        model(3, move || {
            let store = Local::of_one_set(&TestClock::still());
            assert!(store.spend(&pair(9), key));
            let grow = |store: &Store<Pair>| u64::from(store.grow());
            let (spent, _) = beside(&store, grow, |store| spend(store, &pair(9), key, 2));
            assert_eq!(spent, 2);
            assert_eq!(store.remaining(&pair(9), key), Some(6));
            store.reset(key);
            assert_eq!(store.len(), 0, "in one slot");
        });
    }
}

#[test]
fn a_key_that_takes_a_slot_pays_only_its_own_calls() {
    model(1, || {
        let store = store(1);
        assert!(store.spend(&pair(9), K));
        let other = |store: &Store<Pair>| {
            store.reset(K);
            spend(store, &pair(9), X, 1)
        };
        let (_, spent) = beside(&store, other, |store| spend(store, &pair(9), K, 1));
        // If K came back first, there was no room.
        if spent > 0 {
            assert_eq!(store.remaining(&pair(9), X), Some(9 - spent));
        }
    });
}

#[test]
fn several_keys_are_charged_together_or_not_at_all() {
    model(2, || {
        let store = store(10);
        let rule = pair(3);
        assert!(store.spend_all(&rule, &[K, X]));
        let other = |store: &Store<Pair>| u64::from(store.spend_all(&pair(3), &[K, X]));
        let (alone, together) = beside(&store, other, |store| spend(store, &pair(3), K, 2));
        assert!(alone + together <= 2);
        assert_eq!(store.remaining(&rule, K), Some(2 - alone - together));
        assert_eq!(store.remaining(&rule, X), Some(2 - together));
    });
}
