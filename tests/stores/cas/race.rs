//! Many tasks on several nodes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join3;
use tollgate::{
    Cost, Policy, TokenBucket,
    store::{
        Store,
        driver::{Ask, CasStore, CasStoreBuilder},
    },
    time::ManualClock,
};

use crate::cas::memory::{Memory, Ways, driver};

const NODES: usize = 4;
const TASKS: usize = 64;

fn nodes(ways: Ways) -> Vec<CasStore<Memory, TokenBucket>> {
    let memory = Memory::new(ManualClock::default(), ways);
    let node = |n| {
        CasStoreBuilder::new(memory.node(n))
            .clock(memory.clock.clone())
            .attempts(10_000)
            .deadline(Duration::from_secs(60))
            .build()
    };
    (0..NODES as u64).map(node).collect()
}

const ALL: [Ways; 3] = [
    Ways {
        versions: false,
        found: false,
        time: false,
        varies: false,
        gives_way: true,
        never_compares: false,
        delay: None,
        loses: 0,
        fails: 0,
    },
    Ways {
        versions: true,
        found: false,
        time: false,
        varies: false,
        gives_way: false,
        never_compares: false,
        delay: None,
        loses: 0,
        fails: 0,
    },
    Ways {
        versions: true,
        found: true,
        time: true,
        varies: false,
        gives_way: true,
        never_compares: false,
        delay: None,
        loses: 0,
        fails: 0,
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_the_limit_is_admitted() {
    const LIMIT: u64 = 500;
    for ways in ALL {
        let nodes = nodes(ways);
        let tasks = (0..TASKS).map(|n| {
            let store = nodes[n % NODES].clone();
            tokio::spawn(async move {
                let (policy, rule) = (Policy::new("api"), TokenBucket::per_day(LIMIT));
                let mut left = Vec::new();
                for _ in 0..20 {
                    let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
                    let answer = store.acquire(&ask).await.unwrap();
                    if answer.is_admitted() {
                        left.push(answer.as_slice()[0].remaining().unwrap());
                    }
                }
                left
            })
        });
        let mut left = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            left.extend(task.await.unwrap());
        }
        left.sort_unstable();
        // Each unit is admitted once, as in a sequential execution.
        assert_eq!(left, (0..LIMIT).collect::<Vec<_>>());
    }
}

/// Either both keys are charged, or neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_keys_are_spent_together_or_not_at_all() {
    let (first, second) = (TokenBucket::per_day(300), TokenBucket::per_day(200));
    for ways in ALL {
        let nodes = nodes(ways);
        let tasks = (0..TASKS).map(|n| {
            let (store, rules) = (nodes[n % NODES].clone(), [first, second]);
            tokio::spawn(async move {
                let policy = Policy::new("api");
                let mut admitted = 0;
                for _ in 0..8 {
                    let mut asks = vec![
                        Ask::new(&policy, &rules[0], "alice".into(), Cost::ONE),
                        Ask::new(&policy, &rules[1], "bob".into(), Cost::ONE),
                    ];
                    if n % 2 == 0 {
                        asks.reverse();
                    }
                    let answer = store.acquire(&asks).await.unwrap();
                    assert_eq!(answer.as_slice().len(), 2);
                    admitted += u64::from(answer.is_admitted());
                }
                admitted
            })
        });
        let mut admitted = 0;
        for task in tasks.collect::<Vec<_>>() {
            admitted += task.await.unwrap();
        }
        let policy = Policy::new("api");
        let asks = [
            Ask::new(&policy, &first, "alice".into(), Cost::ONE),
            Ask::new(&policy, &second, "bob".into(), Cost::ONE),
        ];
        let looks = nodes[0].look(&asks).await.unwrap();
        let left: Vec<_> = looks
            .as_slice()
            .iter()
            .map(|look| look.remaining())
            .collect();
        assert!(admitted > 100 && admitted <= 200, "{admitted}");
        assert_eq!(left, [Some(300 - admitted), Some(200 - admitted)]);
    }
}

#[tokio::test]
async fn nothing_is_written_if_one_key_refuses() {
    let store = &nodes(ALL[0])[0];
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_day(3));
    let two = Cost::new(2).unwrap();
    let bob = [Ask::new(&policy, &rule, "bob".into(), two)];
    assert!(store.acquire(&bob).await.unwrap().is_admitted());
    let swaps = store.stats().swaps;
    let both = [
        Ask::new(&policy, &rule, "alice".into(), two),
        Ask::new(&policy, &rule, "bob".into(), two),
    ];
    let answer = store.acquire(&both).await.unwrap();
    let numbers: Vec<_> = answer
        .as_slice()
        .iter()
        .map(|decision| (decision.is_admitted(), decision.remaining()))
        .collect();
    assert_eq!(numbers, [(true, Some(3)), (false, Some(1))]);
    assert_eq!(store.stats().swaps, swaps);
}

/// Another node spends the second key between the look of a call about two keys and its charge. From
/// each instant on in turn, the store fails.
#[tokio::test(start_paused = true)]
async fn charges_that_are_not_returned_are_counted() {
    const FAULTS: [fn(&Memory) -> &Arc<AtomicBool>; 4] = [
        |memory| &memory.is_silent,
        |memory| &memory.is_down,
        |memory| &memory.is_full,
        |memory| &memory.always_loses,
    ];
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_day(1));
    let ask = |key: &str| Ask::new(&policy, &rule, key.into(), Cost::ONE);
    let spends = async |store: &CasStore<_, _>, keys: &[&str]| {
        let asks: Vec<_> = keys.iter().map(|key| ask(key)).collect();
        let answer = store.acquire(&asks).await;
        u64::from(answer.is_ok_and(|decisions| decisions.is_admitted()))
    };
    for (n, fault) in FAULTS.iter().enumerate() {
        let mut counted = 0;
        for millis in 0..40 {
            let ways = Ways {
                delay: Some(Duration::from_millis(5)),
                ..Ways::default()
            };
            let memory = Memory::new(ManualClock::default(), ways);
            let mut node = memory.node(1);
            node.ways.delay = None;
            let fault = Arc::clone(fault(&memory));
            let (store, other) = (driver(memory), driver(node));
            let race = async {
                tokio::time::sleep(Duration::from_millis(7)).await;
                spends(&other, &["bob"]).await
            };
            let fails = async {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                fault.store(true, Ordering::Relaxed);
            };
            let call = spends(&store, &["alice", "bob"]);
            let (by_call, by_other, ()) = join3(call, race, fails).await;
            fault.store(false, Ordering::Relaxed);
            let looks = store.look(&["alice", "bob"].map(ask)).await.unwrap();
            let left = looks
                .as_slice()
                .iter()
                .map(|look| look.remaining().unwrap());
            let charged = 2 - left.sum::<u64>();
            let unsettled = store.stats().unsettled;
            let about = format!("fault {n} after {millis} ms");
            assert_eq!(charged - 2 * by_call - by_other, unsettled, "{about}");
            counted += unsettled;
        }
        assert!(counted > 0, "fault {n}");
    }
}
