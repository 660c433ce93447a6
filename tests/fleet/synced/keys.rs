//! Many keys: calls to the store are few, and memory is bounded.

use tollgate::store::SyncConfig;

use crate::synced::nodes::{DELAY, Fleet, PERIOD, acquire, at_once, bucket, spent};

const KEYS: u32 = 2000;

/// B7: however many keys have something to tell, one call is under way at a time, and calls that
/// nobody waits for are a twentieth of a period apart.
#[tokio::test(start_paused = true)]
async fn calls_to_the_store_do_not_follow_the_traffic() {
    let fleet = Fleet::new();
    let rule = bucket(1000);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(100).nodes(2));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..KEYS {
        let node = node.clone();
        calls.spawn(async move {
            acquire(&node, &bucket(1000), &format!("k{n}"), 1)
                .await
                .unwrap()
        });
    }
    assert!(
        calls
            .join_all()
            .await
            .iter()
            .all(|decision| decision.is_admitted())
    );
    let first = node.stats();
    assert_eq!(first.keys, u64::from(KEYS));
    assert!(first.syncs <= u64::from(KEYS) / 250 + 2, "{first:?}");
    let start = tokio::time::Instant::now();
    for _ in 0..20 {
        for n in 0..KEYS {
            assert!(
                at_once(&node, &rule, &format!("k{n}"), 1)
                    .unwrap()
                    .is_admitted()
            );
        }
        tokio::time::sleep(PERIOD / 2).await;
    }
    let stats = node.stats();
    let most = start.elapsed().as_micros() / (PERIOD / 20).as_micros() + 1;
    assert!(
        most < u128::from(stats.admitted) / 20,
        "traffic that would be noticed"
    );
    assert!(u128::from(stats.syncs - first.syncs) <= most, "{stats:?}");
    assert!(
        stats.staleness_nanos > 0,
        "it is told how far behind the store is"
    );
    assert_eq!(node.flush(PERIOD * 100).await, 0);
    let store = fleet.server();
    for n in [0, 1, KEYS / 2, KEYS - 1] {
        assert_eq!(spent(&store, &rule, &format!("k{n}")).await, 21);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_forgotten_after_its_last_call() {
    let fleet = Fleet::new();
    let rule = bucket(1000);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(100).nodes(2));
    for n in 0..100 {
        acquire(&node, &rule, &format!("k{n}"), 1).await.unwrap();
    }
    assert_eq!(node.stats().keys, 100);
    tokio::time::sleep(PERIOD * 25).await;
    let stats = node.stats();
    assert_eq!((stats.keys, stats.unsynced, stats.pushed), (0, 0, 100));
    assert_eq!(spent(&fleet.server(), &rule, "k0").await, 1);
}

/// B5: nothing that was not told makes room for other keys.
#[tokio::test(start_paused = true)]
async fn without_room_the_store_decides() {
    let fleet = Fleet::new();
    let rule = bucket(3);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(3).nodes(2).keys(64));
    for _ in 0..4 {
        for n in 0..500 {
            let decision = acquire(&node, &rule, &format!("k{n}"), 1).await.unwrap();
            let _ = decision;
        }
    }
    let stats = node.stats();
    assert!(stats.keys <= 64 && stats.over_capacity > 500, "{stats:?}");
    tokio::time::sleep(4 * PERIOD + 4 * DELAY).await;
    let store = fleet.server();
    for n in 0..500 {
        assert_eq!(spent(&store, &rule, &format!("k{n}")).await, 3, "k{n}");
    }
}
