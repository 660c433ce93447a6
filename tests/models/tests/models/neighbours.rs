//! Several keys in a full store: a key that is evicted while a call for it is decided keeps its own
//! usage, not a neighbour's.
//!
//! All keys of so small a store belong to the same two sets.

use loom::thread::spawn;
use models::{
    algorithm::TokenBucket,
    model,
    store::local::{AtCapacity, Local},
    time::TestClock,
};

/// The key that is evicted.
const K: u64 = 1;
/// The new key that evicts it.
const X: u64 = 2;
/// Other keys. At least one has a smaller packed state than K, and expires later.
const Y: u64 = 3;
const Z: u64 = 4;

type Store = Local<TokenBucket, TestClock>;

/// One token a second.
fn bucket(burst: u64) -> TokenBucket {
    TokenBucket::per_second(1).burst(burst)
}

/// Creates a full store. K holds one token, which is all that it may spend under any rule, and is
/// the next key to be evicted.
fn full(capacity: usize) -> Store {
    let store = Store::new(capacity, AtCapacity::InheritDebts, &TestClock::still());
    assert!(store.ask(&bucket(30), Y, 10).is_admitted());
    if capacity > 2 {
        assert!(store.ask(&bucket(60), Z, 30).is_admitted());
    }
    assert!(store.ask(&bucket(3), K, 2).is_admitted());
    assert_eq!(store.len(), capacity);
    store
}

/// Runs `other` in a thread of its own beside `this`.
fn beside<T>(store: &Store, other: fn(&Store), this: impl FnOnce(&Store) -> T) -> T {
    let of_the_other = store.clone();
    let other = spawn(move || other(&of_the_other));
    let this = this(store);
    other.join().unwrap();
    this
}

fn comes(store: &Store) {
    store.spend(&bucket(3), X);
}

/// Returns the number of tokens that K may still spend, under the longest rule that charges it.
fn left(store: &Store) -> u64 {
    store.remaining(&bucket(30), K).unwrap()
}

#[test]
fn a_key_evicted_while_it_is_charged_keeps_its_own_usage() {
    for capacity in [2, 3] {
        model(2, move || {
            let store = full(capacity);
            let two = beside(&store, comes, |store| store.ask(&bucket(30), K, 2));
            assert!(!two.is_admitted(), "K holds one");
            assert!(left(&store) <= 1);
        });
    }
}

#[test]
fn a_key_evicted_while_it_spends_its_last_token_has_none_left() {
    model(2, || {
        let store = full(2);
        let one = beside(&store, comes, |store| store.spend(&bucket(30), K));
        assert_eq!(left(&store), 1 - u64::from(one));
        assert!(store.len() <= 2);
    });
}

/// Two new keys arrive in turn: the second may evict the first, or K if K is still there.
#[test]
fn a_key_evicted_by_one_of_two_keeps_its_own_usage() {
    fn two_come(store: &Store) {
        comes(store);
        store.spend(&bucket(3), Z);
    }
    model(1, || {
        let store = full(2);
        let two = beside(&store, two_come, |store| store.ask(&bucket(30), K, 2));
        assert!(!two.is_admitted(), "K holds one");
        assert!(left(&store) <= 1);
    });
}

/// One call asks for K and Y, and one of them is evicted meanwhile.
#[test]
fn a_key_evicted_while_several_are_asked_for_keeps_its_own_usage() {
    for capacity in [2, 3] {
        model(2, move || {
            let store = full(capacity);
            let (long, short) = (bucket(30), bucket(3));
            let two = beside(&store, comes, |store| {
                store.spend_together(&[(&short, Y, 1), (&long, K, 2)])
            });
            assert!(!two, "K holds one");
            assert!(left(&store) <= 1);
        });
    }
}

/// A list of asks is decided under the locks of all its keys.
#[test]
fn a_key_evicted_by_a_list_of_asks_keeps_its_own_usage() {
    fn listed(store: &Store) {
        store.spend_together(&[(&bucket(3), X, 1)]);
    }
    model(2, || {
        let store = full(2);
        let two = beside(&store, listed, |store| store.ask(&bucket(30), K, 2));
        assert!(!two.is_admitted(), "K holds one");
        assert!(left(&store) <= 1);
    });
}

/// A charge of K is corrected while K is evicted: the correction adds to the usage of K.
#[test]
fn a_key_evicted_while_it_is_settled_keeps_its_own_usage() {
    model(2, || {
        let store = full(2);
        beside(&store, comes, |store| store.settle(&bucket(30), K, 2));
        assert_eq!(left(&store), 0);
    });
}

/// A look finds K's own usage, in its slot or in the record of its eviction.
#[test]
fn a_key_evicted_while_it_is_looked_at_keeps_its_own_usage() {
    model(2, || {
        let store = full(2);
        let seen = beside(&store, comes, left);
        assert!(seen <= 1, "{seen}");
    });
}

/// K has used 27 under the longer rule, and one under the shorter rule, which refunds it and then
/// sees an expired state.
#[test]
fn a_refund_by_a_shorter_rule_does_not_change_a_longer_one() {
    fn spends(store: &Store) {
        assert!(store.spend(&bucket(30), K));
    }
    fn listed(store: &Store) {
        assert!(store.spend_together(&[(&bucket(3), X, 1), (&bucket(30), K, 1)]));
    }
    for other in [spends, listed] {
        model(2, move || {
            let store = Store::new(10, AtCapacity::InheritDebts, &TestClock::still());
            assert!(store.ask(&bucket(30), K, 27).is_admitted());
            assert!(store.spend(&bucket(3), K));
            beside(&store, other, |store| {
                store.refund(&bucket(3), K);
                store.sweep();
            });
            assert_eq!(left(&store), 2);
        });
    }
}

/// Two new keys and room for one: each is decided by its rule, in any order.
#[test]
fn no_key_is_refused_for_lack_of_room_if_usage_is_inherited() {
    model(2, || {
        let store = Store::new(1, AtCapacity::InheritDebts, &TestClock::still());
        let turned_away = |store: &Store, key| store.ask(&bucket(3), key, 1).is_undecided();
        let other = spawn({
            let store = store.clone();
            move || turned_away(&store, X)
        });
        assert!(!turned_away(&store, K) && !other.join().unwrap());
        assert!(store.len() <= 1);
        for key in [K, X] {
            assert!(store.remaining(&bucket(3), key) <= Some(2));
        }
    });
}
