//! The table by itself: known keys without a lock, against all that takes slots away.

use std::sync::Arc;

use loom::thread::spawn;
use models::{
    algorithm::{FixedWindow, LeakyBucket, TokenBucket},
    model,
    store::local::Table,
};

const K: u64 = 1;
const X: u64 = 2;
/// The time in which a token is refilled, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

fn bucket(burst: u64) -> TokenBucket {
    TokenBucket::per_second(1).burst(burst)
}

/// Returns the number of admitted calls, of so many of cost 1; `None` if a lock is needed.
fn spend(table: &Table, burst: u64, calls: usize) -> Option<usize> {
    let admitted = |_| Some(table.spend(&bucket(burst), K, 1, 0)?.is_admitted());
    let admitted: Option<Vec<bool>> = (0..calls).map(admitted).collect();
    Some(admitted?.into_iter().filter(|admitted| *admitted).count())
}

#[test]
fn two_threads_spend_what_there_is_and_no_more() {
    for (burst, left) in [(4, 0), (6, 1)] {
        model(3, move || {
            let table = Arc::new(Table::default());
            assert!(table.arrive(&bucket(burst), K, 1, 0));
            let other = spawn({
                let table = Arc::clone(&table);
                move || spend(&table, burst, 2).unwrap()
            });
            let admitted = spend(&table, burst, 2).unwrap() + other.join().unwrap();
            assert_eq!(admitted as u64, 4.min(burst - 1));
            assert_eq!(table.remaining(&bucket(burst), K, 0), Some(left));
        });
    }
}

/// K has filled up, so X may have its slot; or K, which spends once more, keeps it.
#[test]
fn a_key_that_spends_is_not_replaced_and_its_successor_not_charged() {
    model(3, || {
        let (rule, table, now) = (bucket(2), Arc::new(Table::default()), 2 * SECOND);
        assert!(table.arrive(&rule, K, 2, 0));
        let newcomer = spawn({
            let table = Arc::clone(&table);
            move || table.arrive(&bucket(2), X, 1, now)
        });
        let spent = table.spend(&rule, K, 1, now);
        let came = newcomer.join().unwrap();
        let x = table.remaining(&rule, X, now);
        assert_eq!(x, came.then_some(1), "X pays for itself");
        match spent {
            Some(decision) => {
                assert!(decision.is_admitted());
                assert_eq!(
                    table.remaining(&rule, K, now),
                    Some(1),
                    "K's charge is kept"
                );
            }
            None => assert!(came && !table.knows(K)),
        }
    });
}

/// The slot of K, which has filled up, goes to X, which spends all it has.
#[test]
fn nobody_is_refused_for_its_successor() {
    model(3, || {
        let (rule, table, now) = (bucket(2), Arc::new(Table::default()), 2 * SECOND);
        assert!(table.arrive(&rule, K, 1, 0));
        let newcomer = spawn({
            let table = Arc::clone(&table);
            move || table.arrive(&bucket(2), X, 2, now)
        });
        let spent = table.spend(&rule, K, 1, now);
        assert!(spent.is_none_or(|decision| decision.is_admitted()));
        newcomer.join().unwrap();
    });
}

/// K, which holds three tokens, gives its slot to X, which holds two, and gets it back with one.
#[test]
fn nobody_is_refused_by_the_word_of_another() {
    model(3, || {
        let (rule, table) = (bucket(4), Arc::new(Table::default()));
        assert!(table.arrive(&rule, K, 1, 0));
        let others = spawn({
            let table = Arc::clone(&table);
            move || [X, K].map(|key| assert!(table.evict(&bucket(4), key, 1, 0)))
        });
        if let Some(decision) = table.spend(&rule, K, 4, 0) {
            assert!(!decision.is_admitted());
            assert_ne!(decision.remaining(), Some(2), "X's word");
        }
        others.join().unwrap();
    });
}

#[test]
fn who_is_pushed_out_still_owes_what_it_spent_until_then() {
    model(3, || {
        let (rule, table) = (bucket(4), Arc::new(Table::default()));
        assert!(table.arrive(&rule, K, 1, 0));
        let newcomer = spawn({
            let table = Arc::clone(&table);
            move || table.evict(&bucket(4), X, 1, 0)
        });
        let spent = u64::from(table.spend(&rule, K, 1, 0).is_some());
        let left = table.remaining(&rule, K, 0);
        assert!(left.is_some_and(|left| left <= 3 - spent), "{left:?}");
        let pushed = newcomer.join().unwrap();
        assert_eq!(table.knows(X), pushed);
        assert_eq!(table.remaining(&rule, K, 0), Some(3 - spent));
    });
}

/// K is removed, and its slot taken by X, which spends as much as K did, or more.
#[test]
fn a_removed_key_takes_no_charge_along() {
    for cost in [1, 2] {
        model(3, move || {
            let (rule, table) = (bucket(3), Arc::new(Table::default()));
            assert!(table.arrive(&rule, K, 1, 0));
            let other = spawn({
                let table = Arc::clone(&table);
                move || {
                    table.forget(K);
                    assert!(table.arrive(&bucket(3), X, cost, 0));
                }
            });
            let spent = table.spend(&rule, K, 1, 0);
            other.join().unwrap();
            assert!(!table.knows(K));
            assert_eq!(table.remaining(&rule, X, 0), Some(3 - cost));
            assert!(spent.is_none_or(|decision| decision.remaining() == Some(1)));
        });
    }
}

#[test]
fn two_newcomers_have_one_slot_each_or_none() {
    // With room in one slot only, which is taken from K, and with room for both.
    for known in [true, false] {
        model(2, move || {
            let (rule, table, now) = (bucket(3), Arc::new(Table::default()), 3 * SECOND);
            if known {
                assert!(table.arrive(&rule, 3, 1, 0));
            }
            let other = spawn({
                let table = Arc::clone(&table);
                move || table.arrive(&bucket(3), X, 2, now)
            });
            let came = [
                (K, table.arrive(&rule, K, 1, now), 2),
                (X, other.join().unwrap(), 1),
            ];
            assert!(
                came.iter().any(|(_, came, _)| *came),
                "one of them was first"
            );
            for (key, came, left) in came {
                assert_eq!(table.remaining(&rule, key, now), came.then_some(left));
                table.forget(key);
                assert!(!table.knows(key), "in one slot");
            }
        });
    }
}

#[test]
fn a_newcomer_that_comes_twice_has_one_slot() {
    model(3, || {
        let (rule, table) = (bucket(3), Arc::new(Table::default()));
        let other = spawn({
            let table = Arc::clone(&table);
            move || assert!(table.arrive(&bucket(3), K, 1, 0))
        });
        assert!(table.arrive(&rule, K, 1, 0));
        other.join().unwrap();
        assert_eq!(table.remaining(&rule, K, 0), Some(1));
        table.forget(K);
        assert!(!table.knows(K), "in one slot");
    });
}

#[test]
fn no_key_expires_before_its_kind_has_a_length() {
    // The first kind, and the last one.
    for taken in [0, 7] {
        model(3, move || {
            let table = Arc::new(Table::default());
            for burst in 1..=taken {
                table.take_kind(&bucket(burst));
            }
            let other = spawn({
                let table = Arc::clone(&table);
                move || assert!(table.arrive(&bucket(8), K, 1, 0))
            });
            assert_eq!(table.sweep(SECOND / 2), 0);
            other.join().unwrap();
            assert!(table.knows(K));
        });
    }
}

/// All numbers of kinds are taken; the kind of the last one, which K has, grows when a longer rule
/// arrives.
#[test]
fn no_key_expires_before_a_longer_rule_that_charged_it() {
    model(3, || {
        let table = Arc::new(Table::default());
        for burst in 1..=7 {
            table.take_kind(&bucket(burst));
        }
        let (short, long) = (bucket(8), bucket(16));
        assert!(table.arrive(&short, K, 8, 0));
        let taking = spawn({
            let table = Arc::clone(&table);
            move || table.take_kind(&bucket(16))
        });
        let sweeping = spawn({
            let table = Arc::clone(&table);
            move || table.sweep(10 * SECOND)
        });
        // Ten tokens were refilled: all that the short rule holds, and not all of the long one.
        let spent = table.spend(&long, K, 1, 10 * SECOND);
        taking.join().unwrap();
        sweeping.join().unwrap();
        if spent.is_some() {
            assert!(table.knows(K), "its charge is lost");
        }
    });
}

/// A queue expires when it is empty, and a window at its end.
#[test]
fn queues_and_windows_expire_when_they_decide_like_new_keys() {
    model(2, || {
        let table = Arc::new(Table::default());
        let (queue, window) = (LeakyBucket::per_second(1), FixedWindow::per_second(5));
        assert!(table.arrive(&queue, K, 2, 0));
        assert!(table.arrive(&window, X, 2, SECOND / 2));
        let sweeping = spawn({
            let table = Arc::clone(&table);
            move || table.sweep(SECOND)
        });
        let spent = table.spend(&queue, K, 1, SECOND);
        assert!(spent.is_some_and(|decision| decision.is_admitted()));
        assert_eq!(sweeping.join().unwrap(), 0, "the count is late");
        assert_eq!(table.sweep(SECOND + 1), 1);
        assert!(table.knows(K) && !table.knows(X));
        assert_eq!(table.sweep(3 * SECOND), 1);
    });
}
