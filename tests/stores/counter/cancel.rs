//! Calls that are dropped before they complete.

use std::{future::IntoFuture, pin::pin, task::Poll};

use futures_util::poll;
use tollgate::{FixedWindow, key::Key, store::Store, time::ManualClock};

use super::{Node, acquire, ask, cache::Cache, node, settle};

/// Polls a call this many times and drops it. Returns `true` if it completed.
async fn dropped(store: &Node<FixedWindow>, rule: &FixedWindow, cost: u64, polls: u32) -> bool {
    let call = store.acquire(&[ask(rule, Key::GLOBAL, cost)]).into_future();
    let mut call = pin!(call);
    for _ in 0..polls {
        if let Poll::Ready(answer) = poll!(call.as_mut()) {
            answer.unwrap();
            return true;
        }
    }
    false
}

/// Waits until all background work has ended.
async fn background_work_ended() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_that_was_not_polled_sends_nothing() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let store = node(&cache, &clock);
    assert!(!dropped(&store, &FixedWindow::per_hour(3), 1, 0).await);
    background_work_ended().await;
    assert_eq!(cache.ops().all(), 0);
}

/// Dropped at any point: the call is charged if admitted, and taken back if refused.
#[tokio::test]
async fn a_dropped_call_completes_in_the_background() {
    let mut unanswered = [0; 2];
    for seed in 0..8 {
        for polls in 1..20 {
            let clock = ManualClock::default();
            let cache = Cache::new(&clock).slow(seed, 6);
            let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(3));
            unanswered[0] += u32::from(!dropped(&store, &rule, 2, polls).await);
            background_work_ended().await;
            assert_eq!(cache.only(), 2, "seed {seed}, {polls} polls");
            unanswered[1] += u32::from(!dropped(&store, &rule, 2, polls).await);
            background_work_ended().await;
            assert_eq!(cache.only(), 2, "seed {seed}, {polls} polls");
            let ops = cache.ops();
            assert_eq!(ops.adds - ops.subtracts, 1, "seed {seed}, {polls} polls");
        }
    }
    assert!(unanswered.iter().all(|calls| *calls > 20), "{unanswered:?}");
}

/// A client that starts and drops calls that would be refused does not use up the limit.
#[tokio::test]
async fn dropped_calls_that_would_be_refused_charge_nothing() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock).slow(3, 6);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(10));
    let whole = acquire(&store, &rule, 10).await.unwrap();
    for n in 0..200 {
        // A new node, which does not remember the refusal.
        dropped(&node(&cache, &clock), &rule, 1 + n % 10, 1 + n as u32 % 5).await;
    }
    background_work_ended().await;
    assert_eq!(cache.only(), 10);
    assert!(cache.ops().subtracts > 50, "{:?}", cache.ops());
    settle(&store, &rule, &whole, 0).await.unwrap();
    assert!(acquire(&store, &rule, 10).await.unwrap().is_admitted());
}

/// Settlements and resets complete although their futures are dropped.
#[tokio::test]
async fn dropped_settlements_and_resets_complete_in_the_background() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock).slow(5, 6);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(10));
    let decision = acquire(&store, &rule, 8).await.unwrap();
    let settlement = tollgate::store::driver::Settlement::new(
        super::policy(),
        &rule,
        Key::GLOBAL,
        { decision }.take_charge().unwrap(),
        3,
    )
    .unwrap();
    drop(store.settle(vec![settlement]));
    background_work_ended().await;
    assert_eq!(cache.only(), 3);
    drop(store.reset(super::policy(), &Key::GLOBAL));
    background_work_ended().await;
    assert_eq!(cache.only(), 0);
}
