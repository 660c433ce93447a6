//! Refunds, charges above the estimate, and resets.

use std::time::Duration;

use tollgate::{
    Policy, TokenBucket,
    key::Key,
    store::{Store, SyncConfig, driver::Settlement},
    testing::Fault,
};

use crate::synced::nodes::{Fleet, Node, PERIOD, acquire, admits, at_once, bucket, spent};

async fn settle(node: &Node<TokenBucket>, rule: &TokenBucket, cost: u64, actual: u64) {
    let mut decision = acquire(node, rule, "alice", cost).await.unwrap();
    settle_later(node, rule, decision.take_charge().unwrap(), actual).await;
}

async fn settle_later(
    node: &Node<TokenBucket>,
    rule: &TokenBucket,
    charge: tollgate::Charge,
    actual: u64,
) {
    let policy = Policy::new("api");
    let settlement = Settlement::new(&policy, rule, Key::from("alice"), charge, actual).unwrap();
    node.settle(vec![settlement]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_what_was_not_pushed_stays_here() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    settle(&node, &rule, 20, 5).await;
    assert_eq!(node.stats().unsynced, 5);
    assert_eq!(
        at_once(&node, &rule, "alice", 1).unwrap().remaining(),
        Some(94)
    );
    tokio::time::sleep(PERIOD * 5).await;
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, 6);
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_what_was_pushed_is_made_by_the_store() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    let mut decision = acquire(&node, &rule, "alice", 20).await.unwrap();
    tokio::time::sleep(PERIOD * 5).await;
    let store = fleet.server();
    assert_eq!(spent(&store, &rule, "alice").await, 20);
    settle_later(&node, &rule, decision.take_charge().unwrap(), 5).await;
    tokio::time::sleep(PERIOD * 5).await;
    assert_eq!(spent(&store, &rule, "alice").await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_charge_above_the_estimate_is_pushed() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(10).nodes(2));
    settle(&node, &rule, 5, 70).await;
    tokio::time::sleep(PERIOD * 5).await;
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, 70);
    assert!(admits(&node, &rule, "alice", 30).await);
    assert!(!admits(&node, &rule, "alice", 1).await);
}

/// A part of a bucket refills slower than all of it, so its time axis is another one.
#[tokio::test(start_paused = true)]
async fn a_refund_of_an_outage_takes_back_no_unit_of_later_calls() {
    let fleet = Fleet::new();
    let rule = TokenBucket::per_second(100);
    for most in [0, 10] {
        let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(most).nodes(2));
        faults.always(Fault::Unavailable);
        let mut decision = acquire(&node, &rule, "alice", 50).await.unwrap();
        assert!(decision.is_admitted());
        tokio::time::sleep(Duration::from_millis(500)).await;
        faults.none();
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert_eq!(node.stats().unsynced, 0);
        let store = fleet.server();
        assert!(admits(&store, &rule, "alice", 90).await);
        settle_later(&node, &rule, decision.take_charge().unwrap(), 0).await;
        // The answers take the time of two units at most.
        assert!(spent(&store, &rule, "alice").await >= 87, "{most}");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_drops_what_was_not_pushed() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    acquire(&node, &rule, "alice", 20).await.unwrap();
    node.reset(&Policy::new("api"), &Key::from("alice"))
        .await
        .unwrap();
    let stats = node.stats();
    assert_eq!((stats.dropped, stats.unsynced, stats.keys), (20, 0, 0));
    assert_eq!(
        acquire(&node, &rule, "alice", 1).await.unwrap().remaining(),
        Some(99)
    );
    tokio::time::sleep(PERIOD * 5).await;
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, 1);
}
