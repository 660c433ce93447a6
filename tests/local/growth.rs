//! The table of the store in memory while it grows, by threads that insert and charge the same
//! keys.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tollgate::{
    Cost, FixedWindow, Policy, TokenBucket,
    algorithm::Algorithm,
    store::{Local, LocalBuilder, driver::Ask},
    time::ManualClock,
};

const THREADS: u64 = 4;
const LIMIT: u64 = 6;

/// Each thread calls each key twice, in an order of its own. Returns how often each key was
/// admitted.
fn admitted<A: Algorithm>(rule: &A, keys: u64) -> (Vec<u64>, Local<A, ManualClock>)
where
{
    let store: Local<A, _> = LocalBuilder::new().clock(ManualClock::default()).build();
    let (policy, start) = (Policy::default(), Barrier::new(THREADS as usize));
    let admitted: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, policy, start, admitted) = (&store, &policy, &start, &admitted);
            scope.spawn(move || {
                start.wait();
                for call in 0..2 * keys {
                    // Threads begin with the same new keys, and then drift apart.
                    let key = (call * (1 + 2 * (thread / 2))) % keys;
                    let ask = Ask::new(policy, rule, key.into(), Cost::ONE);
                    if store.decide(&ask).is_admitted() {
                        admitted[key as usize].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let admitted = admitted.into_iter().map(AtomicU64::into_inner).collect();
    (admitted, store)
}

fn check<A: Algorithm>(rule: &A, rounds: u64) {
    for round in 0..rounds {
        // A power of two, so that each thread visits all keys.
        let keys = 1 << (9 + round % 5);
        let (admitted, store) = admitted(rule, keys);
        let stats = store.stats();
        assert_eq!(
            (stats.keys as u64, stats.inserted),
            (keys, keys),
            "{stats:?}"
        );
        assert_eq!((stats.forgotten, stats.evicted), (0, 0), "{stats:?}");
        // A call may be charged twice if its key moves at that moment. No call may be lost.
        let too_many = admitted
            .iter()
            .filter(|admitted| **admitted > LIMIT)
            .count();
        let too_few = admitted
            .iter()
            .filter(|admitted| **admitted < LIMIT)
            .count();
        assert_eq!(too_many, 0, "of {keys} keys");
        assert!(too_few <= 2, "{too_few} of {keys} keys");
    }
}

#[test]
fn keys_that_move_keep_their_limits() {
    // At least twice each number of keys.
    let rounds = support::cases(40).max(10);
    check(&TokenBucket::per_hour(LIMIT), rounds);
    check(&FixedWindow::per_hour(LIMIT), rounds);
}

/// Most states of a fixed window are equal. So a key that takes the former slot of another key may
/// have the same word, and be charged for it.
#[test]
#[ignore = "takes a minute where it is optimized: `./test.sh slow`"]
fn slow_keys_that_move_keep_their_limits() {
    check(&FixedWindow::per_hour(LIMIT), 4_000);
}
