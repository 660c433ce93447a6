//! Several keys in a store that is full: who is pushed out while it comes owes its own debt, not a neighbour's.
//!
//! All keys of so small a store belong to the same two sets.

use loom::thread::spawn;
use models::{
    algorithm::TokenBucket,
    model,
    store::local::{AtCapacity, Local},
    time::TestClock,
};

/// In whose place another one comes.
const K: u64 = 1;
/// Comes in its place.
const X: u64 = 2;
/// Others, of which at least one owes less than K by its packed state, and is remembered for longer.
const Y: u64 = 3;
const Z: u64 = 4;

type Store = Local<TokenBucket, TestClock>;

/// One token a second.
fn bucket(burst: u64) -> TokenBucket {
    TokenBucket::per_second(1).burst(burst)
}

/// A store that is full: K holds one token, which is all that it may spend under any rule; it is the one
/// that is pushed out.
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

/// The number of tokens that K may spend yet, under the longest rule that it meets.
fn left(store: &Store) -> u64 {
    store.remaining(&bucket(30), K).unwrap()
}

#[test]
fn who_is_pushed_out_while_it_comes_owes_its_own_debt() {
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
fn who_is_pushed_out_while_it_spends_its_last_has_none_left() {
    model(2, || {
        let store = full(2);
        let one = beside(&store, comes, |store| store.spend(&bucket(30), K));
        assert_eq!(left(&store), 1 - u64::from(one));
        assert!(store.len() <= 2);
    });
}

/// Two come one after the other: the second may push out the first, or K if that was not pushed out yet.
#[test]
fn who_is_pushed_out_by_one_of_two_owes_its_own_debt() {
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

/// K and Y are asked for together, and one of them is pushed out meanwhile.
#[test]
fn who_is_pushed_out_while_several_are_asked_for_owes_its_own_debt() {
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

/// Asks in a list are decided under the locks of their keys from the beginning.
#[test]
fn who_is_pushed_out_by_a_list_of_asks_owes_its_own_debt() {
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

/// A charge of K is corrected while it is pushed out: what is taken is taken of what K owes.
#[test]
fn who_is_pushed_out_while_it_is_settled_owes_its_own_debt() {
    model(2, || {
        let store = full(2);
        beside(&store, comes, |store| store.settle(&bucket(30), K, 2));
        assert_eq!(left(&store), 0);
    });
}

/// A look finds K's own debt, in its place or where it was pushed out.
#[test]
fn who_is_pushed_out_while_it_is_looked_at_owes_its_own_debt() {
    model(2, || {
        let store = full(2);
        let seen = beside(&store, comes, left);
        assert!(seen <= 1, "{seen}");
    });
}

/// K owes 27 under the longer rule, and one under the shorter rule, which gets that back and then sees nothing any more.
#[test]
fn a_refund_by_a_shorter_rule_leaves_a_longer_one_its_debt() {
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

/// Two newcomers and room for one of them: each is told by its rule whether it passes, whoever is first.
#[test]
fn nobody_is_turned_away_where_debts_are_inherited() {
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
