//! Calls that are dropped before they are answered.

use std::{future::IntoFuture, pin::pin, task::Poll};

use futures_util::poll;
use tollgate::{FixedWindow, key::Key, store::Store, time::ManualClock};

use super::{Node, acquire, ask, cache::Cache, node, settle};

/// Polls a call so often and drops it; whether it was answered.
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

/// Until all that goes on by itself has come to its end.
async fn quiet() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_that_was_not_polled_asks_nothing() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let store = node(&cache, &clock);
    assert!(!dropped(&store, &FixedWindow::per_hour(3), 1, 0).await);
    quiet().await;
    assert_eq!(cache.ops().all(), 0);
}

/// Wherever it is dropped: what passes is charged, what is refused is taken back.
#[tokio::test]
async fn a_call_that_is_dropped_goes_on() {
    let mut unanswered = [0; 2];
    for seed in 0..8 {
        for polls in 1..20 {
            let clock = ManualClock::default();
            let cache = Cache::new(&clock).slow(seed, 6);
            let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(3));
            unanswered[0] += u32::from(!dropped(&store, &rule, 2, polls).await);
            quiet().await;
            assert_eq!(cache.only(), 2, "seed {seed}, {polls} polls");
            unanswered[1] += u32::from(!dropped(&store, &rule, 2, polls).await);
            quiet().await;
            assert_eq!(cache.only(), 2, "seed {seed}, {polls} polls");
            let ops = cache.ops();
            assert_eq!(ops.adds - ops.subtracts, 1, "seed {seed}, {polls} polls");
        }
    }
    assert!(unanswered.iter().all(|calls| *calls > 20), "{unanswered:?}");
}

/// Who begins calls that are refused and drops each of them keeps nobody out.
#[tokio::test]
async fn knocking_and_running_away_charges_nothing() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock).slow(3, 6);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(10));
    let whole = acquire(&store, &rule, 10).await.unwrap();
    for n in 0..200 {
        // As a node that has no memory of it.
        dropped(&node(&cache, &clock), &rule, 1 + n % 10, 1 + n as u32 % 5).await;
    }
    quiet().await;
    assert_eq!(cache.only(), 10);
    assert!(cache.ops().subtracts > 50, "{:?}", cache.ops());
    settle(&store, &rule, &whole, 0).await.unwrap();
    assert!(acquire(&store, &rule, 10).await.unwrap().is_admitted());
}

/// Corrections and resets need nobody who waits.
#[tokio::test]
async fn settlements_and_resets_go_on() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock).slow(5, 6);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(10));
    let decision = acquire(&store, &rule, 8).await.unwrap();
    let settlement = tollgate::store::Settlement::new(
        super::policy(),
        &rule,
        Key::GLOBAL,
        { decision }.take_charge().unwrap(),
        3,
    )
    .unwrap();
    drop(store.settle(vec![settlement]));
    quiet().await;
    assert_eq!(cache.only(), 3);
    drop(store.reset(super::policy(), &Key::GLOBAL));
    quiet().await;
    assert_eq!(cache.only(), 0);
}
