//! Many keys: calls to the store are few, and memory is bounded.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tollgate::{
    Policy,
    key::Key,
    store::{Backend, Store, StoreExt, SyncConfig, driver::delegate},
};

use crate::synced::nodes::{DELAY, Fleet, PERIOD, acquire, admits, at_once, bucket, spent};

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
        calls.spawn(async move { admits(&node, &bucket(1000), &format!("k{n}"), 1).await });
    }
    assert!(calls.join_all().await.into_iter().all(|admitted| admitted));
    let first = node.stats();
    assert_eq!(first.keys, u64::from(KEYS));
    assert!(first.syncs <= u64::from(KEYS) / 250 + 2, "{first:?}");
    let start = tokio::time::Instant::now();
    for _ in 0..20 {
        for n in 0..KEYS {
            let decision = at_once(&node, &rule, &format!("k{n}"), 1);
            assert!(decision.unwrap().is_admitted());
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
        assert!(admits(&node, &rule, "new", 1).await);
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
            acquire(&node, &rule, &format!("k{n}"), 1).await.unwrap();
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

/// A store that moves its keys from one shard to another, once it was asked so often where they
/// are.
struct Moves<S> {
    store: S,
    after: u64,
    asked: AtomicU64,
}

impl<S: Backend> Backend for Moves<S> {
    type Error = S::Error;

    fn shard(&self, _: &Policy, _: &Key) -> u32 {
        match self.asked.fetch_add(1, Ordering::Relaxed) < self.after {
            true => 0,
            false => 7,
        }
    }
}

impl<Rule, S: Store<Rule>> Store<Rule> for Moves<S> {
    type Answer = S::Answer;
    type Done = S::Done;

    delegate!(Store<Rule>, self => self.store);
}

/// A key that the store moves while a call waits for it, or has something to push, is pulled and
/// pushed without another call.
#[tokio::test(start_paused = true)]
async fn a_key_that_moves_to_another_shard_is_served_there() {
    for after in [1, 2] {
        let (fleet, rule) = (Fleet::new(), bucket(30));
        let store = Moves {
            store: fleet.server(),
            after,
            asked: AtomicU64::new(0),
        };
        let config = SyncConfig::new().max_unsynced(10).nodes(2);
        let node = store.synced(config.period(PERIOD).clock(fleet.clock));
        let call = tokio::time::timeout(2 * PERIOD, acquire(&node, &rule, "alice", 1)).await;
        let decision = call.expect("the key is not served").unwrap();
        assert!(decision.is_admitted(), "after {after}");
        tokio::time::sleep(5 * PERIOD).await;
        assert_eq!(node.stats().unsynced, 0, "after {after}");
        assert_eq!(spent(&fleet.server(), &rule, "alice").await, 1);
    }
}
