//! The clock that decisions are made by.

use std::time::Duration;

use tollgate::{
    Cost, Decision, Policy, Timestamp, TokenBucket,
    store::{
        Store,
        driver::{Ask, CasStore, CasStoreBuilder},
    },
    time::{Clock, ManualClock},
};

use crate::cas::memory::{Memory, Ways};

type Driver = CasStore<Memory, TokenBucket, ManualClock>;

const SECOND: Duration = Duration::from_secs(1);

fn node(memory: &Memory, clock: &ManualClock) -> Driver {
    CasStoreBuilder::new(memory.node(0))
        .clock(clock.clone())
        .build()
}

async fn acquire(store: &Driver) -> Decision {
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(1).burst(5));
    let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    store.acquire(&ask).await.unwrap().as_slice()[0]
}

/// A key whose worker never rests, after a swap that was lost with the value that is there: the time
/// that came with it is not that of all later decisions.
#[tokio::test(start_paused = true)]
async fn a_lost_swap_does_not_set_the_time_of_a_busy_key() {
    let delay = Duration::from_millis(5);
    let ways = Ways {
        time: true,
        versions: true,
        found: true,
        delay: Some(delay),
        ..Ways::default()
    };
    let clock = ManualClock::new(Timestamp::from_nanos(1_000_000_000_000));
    let (memory, own) = (Memory::new(clock.clone(), ways), ManualClock::default());
    let store = node(&memory, &own);
    memory
        .always_loses
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = store.clone();
        callers.spawn(async move {
            let mut at = Timestamp::default();
            for _ in 0..50 {
                at = at.max(acquire(&store).await.at());
            }
            at
        });
    }
    tokio::time::sleep(3 * delay).await;
    memory
        .always_loses
        .store(false, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..100 {
        tokio::time::sleep(delay).await;
        own.advance(SECOND);
    }
    let latest = callers.join_all().await.into_iter().max().unwrap();
    assert!(latest.saturating_since(clock.now()) <= SECOND, "{latest:?}");
}

/// A host that is ahead spends its lead in advance, once.
#[tokio::test(start_paused = true)]
async fn clocks_that_differ_admit_the_refill_of_their_difference_extra() {
    const AHEAD: u64 = 4;
    let begin = Timestamp::from_nanos(1_000_000_000_000);
    let right = ManualClock::new(begin);
    let ahead = ManualClock::new(begin.saturating_add(Duration::from_secs(AHEAD)));
    let memory = Memory::new(right.clone(), Ways::default());
    let nodes = [node(&memory, &right), node(&memory, &ahead)];
    let mut admitted = 0;
    for second in 0..100 {
        // Both nodes are called until they refuse, in alternating order.
        for n in [second % 2, 1 - second % 2] {
            for _ in 0..10 {
                admitted += u64::from(acquire(&nodes[n]).await.is_admitted());
            }
        }
        right.advance(SECOND);
        ahead.advance(SECOND);
    }
    // The burst, the refill of 99 s, and the lead.
    assert_eq!(admitted, 5 + 99 + AHEAD);
}

#[tokio::test(start_paused = true)]
async fn all_nodes_decide_by_the_stores_time_if_it_returns_one() {
    let ways = Ways {
        time: true,
        versions: true,
        ..Ways::default()
    };
    let clock = ManualClock::new(Timestamp::from_nanos(1_000_000_000_000));
    let (memory, own) = (Memory::new(clock.clone(), ways), ManualClock::default());
    let store = node(&memory, &own);
    for _ in 0..4 {
        assert_eq!(acquire(&store).await.at(), clock.now());
        // The store's time is extrapolated for a while, and then read again.
        for step in [SECOND / 4, SECOND / 2] {
            own.advance(step);
            clock.advance(step);
            assert_eq!(acquire(&store).await.at(), clock.now());
        }
        own.advance(60 * SECOND);
        clock.advance(3 * SECOND);
    }
}
