//! The table while it grows: a set is split, and keys move to the new one.
//!
//! New keys that are inserted meanwhile look at all slots, whose states loom cannot all try:
//! `tests/local/growth.rs` does that with threads of the system.

use std::sync::Arc;

use loom::thread::spawn;
use models::{algorithm::TokenBucket, model, store::local::Table};

/// A key that moves, because its homes are the new set, and one that stays.
const MOVES: u64 = 1 | 1 << 32;
const STAYS: u64 = 2;

fn bucket(burst: u64) -> TokenBucket {
    TokenBucket::per_second(1).burst(burst)
}

fn beside<T>(table: &Arc<Table>, other: fn(&Table), work: impl FnOnce(&Table) -> T) -> T {
    let thread = spawn({
        let table = Arc::clone(table);
        move || other(&table)
    });
    let result = work(table);
    thread.join().unwrap();
    result
}

fn grows(table: &Table) {
    table.grow();
}

#[test]
fn a_key_that_moves_is_charged_what_it_spends() {
    for key in [MOVES, STAYS] {
        model(3, move || {
            let (rule, table) = (bucket(9), Arc::new(Table::of_one_set()));
            assert!(table.arrive(&rule, key, 1, 0));
            let spent = beside(&table, grows, |table| {
                let spent = [1, 1].map(|cost| table.spend(&bucket(9), key, cost, 0));
                spent.iter().flatten().count() as u64
            });
            let left = table.remaining(&rule, key, 0).unwrap();
            assert!(left <= 8 - spent, "{left} are left after {spent}");
            // A charge is counted twice if the key moves right after it.
            assert!(left + 1 >= 8 - spent, "{left} are left after {spent}");
            table.forget(key);
            assert!(!table.knows(key), "in one slot");
        });
    }
}

#[test]
fn a_locked_key_is_found_while_it_moves() {
    for key in [MOVES, STAYS] {
        model(3, move || {
            let (rule, table) = (bucket(9), Arc::new(Table::of_one_set()));
            assert!(table.arrive(&rule, key, 2, 0));
            let left = beside(&table, grows, |table| {
                assert_eq!(table.remaining(&bucket(9), key, 0), Some(7));
                assert!(table.arrive(&bucket(9), key, 1, 0));
                table.remaining(&bucket(9), key, 0)
            });
            assert_eq!(left, Some(6));
            table.forget(key);
            assert!(!table.knows(key), "in one slot");
        });
    }
}

/// Gives the slot that a moved key has left to another key, with the same state.
fn grows_and_fills(table: &Table) {
    if table.grow() {
        table.arrive(&bucket(9), STAYS, 1, 0);
    }
}

#[test]
fn a_key_in_a_slot_that_was_left_pays_for_no_call_that_its_predecessor_made() {
    model(3, || {
        let (rule, table) = (bucket(9), Arc::new(Table::of_one_set()));
        assert!(table.arrive(&rule, MOVES, 1, 0));
        let spent = beside(&table, grows_and_fills, |table| {
            u64::from(table.spend(&bucket(9), MOVES, 1, 0).is_some())
        });
        let moved = table.remaining(&rule, MOVES, 0).unwrap();
        assert!((7..=8).contains(&moved) && moved <= 8 - spent);
        let Some(stayed) = table.remaining(&rule, STAYS, 0) else {
            return;
        };
        // It may be charged for the other one's call, which is charged again.
        let twice = u64::from(spent == 0);
        assert!((8 - twice..=8).contains(&stayed), "{stayed} are left");
    });
}

#[test]
fn a_refusal_is_by_the_state_of_the_key_itself() {
    model(3, || {
        let (rule, table) = (bucket(9), Arc::new(Table::of_one_set()));
        assert!(table.arrive(&rule, MOVES, 1, 0));
        let decision = beside(&table, grows_and_fills, |table| {
            table.spend(&bucket(9), MOVES, 9, 0)
        });
        if let Some(decision) = decision {
            assert_eq!(decision.remaining(), Some(8));
        }
        assert_eq!(table.remaining(&rule, MOVES, 0), Some(8));
    });
}
