//! Calls of several keys spend all of them, or none.

use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{Store, SyncConfig, driver::Ask},
    testing::Fault,
};

use crate::synced::nodes::{Fleet, Node, PERIOD, bucket, spent};

async fn both(node: &Node<TokenBucket>, rules: &[TokenBucket; 2], keys: [&str; 2]) -> [bool; 2] {
    let policy = Policy::new("api");
    let ask = |n: usize| Ask::new(&policy, &rules[n], Key::from(keys[n]), Cost::ONE);
    let decisions = node.acquire(&[ask(0), ask(1)]).await.unwrap();
    let decisions = decisions.as_slice();
    [0, 1].map(|n: usize| decisions[n].is_admitted())
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_one_spends_none() {
    let fleet = Fleet::new();
    let rules = [bucket(100), bucket(5)];
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    for _ in 0..5 {
        assert_eq!(both(&node, &rules, ["tenant", "alice"]).await, [true, true]);
    }
    for _ in 0..20 {
        assert_eq!(
            both(&node, &rules, ["tenant", "alice"]).await,
            [true, false]
        );
    }
    tokio::time::sleep(PERIOD * 5).await;
    let store = fleet.server();
    assert_eq!(spent(&store, &rules[0], "tenant").await, 5);
    assert_eq!(spent(&store, &rules[1], "alice").await, 5);
}

#[tokio::test(start_paused = true)]
async fn one_key_may_be_named_twice() {
    let fleet = Fleet::new();
    let rules = [bucket(5), bucket(5)];
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    for _ in 0..2 {
        assert_eq!(both(&node, &rules, ["alice", "alice"]).await, [true, true]);
    }
    assert_ne!(both(&node, &rules, ["alice", "alice"]).await, [true, true]);
    tokio::time::sleep(PERIOD * 5).await;
    assert_eq!(spent(&fleet.server(), &rules[0], "alice").await, 4);
}

/// Many calls of two keys in both orders, at the bound: none waits for ever, and none is spent by
/// half.
#[tokio::test(start_paused = true)]
async fn calls_in_both_orders_do_not_lock_each_other() {
    let fleet = Fleet::new();
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(3).nodes(2));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..200 {
        let node = node.clone();
        let keys = if n % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
        calls.spawn(async move { both(&node, &[bucket(100), bucket(100)], keys).await });
    }
    let admitted = calls
        .join_all()
        .await
        .into_iter()
        .filter(|both| *both == [true, true])
        .count();
    assert_eq!(admitted, 100);
    assert_eq!(node.flush(PERIOD * 10).await, 0);
    let store = fleet.server();
    for key in ["a", "b"] {
        assert_eq!(spent(&store, &bucket(100), key).await, 100);
    }
}

/// In an outage, what one key has not pushed does not hold up calls that name a new one beside it,
/// whether a node may be ahead of no limit or of the wide one alone.
#[tokio::test(start_paused = true)]
async fn new_keys_beside_one_with_units_are_decided_in_an_outage() {
    for percent in [0, 5] {
        let fleet = Fleet::new();
        let rules = [bucket(1000), bucket(10)];
        let (node, faults) = fleet.node(SyncConfig::new().overshoot_percent(percent).nodes(2));
        faults.always(Fault::Unavailable);
        for n in 0..20 {
            let (client, begin) = (format!("c{n}"), tokio::time::Instant::now());
            assert_eq!(both(&node, &rules, ["tenant", &client]).await, [true; 2]);
            let took = begin.elapsed();
            assert!(took <= 3 * PERIOD, "{percent} %, call {n}: {took:?}");
        }
        faults.none();
        tokio::time::sleep(10 * PERIOD).await;
        assert_eq!(node.stats().unsynced, 0);
        assert_eq!(spent(&fleet.server(), &rules[0], "tenant").await, 20);
    }
}
