//! Attempts, deadlines, and the result of each call.

use std::{future::IntoFuture, sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;
use tollgate::{
    Cost, Decision, Policy, TokenBucket,
    backoff::Backoff,
    store::{
        FailureMode, Store, StoreError, StoreExt,
        driver::{Ask, CasStore, CasStoreBuilder, Check, Settlement},
    },
    time::ManualClock,
};

use crate::cas::memory::{Memory, Ways, driver};

type Driver = CasStore<Memory, TokenBucket>;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn memory(ways: Ways) -> Memory {
    Memory::new(ManualClock::default(), ways)
}

fn slow() -> Memory {
    memory(Ways {
        delay: Some(MILLI),
        versions: true,
        ..Ways::default()
    })
}

async fn acquire(store: &Driver) -> Result<Decision, StoreError> {
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(4));
    let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    store.acquire(&ask).await.map(|answer| answer.as_slice()[0])
}

#[tokio::test(start_paused = true)]
async fn a_call_that_loses_every_race_is_contended() {
    let clock = ManualClock::default();
    let store: Driver = CasStoreBuilder::new(slow())
        .clock(clock)
        .attempts(5)
        .build();
    store.data().always_loses.store(true, Ordering::Relaxed);
    assert!(acquire(&store).await.unwrap_err().is_contended());
    let stats = store.stats();
    assert_eq!(
        (stats.loads, stats.swaps, stats.lost, stats.contended),
        (5, 5, 5, 1)
    );
}

/// Calls of one client are combined into one swap. If the store takes no writes, those that are
/// refused are refused all the same.
#[tokio::test(start_paused = true)]
async fn a_refused_call_is_refused_beside_writes_that_are_not_taken() {
    for versions in [false, true] {
        let memory = memory(Ways {
            delay: Some(MILLI),
            versions,
            ..Ways::default()
        });
        let store: Driver = driver(memory);
        for _ in 0..3 {
            assert!(acquire(&store).await.unwrap().is_admitted());
        }
        store.data().is_full.store(true, Ordering::Relaxed);
        let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(4));
        let ask = |cost| Ask::new(&policy, &rule, "alice".into(), Cost::new(cost).unwrap());
        let costs = [1, 2, 1, 3, 4, 2];
        let calls = costs.map(|cost| store.acquire(&[ask(cost)]).into_future());
        for (cost, answer) in costs.into_iter().zip(join_all(calls).await) {
            match answer {
                Ok(decisions) => assert!(cost > 1 && !decisions.is_admitted(), "{cost}"),
                Err(error) => assert!(cost == 1 && error.is_unwritten(), "{cost}: {error:?}"),
            }
        }
        store.data().is_full.store(false, Ordering::Relaxed);
        assert!(acquire(&store).await.unwrap().is_admitted());
        assert!(!acquire(&store).await.unwrap().is_admitted());
    }
}

#[tokio::test(start_paused = true)]
async fn a_contended_call_follows_the_chosen_policy() {
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(4));
    let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    for (choice, admitted, wait) in [
        (FailureMode::Open, true, None),
        (FailureMode::Closed, false, None),
        (FailureMode::RetryAfter(SECOND), false, Some(SECOND)),
    ] {
        let store = driver::<TokenBucket>(slow());
        store.data().always_loses.store(true, Ordering::Relaxed);
        let wrapped = store.clone().fail_closed().when_contended(choice);
        let decide = || async { wrapped.acquire(&ask).await.unwrap().as_slice()[0] };
        let decision = decide().await;
        assert!(decision.is_undecided() && decision.is_admitted() == admitted);
        assert_eq!((decision.retry_after(), decision.limit()), (wait, None));
        assert_eq!((wrapped.contentions(), wrapped.failures()), (1, 0));
        // An outage is not contention.
        store.data().is_down.store(true, Ordering::Relaxed);
        let decision = decide().await;
        assert!(decision.is_undecided() && !decision.is_admitted());
        assert_eq!(decision.retry_after(), None);
        assert_eq!((wrapped.contentions(), wrapped.failures()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_series_of_lost_races() {
    let clock = ManualClock::default();
    let backoff = Backoff::exponential(30 * MILLI, 30 * MILLI);
    let store: Driver = CasStoreBuilder::new(slow())
        .clock(clock)
        .attempts(1000)
        .backoff(backoff)
        .build();
    store.data().always_loses.store(true, Ordering::Relaxed);
    let started = Instant::now();
    assert!(acquire(&store).await.unwrap_err().is_contended());
    // An attempt takes 2 ms, and after the 32nd there is no time for another 30.
    assert_eq!(store.stats().lost, 32);
    assert_eq!(started.elapsed(), (31 * 32 + 2) * MILLI);
}

#[tokio::test(start_paused = true)]
async fn calls_to_a_silent_store_wait_for_one_timeout_only() {
    let store = driver::<TokenBucket>(slow());
    store.data().is_silent.store(true, Ordering::Relaxed);
    let calls: Vec<_> = (0..600)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                tokio::time::sleep(n * MILLI).await;
                let started = Instant::now();
                let error = acquire(&store).await.unwrap_err();
                assert!(error.is_timeout());
                started.elapsed()
            })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap() <= SECOND + MILLI);
    }
    store.data().is_silent.store(false, Ordering::Relaxed);
    assert!(acquire(&store).await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn settlements_and_resets_are_tried_after_the_timeout_of_another_call() {
    let store = driver::<TokenBucket>(slow());
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(4));
    let charge = acquire(&store).await.unwrap().take_charge().unwrap();
    store.data().is_silent.store(true, Ordering::Relaxed);
    let call = tokio::spawn({
        let store = store.clone();
        async move { acquire(&store).await }
    });
    tokio::time::sleep(MILLI).await;
    // No caller waits for it.
    let key = "alice".into();
    drop(store.settle(vec![
        Settlement::new(&policy, &rule, key, charge, 0).unwrap(),
    ]));
    store.data().is_silent.store(false, Ordering::Relaxed);
    assert!(call.await.unwrap().unwrap_err().is_timeout());
    tokio::time::sleep(10 * MILLI).await;
    let ask = [Ask::new(&policy, &rule, key, Cost::ONE)];
    let look = store.look(&ask).await.unwrap();
    assert_eq!(look.as_slice()[0].remaining(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn combined_calls_are_admitted_in_order() {
    let store = driver::<TokenBucket>(slow());
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { acquire(&store).await.unwrap() })
        })
        .collect();
    let mut left = Vec::new();
    for call in calls {
        let decision = call.await.unwrap();
        left.push((decision.is_admitted(), decision.remaining().unwrap()));
    }
    let expected = [(true, 3), (true, 2), (true, 1), (true, 0)];
    assert_eq!(left[..4], expected);
    assert!(left[4..].iter().all(|answer| *answer == (false, 0)));
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_delays() {
    let mut times = Vec::new();
    for seed in [1, 1, 2] {
        let clock = ManualClock::default();
        let ways = Ways {
            loses: 2,
            delay: Some(MILLI),
            ..Ways::default()
        };
        let store: Driver = CasStoreBuilder::new(memory(ways))
            .clock(clock)
            .backoff(Backoff::full(SECOND, SECOND))
            .deadline(60 * SECOND)
            .seed(seed)
            .build();
        let started = Instant::now();
        for _ in 0..20 {
            acquire(&store).await.unwrap();
        }
        assert!(store.stats().lost > 1);
        times.push(started.elapsed());
    }
    assert_eq!(times[0], times[1]);
    assert_ne!(times[0], times[2]);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_turn_is_not_charged() {
    let store = driver::<TokenBucket>(slow());
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(4));
    let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    let first = store.acquire(&ask);
    let second = store.acquire(&ask);
    tokio::time::sleep(MILLI / 2).await;
    let third = store.acquire(&ask);
    drop(third);
    assert_eq!(second.await.unwrap().as_slice()[0].remaining(), Some(2));
    assert_eq!(first.await.unwrap().as_slice()[0].remaining(), Some(3));
    assert_eq!(acquire(&store).await.unwrap().remaining(), Some(1));
}

#[test]
fn a_runtime_that_shuts_down_does_not_block_another() {
    let store = driver::<TokenBucket>(memory(Ways::default()));
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    };
    store.data().is_silent.store(true, Ordering::Relaxed);
    let first = runtime();
    let waiting = first.block_on(async {
        let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(4));
        let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
        let answers = [store.acquire(&ask), store.acquire(&ask)];
        tokio::time::sleep(MILLI).await;
        answers
    });
    drop(first);
    store.data().is_silent.store(false, Ordering::Relaxed);
    runtime().block_on(async {
        for answer in waiting {
            assert!(answer.await.unwrap_err().is_unavailable());
        }
        assert_eq!(acquire(&store).await.unwrap().remaining(), Some(3));
    });
    // Outside any runtime no task can do it.
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(4));
    let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    assert!(matches!(store.acquire(&ask), Check::Ready(Err(_))));
    assert!(matches!(store.look(&ask), Check::Ready(Err(_))));
    let reset = store.reset(&policy, &"alice".into());
    assert!(matches!(reset, Check::Ready(Err(_))));
}
