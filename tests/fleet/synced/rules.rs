//! Rules that change, differ between keys, or are not for nodes that decide alone.

use tollgate::{
    AnyRule, FixedWindow, RateLimitLayer, TokenBucket,
    algorithm::FleetRule,
    store::{Store, StoreExt, SyncConfig},
};

use crate::synced::nodes::{Fleet, PERIOD, acquire, admits, at_once, bucket, spent};

#[tokio::test(start_paused = true)]
async fn a_changed_rule_goes_on_with_what_was_admitted() {
    let fleet = Fleet::new();
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    let [small, large] = [bucket(100), bucket(200)];
    acquire(&node, &small, "alice", 40).await.unwrap();
    let decision = at_once(&node, &large, "alice", 1).unwrap();
    assert_eq!(decision.limit(), Some(200));
    assert!(decision.remaining() <= Some(160));
    tokio::time::sleep(PERIOD * 5).await;
    assert_eq!(node.stats().pushed, 41);
}

/// Two kinds under one key and policy, pushed by turns, with answers that are lost: neither is
/// lost, and neither counts twice.
#[tokio::test(start_paused = true)]
async fn two_kinds_of_rules_are_kept_separate() {
    let fleet = Fleet::new();
    let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    let rules: [AnyRule; 2] = [bucket(10_000).into(), FixedWindow::per_day(10_000).into()];
    faults.by_chance(5, 3, [tollgate::testing::Fault::Lost]);
    let mut admitted = [0; 2];
    for n in 0..400 {
        let decision = acquire(&node, &rules[n % 2], "alice", 1).await.unwrap();
        admitted[n % 2] += u64::from(decision.is_admitted());
        if n % 7 == 0 {
            tokio::time::sleep(PERIOD / 5).await;
        }
    }
    faults.none();
    tokio::time::sleep(PERIOD * 10).await;
    assert_eq!(node.stats().unsynced, 0);
    let store = fleet.server();
    for (rule, admitted) in rules.iter().zip(admitted) {
        assert_eq!(spent(&store, rule, "alice").await, admitted, "{rule}");
    }
}

#[tokio::test(start_paused = true)]
async fn windows_that_differ_between_keys_are_pushed_as_the_key_meets_them() {
    let fleet = Fleet::new();
    let rule = FixedWindow::per_day(1000).spread();
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    for key in ["alice", "bob"] {
        for _ in 0..10 {
            assert!(admits(&node, &rule, key, 1).await);
        }
    }
    tokio::time::sleep(PERIOD * 5).await;
    let store = fleet.server();
    assert_eq!(spent(&store, &rule, "alice").await, 10);
    assert_eq!(spent(&store, &rule, "bob").await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_cannot_be_pushed_later_is_an_error() {
    let fleet = Fleet::new();
    for text in [
        "leaky-bucket 10/s queue=5",
        "sliding-log 10/s",
        "fixed-window 10/s from=first-call",
        "token-bucket 10/s & sliding-log 10/s",
    ] {
        let rule: AnyRule = text.parse().unwrap();
        let (node, _) = fleet.node(SyncConfig::new().nodes(2));
        let error = node.fits(&rule).unwrap_err().to_string();
        assert!(error.contains("expected"), "{error}");
        let error = acquire(&node, &rule, "alice", 1).await.unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        // The store decides each call, so it may be any rule.
        let (exact, _) = fleet.node(SyncConfig::new().overshoot_percent(0).nodes(2));
        assert!(exact.fits(&rule).is_ok());
        assert!(admits(&exact, &rule, "alice", 1).await);
    }
}

#[tokio::test(start_paused = true)]
async fn it_fits_into_a_layer() {
    let fleet = Fleet::new();
    let (node, _) = fleet.node::<TokenBucket>(SyncConfig::new().nodes(2));
    let store = node.remember_refusals().fail_open();
    let layer = RateLimitLayer::new(TokenBucket::per_second(1000)).store(store);
    let _ = layer;
    assert!(TokenBucket::per_second(1000).check_sync().is_ok());
}
