//! Calls of a store, as models make them.

use loom::thread::spawn;

use crate::{
    algorithm::{Algorithm, TokenBucket},
    store::local::{AtCapacity, Local},
    time::TestClock,
};

pub type Store<A = TokenBucket> = Local<A, TestClock>;

/// Creates a bucket that refills one token a second.
pub fn bucket(burst: u64) -> TokenBucket {
    TokenBucket::per_second(1).burst(burst)
}

pub fn store<A: Algorithm>(capacity: usize) -> Store<A> {
    Local::new(capacity, AtCapacity::InheritDebts, &TestClock::still())
}

/// Returns how many of so many calls were admitted.
pub fn spend<A: Algorithm>(store: &Store<A>, rule: &A, key: u64, calls: u64) -> u64 {
    (0..calls).map(|_| u64::from(store.spend(rule, key))).sum()
}

/// Runs `this`, and meanwhile `other` in a thread of its own.
pub fn beside<A: Algorithm, T: 'static>(
    store: &Store<A>,
    other: impl FnOnce(&Store<A>) -> T + 'static,
    this: impl FnOnce(&Store<A>) -> T,
) -> (T, T) {
    let of_the_other = store.clone();
    let other = spawn(move || other(&of_the_other));
    let this = this(store);
    (this, other.join().unwrap())
}
