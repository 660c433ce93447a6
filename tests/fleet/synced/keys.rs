//! Many keys: calls to the store are few, and memory is bounded.

use std::time::Duration;

use tollgate::store::SyncConfig;

use crate::synced::nodes::{DELAY, Fleet, PERIOD, acquire, at_once, bucket, spent};

const KEYS: u32 = 2000;

/// B7: however many keys have something to push, one call is under way at a time, and calls that
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
        "the counters have how far behind the store is"
    );
    assert_eq!(node.flush(PERIOD * 100).await, 0);
    let store = fleet.server();
    for n in [0, 1, KEYS / 2, KEYS - 1] {
        assert_eq!(spent(&store, &rule, &format!("k{n}")).await, 21);
    }
}

/// While a call to the store is under way, the store decides the first call of a new key. Then the
/// state is read, and the key is decided here: the next call waits only if it comes before that.
#[tokio::test(start_paused = true)]
async fn a_new_key_does_not_wait_for_the_answer_to_others() {
    for (pause, waits) in [(Duration::ZERO, 2), (PERIOD / 4, 1)] {
        let fleet = Fleet::new();
        let rule = bucket(30);
        let (node, _) = fleet.node(SyncConfig::new().max_unsynced(100).nodes(2));
        acquire(&node, &rule, "old", 1).await.unwrap();
        tokio::time::sleep(4 * PERIOD + DELAY / 2).await;
        assert_eq!(node.stats().pushed, 0, "the push is under way");
        // To load and to swap takes a delay each.
        let begin = tokio::time::Instant::now();
        assert!(acquire(&node, &rule, "new", 1).await.unwrap().is_admitted());
        assert_eq!(begin.elapsed(), 2 * DELAY);
        assert_eq!(spent(&fleet.server(), &rule, "new").await, 1);
        let stats = node.stats();
        assert_eq!((stats.in_store, stats.waited, stats.pushed), (1, 1, 1));
        tokio::time::sleep(pause).await;
        for remaining in [28, 27] {
            let decision = acquire(&node, &rule, "new", 1).await.unwrap();
            assert_eq!(decision.remaining(), Some(remaining));
        }
        let stats = node.stats();
        assert_eq!((stats.in_store, stats.waited), (1, waits));
        assert_eq!(node.flush(PERIOD * 100).await, 0);
        assert_eq!(spent(&fleet.server(), &rule, "new").await, 3);
        assert_eq!(spent(&fleet.server(), &rule, "old").await, 1);
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
    assert_eq!((stats.keys, stats.unsynced), (0, 0));
    assert_eq!(stats.pushed + stats.in_store, 100);
    assert!(stats.pushed > 90, "{stats:?}");
    assert_eq!(spent(&fleet.server(), &rule, "k0").await, 1);
}

/// B5: nothing that was not pushed makes room for other keys.
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
