//! The number of operations per decision.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{
    Cost, Policy, TokenBucket,
    store::{
        Backend, CasStats, Store,
        driver::{Ask, CasStore, CasStoreBuilder},
    },
    time::ManualClock,
};

use crate::cas::memory::{Memory, Ways, driver};

type Driver = CasStore<Memory, TokenBucket>;

const WAYS: Ways = Ways {
    versions: true,
    found: false,
    time: false,
    varies: false,
    gives_way: false,
    never_compares: false,
    delay: Some(Duration::from_millis(1)),
    loses: 0,
    fails: 0,
};

fn a_store(ways: Ways) -> Driver {
    driver(Memory::new(ManualClock::default(), ways))
}

async fn admits(store: &Driver, rule: &TokenBucket) -> bool {
    let policy = Policy::new("api");
    let ask = [Ask::new(&policy, rule, "alice".into(), Cost::ONE)];
    store.acquire(&ask).await.unwrap().is_admitted()
}

fn sent(store: &Driver) -> (u64, u64) {
    let CasStats { loads, swaps, .. } = store.stats();
    (loads, swaps)
}

#[tokio::test(start_paused = true)]
async fn a_decision_takes_a_load_and_a_swap_and_a_refusal_a_load() {
    let (store, rule) = (a_store(WAYS), TokenBucket::per_hour(1));
    let started = Instant::now();
    assert!(admits(&store, &rule).await);
    assert_eq!(sent(&store), (1, 1));
    assert_eq!(started.elapsed(), Duration::from_millis(2));
    // Waits until the key's task has ended.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!admits(&store, &rule).await);
    assert_eq!(sent(&store), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_state_that_no_longer_matters_is_not_stored() {
    let (store, policy) = (a_store(Ways { time: true, ..WAYS }), Policy::new("api"));
    let rule = TokenBucket::per_hour(1);
    let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    let answer = store.acquire(&ask).await.unwrap();
    let settlement = tollgate::store::driver::Settlement::new(
        &policy,
        &rule,
        "alice".into(),
        { answer.as_slice()[0] }.take_charge().unwrap(),
        0,
    )
    .unwrap();
    store.settle(vec![settlement]).await.unwrap();
    assert!(store.data().keys().is_empty());
}

async fn many(store: Driver, tasks: u64, each: u64) -> (u64, Duration) {
    let started = Instant::now();
    let tasks = (0..tasks).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let rule = TokenBucket::per_hour(1_000_000);
            let mut admitted = 0;
            for _ in 0..each {
                admitted += u64::from(admits(&store, &rule).await);
            }
            admitted
        })
    });
    let mut admitted = 0;
    for task in tasks.collect::<Vec<_>>() {
        admitted += task.await.unwrap();
    }
    assert_eq!(admitted, each * 64);
    (store.stats().loads + store.stats().swaps, started.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_takes_less_than_three_operations_for_each_decision() {
    let (sent, _) = many(a_store(WAYS), 64, 20).await;
    assert!(sent < 3 * 64 * 20, "{sent}");
    // Each swap serves all waiting calls.
    assert!(sent <= 2 * 20 + 2, "{sent}");
    let least = Ways {
        versions: false,
        ..WAYS
    };
    let (sent, _) = many(a_store(least), 64, 20).await;
    assert!(sent <= 4 * 20 + 2, "{sent}");
}

#[tokio::test(start_paused = true)]
async fn combining_and_backing_off_is_ten_times_as_fast_as_neither() {
    let clock = ManualClock::default();
    let plain = CasStoreBuilder::new(Memory::new(clock.clone(), WAYS))
        .clock(clock)
        .combining(false)
        .backoff(None)
        .attempts(u32::MAX)
        .deadline(Duration::from_secs(3600))
        .build();
    let (plainly, slow) = many(plain, 64, 6).await;
    let (combined, fast) = many(a_store(WAYS), 64, 6).await;
    assert!(fast * 10 <= slow, "{fast:?} and {slow:?}");
    assert!(combined * 10 <= plainly, "{combined} and {plainly}");
}

/// The runtime of one settlement shuts down, and another is made outside any runtime.
#[test]
fn settlements_without_a_runtime_are_counted() {
    let (rule, policy) = (TokenBucket::per_hour(10), Policy::new("api"));
    let store = a_store(Ways {
        delay: Some(Duration::from_millis(20)),
        ..WAYS
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let settlement = || {
        let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
        let answer = runtime.block_on(async { store.acquire(&ask).await.unwrap() });
        let charge = { answer.as_slice()[0] }.take_charge().unwrap();
        tollgate::store::driver::Settlement::new(&policy, &rule, "alice".into(), charge, 0).unwrap()
    };
    let [left_behind, outside] = [settlement(), settlement()];
    runtime.block_on(async { drop(store.settle(vec![left_behind])) });
    drop(runtime);
    assert_eq!(store.stats().unsettled, 1);
    drop(store.settle(vec![outside]));
    assert_eq!((store.stats().unsettled, store.unsettled()), (2, Some(2)));
}
