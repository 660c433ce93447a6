//! Calls that the store decides, because the number of nodes is not known yet or there is no room
//! for them, do not overlap with decisions of this node, and hold them up no longer than some
//! periods.

use std::{future::IntoFuture, time::Duration};

use futures_util::poll;
use tollgate::{
    Policy, TokenBucket,
    store::{Store, StoreExt, SyncConfig, driver::Ask},
    testing::Fault,
};

use crate::synced::nodes::{DELAY, Fleet, PERIOD, acquire, admits, bucket, spent, units};

/// One node and its limit: the number of nodes becomes known while calls are under way in the
/// store.
#[tokio::test(start_paused = true)]
async fn calls_in_the_store_are_waited_for_when_nodes_are_counted() {
    let fleet = Fleet::new();
    let node = fleet
        .reliable()
        .synced(SyncConfig::new().overshoot_percent(100).period(PERIOD));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..400 {
        let node = node.clone();
        calls.spawn(async move {
            tokio::time::sleep(DELAY * n / 10).await;
            let decision = acquire(&node, &bucket(100), "alice", 1).await.unwrap();
            decision.is_admitted()
        });
    }
    let admitted = calls.join_all().await.into_iter();
    let admitted = admitted.filter(|admitted| *admitted).count();
    let stats = node.stats();
    assert_eq!(admitted, 100, "{stats:?}");
    assert!(
        stats.nodes == 1 && stats.in_store > 5 && stats.admitted > 5,
        "{stats:?}"
    );
}

/// A caller may hold a call that it does not poll, as `select!` does with its other branches. Calls
/// of the same key are decided all the same.
#[tokio::test(start_paused = true)]
async fn a_call_in_the_store_that_is_not_polled_holds_up_no_other() {
    let (policy, rule) = (Policy::new("api"), bucket(1000));
    for is_polled in [false, true] {
        let fleet = Fleet::new();
        let server = fleet.server::<TokenBucket>();
        let faults = server.faults();
        let config = SyncConfig::new().max_unsynced(10).nodes(2);
        let node = server
            .timeout(PERIOD)
            .synced(config.period(PERIOD).clock(fleet.clock));
        assert!(admits(&node, &rule, "alice", 1).await);
        tokio::time::sleep(PERIOD * 5).await;
        faults.script([Some(Fault::Held)]);
        // More than a node may be ahead.
        let ask = Ask::new(&policy, &rule, "alice".into(), units(20));
        let mut held = Box::pin(node.acquire(&[ask]).into_future());
        if is_polled {
            assert!(poll!(&mut held).is_pending());
        }
        for _ in 0..3 {
            let call = admits(&node, &rule, "alice", 1);
            let answer = tokio::time::timeout(Duration::from_secs(1), call).await;
            assert!(answer.expect("an answer"), "{is_polled}");
        }
        faults.release();
        assert!(held.await.unwrap().is_admitted(), "{is_polled}");
        assert_eq!(node.flush(PERIOD * 10).await, 0);
        assert_eq!(spent(&fleet.server(), &rule, "alice").await, 24);
    }
}
