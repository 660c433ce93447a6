//! States in two words, in the table of the store in memory: at the capacity, and under several
//! threads.

use std::{sync::Barrier, thread, time::Duration};

use tollgate::{
    AnyRule, Cascade, Cost, Decision, Policy, ThreeColor, TokenBucket, Verdict,
    algorithm::{Algorithm, packed::InMemory},
    store::{Local, LocalBuilder, driver::Ask},
    time::ManualClock,
};

fn store<A: Algorithm>(clock: &ManualClock, capacity: usize) -> Local<A, ManualClock> {
    let builder = LocalBuilder::new().capacity(capacity);
    builder.clock(clock.clone()).build()
}

fn spend<A: Algorithm>(store: &Local<A, ManualClock>, rule: &A, key: u64) -> Decision {
    store.decide(&Ask::new(&Policy::default(), rule, key.into(), Cost::ONE))
}

fn rules() -> [AnyRule; 3] {
    [
        "token-bucket 2/1s & token-bucket 60/1m",
        "cascade 1/1s > 1/1s burst=1",
        "three-color 2/1m burst=1 peak=2/1s peak-burst=2",
    ]
    .map(|text| text.parse().unwrap())
}

/// Such a key cannot inherit a debt, so it evicts none. Once other keys have expired, it takes
/// their slots.
#[test]
fn at_the_capacity_new_keys_take_the_slots_of_expired_ones_only() {
    for rule in rules() {
        assert!(rule.two_buckets().is_some());
        let clock = ManualClock::default();
        let store = store(&clock, 1_000);
        for key in 0..1_000 {
            assert!(spend(&store, &rule, key).is_admitted());
        }
        let turned_away = spend(&store, &rule, 5_000);
        assert_eq!(
            turned_away.verdict(),
            Verdict::Undecided { admitted: false }
        );
        assert!(spend(&store, &rule, 0).is_admitted(), "a known key");
        assert!(!spend(&store, &rule, 0).is_admitted(), "{rule} admits two");

        clock.advance(Duration::from_secs(60));
        // The search for an expired key is bounded, so not all of them are found in the end.
        for key in 10_000..10_500 {
            assert!(spend(&store, &rule, key).is_admitted(), "{rule}");
        }
        let stats = store.stats();
        assert_eq!((stats.inserted, stats.evicted), (1_500, 0));
        assert_eq!(stats.keys as u64, 1_500 - stats.forgotten);
    }
}

/// Threads call the same keys while the table grows. Each key is admitted exactly as often as its
/// rule allows.
#[test]
fn threads_that_insert_and_charge_admit_exactly_the_limit() {
    const KEYS: u64 = 5_000;
    fn check<A: Algorithm>(rule: &A, limit: u64) {
        for _ in 0..support::cases(4).max(2) {
            let (store, start) = (store(&ManualClock::default(), 1_000_000), Barrier::new(4));
            let calls = &|first: u64| {
                start.wait();
                let keys = (0..2 * KEYS).map(|call| (first + call * 7) % KEYS);
                keys.map(|key| u64::from(spend(&store, rule, key).is_admitted()))
                    .sum::<u64>()
            };
            let admitted: u64 = thread::scope(|scope| {
                let threads = [0, 1, KEYS / 2, KEYS - 1];
                let threads = threads.map(|first| scope.spawn(move || calls(first)));
                threads.map(|thread| thread.join().unwrap()).iter().sum()
            });
            assert_eq!((admitted, store.len() as u64), (limit * KEYS, KEYS));
        }
    }
    // Each key is called eight times.
    let bucket = |burst| TokenBucket::per_second(1).burst(burst);
    check(&(bucket(5), bucket(3)), 3);
    check(&Cascade::new(bucket(2)).then(bucket(4)), 6);
    let marker: ThreeColor = "three-color 1/1m burst=2 peak=1/1s peak-burst=5"
        .parse()
        .unwrap();
    check(&marker, 5);
}
