//! Blocks on stores that fail, are slow, or race with other nodes.

use std::{future::Future, pin::pin, time::Duration};

use tollgate::{
    AnyRule, FixedWindow, LeakyBucket, Limiter, TokenBucket,
    algorithm::{Algorithm, Blockable},
    store::{CircuitBreakerConfig, Local, Store, StoreExt},
    testing::{Fault, Faulty},
    time::ManualClock,
};

use super::{SECOND, cost, local, policy};

/// Polls a future a few times, and drops it.
async fn give_up(future: impl Future) {
    let mut future = pin!(future);
    for _ in 0..3 {
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx)));
        assert!(polled.await.is_pending());
    }
}

/// Without a wrapper outside, the caller gets the store's error.
#[tokio::test]
async fn an_error_is_returned_and_counted() {
    let faulty = Faulty::new(local().0);
    let faults = faulty.faults();
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(2), faulty.with_blocks());
    for _ in 0..2 {
        faults.script([Some(Fault::Unavailable)]);
        let error = limiter.block("mallory", SECOND).unwrap().await.unwrap_err();
        assert!(error.is_unavailable());
    }
    assert_eq!((limiter.store().made(), limiter.store().failed()), (0, 2));
    faults.script([Some(Fault::Unavailable)]);
    assert!(
        limiter
            .check("mallory", cost(1))
            .await
            .unwrap_err()
            .is_unavailable()
    );
    assert!(
        limiter
            .check("mallory", cost(1))
            .await
            .unwrap()
            .is_admitted()
    );
    let blocked = limiter.block("mallory", SECOND).unwrap().await.unwrap();
    assert_eq!(blocked, Some(SECOND));
    faults.script([Some(Fault::Unavailable)]);
    assert!(
        limiter
            .unblock("mallory")
            .await
            .unwrap_err()
            .is_unavailable()
    );
    faults.script([Some(Fault::Unavailable)]);
    assert!(
        limiter
            .grant("mallory", 1)
            .await
            .unwrap_err()
            .is_unavailable()
    );
}

/// The request stays refused, and its key is blocked by the next one.
#[tokio::test]
async fn a_block_that_is_not_written_is_tried_again() {
    let faulty = Faulty::new(local().0);
    let faults = faulty.faults();
    let blocks = faulty
        .with_blocks()
        .block_after(2, 60 * SECOND, 30 * SECOND);
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(1), blocks);
    let refused = async || {
        let decision = limiter.check("mallory", cost(2)).await.unwrap();
        assert!(!decision.is_admitted() && !decision.is_undecided());
    };
    refused().await;
    // A look at the block, the call, and the write, which fails.
    faults.script([None, None, Some(Fault::Unavailable)]);
    refused().await;
    assert_eq!((limiter.store().made(), limiter.store().failed()), (0, 1));
    // The write is made, but its answer is lost.
    faults.script([None, None, Some(Fault::Lost)]);
    refused().await;
    assert_eq!((limiter.store().made(), limiter.store().failed()), (0, 2));
    refused().await;
    assert_eq!(limiter.store().refused(), 1);
    let left = limiter.look("mallory").await.unwrap().retry_after();
    assert_eq!(left, Some(30 * SECOND), "one block, not two");
}

/// A request that is given up while it blocks its key leaves that to the next one.
#[tokio::test]
async fn a_dropped_request_is_counted_and_stops_no_other() {
    let faulty = Faulty::new(local().0);
    let faults = faulty.faults();
    let blocks = faulty
        .with_blocks()
        .block_after(1, 60 * SECOND, 30 * SECOND);
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(1), blocks);
    faults.script([None, None, Some(Fault::Silent)]);
    give_up(limiter.check("mallory", cost(2)).into_future()).await;
    assert_eq!((limiter.store().made(), limiter.store().failed()), (0, 1));
    let decision = limiter.check("mallory", cost(2)).await.unwrap();
    assert!(!decision.is_admitted());
    assert_eq!((limiter.store().made(), limiter.store().failed()), (1, 1));
}

/// Outside of `fail_open`, a store that fails blocks nobody, and `block` says so.
#[tokio::test]
async fn outside_of_fail_open_no_key_is_blocked_while_the_store_fails() {
    let faulty = Faulty::new(local().0);
    let faults = faulty.faults();
    let limiter = Limiter::new(
        policy(),
        TokenBucket::per_hour(5),
        faulty.fail_open().with_blocks(),
    );
    assert_eq!(
        limiter.block("mallory", SECOND).unwrap().await,
        Some(SECOND)
    );
    assert!(!limiter.check("mallory", cost(1)).await.is_admitted());
    faults.always(Fault::Unavailable);
    let decision = limiter.check("mallory", cost(1)).await;
    assert!(decision.is_admitted() && decision.is_undecided());
    assert_eq!(limiter.block("mallory", 2 * SECOND).unwrap().await, None);
    assert!(limiter.grant("mallory", 1).await.is_undecided());
    limiter.unblock("mallory").await;
    faults.none();
    assert!(!limiter.check("mallory", cost(1)).await.is_admitted());
    assert_eq!((limiter.store().made(), limiter.store().failed()), (1, 1));
}

/// Inside of `fail_closed`, remembered refusals and a box.
#[tokio::test]
async fn blocks_work_inside_of_other_wrappers() {
    let blocks = Faulty::new(local().0).with_blocks();
    let boxed = blocks.clone().boxed().remember_refusals().fail_closed();
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(5), boxed);
    assert!(limiter.check("mallory", cost(1)).await.is_admitted());
    let blocked = blocks.block(&policy(), "mallory", 60 * SECOND).unwrap();
    assert_eq!(blocked.await.unwrap(), Some(60 * SECOND));
    for _ in 0..5 {
        let decision = limiter.check("mallory", cost(1)).await;
        assert!(!decision.is_admitted() && !decision.is_undecided());
    }
    // The others were remembered.
    assert_eq!(blocks.refused(), 1);
}

/// A refused block is no refusal that is remembered: another node may have unblocked the key
/// meanwhile.
#[tokio::test]
async fn blocks_around_remembered_refusals_are_made() {
    let (store, _) = local();
    let rule = TokenBucket::per_hour(5);
    let one = Limiter::new(
        policy(),
        rule,
        store.clone().remember_refusals().with_blocks(),
    );
    let other = Limiter::new(policy(), rule, store.with_blocks());
    for _ in 0..3 {
        let _ = one.block("mallory", 60 * SECOND).unwrap().await;
        for _ in 0..2 {
            let left = one.block("mallory", SECOND).unwrap().await;
            assert_eq!(left, Some(60 * SECOND));
        }
        other.unblock("mallory").await;
        let left = one.block("mallory", SECOND).unwrap().await;
        assert_eq!(left, Some(SECOND));
        assert!(!other.check("mallory", cost(1)).await.is_admitted());
    }
}

/// While the remote store fails, blocks are kept in the local one.
#[tokio::test]
async fn blocks_work_around_a_fallback() {
    let faulty = Faulty::new(local().0);
    let faults = faulty.faults();
    let store = faulty.fall_back_to(local().0).share(1, 2);
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(10), store.with_blocks());
    faults.always(Fault::Unavailable);
    let blocked = limiter.block("mallory", 60 * SECOND).unwrap().await;
    assert_eq!(blocked, Some(60 * SECOND));
    assert!(!limiter.check("mallory", cost(1)).await.is_admitted());
    assert!(limiter.check("alice", cost(5)).await.is_admitted());
    assert!(!limiter.check("alice", cost(1)).await.is_admitted());
    faults.none();
    assert!(limiter.check("mallory", cost(1)).await.is_admitted());
}

#[tokio::test]
async fn blocks_work_around_a_box() {
    let boxed = local().0.boxed();
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(5), boxed.with_blocks());
    assert_eq!(
        limiter.block("mallory", SECOND).unwrap().await,
        Some(SECOND)
    );
    assert!(!limiter.check("mallory", cost(1)).await.is_admitted());
}

/// Nodes that block a key at the same time: the longest block holds.
async fn races<A>(rule: A)
where
    A: Algorithm,
    Local<Blockable<A>, ManualClock>: Store<Blockable<A>, Error = std::convert::Infallible>,
{
    for (a, b) in [(60, 60), (60, 5), (5, 60)] {
        for before in [0, 3] {
            let (store, clock) = local();
            let node = || {
                let faulty = Faulty::new(store.clone());
                faulty.faults().always(Fault::Late(2));
                Limiter::new(policy(), rule.clone(), faulty.with_blocks())
            };
            let (first, second) = (node(), node());
            if before > 0 {
                let _ = first.block("mallory", before * SECOND).unwrap().await;
                clock.advance(SECOND);
            }
            let (x, y) = tokio::join!(
                first.block("mallory", a * SECOND).unwrap().into_future(),
                second.block("mallory", b * SECOND).unwrap().into_future(),
            );
            let longest = Duration::from_secs(a.max(b).into());
            assert!(x.unwrap() >= Some(a * SECOND) && y.unwrap() >= Some(b * SECOND));
            let left = first.look("mallory").await.unwrap().retry_after();
            assert_eq!(left, Some(longest), "{a} s and {b} s after {before} s");
        }
    }
}

#[tokio::test]
async fn the_longest_of_blocks_that_race_holds() {
    races(TokenBucket::per_hour(5)).await;
    races(LeakyBucket::per_hour(5)).await;
    races(FixedWindow::per_hour(5)).await;
    races((TokenBucket::per_hour(5), TokenBucket::per_hour(6))).await;
    races("sliding-log 5/1h".parse::<AnyRule>().unwrap()).await;
}

/// In the usual order of wrappers. While the remote store fails, the local one decides, and has no
/// blocks.
#[tokio::test(start_paused = true)]
async fn blocks_fit_between_the_other_wrappers() {
    let faulty = Faulty::new(local().0);
    let faults = faulty.faults();
    let blocks = faulty
        .timeout(SECOND)
        .circuit_breaker(CircuitBreakerConfig::new())
        .with_blocks()
        .block_after(3, 60 * SECOND, 600 * SECOND);
    let store = blocks
        .clone()
        .remember_refusals()
        .fall_back_to(local().0)
        .share(1, 1);
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(2), store);
    faults.always(Fault::Unavailable);
    assert!(limiter.check("mallory", cost(1)).await.is_admitted());
    faults.none();
    assert!(limiter.check("mallory", cost(2)).await.is_admitted());
    // The second one is remembered, and counts.
    for _ in 0..2 {
        assert!(!limiter.check("mallory", cost(1)).await.is_admitted());
    }
    assert_eq!(blocks.made(), 0);
    let inner = Limiter::new(policy(), TokenBucket::per_hour(2), blocks.clone());
    assert!(!inner.check("mallory", cost(1)).await.unwrap().is_admitted());
    assert_eq!(blocks.made(), 1);
    let blocked = blocks.block(&policy(), "alice", 60 * SECOND).unwrap();
    assert_eq!(blocked.await.unwrap(), Some(60 * SECOND));
    assert!(!limiter.check("alice", cost(1)).await.is_admitted());
    faults.always(Fault::Unavailable);
    let error = blocks.block(&policy(), "bob", SECOND).unwrap().await;
    assert!(error.unwrap_err().is_unavailable());
    assert!(limiter.check("bob", cost(1)).await.is_admitted());
}
