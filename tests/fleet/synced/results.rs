//! A key that fails does not harm the others that are pushed by the same call.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tollgate::{
    TokenBucket,
    future::SyncFuture,
    key::Key,
    store::{
        Backend, Store, StoreError, StoreExt, SyncConfig, Synced,
        driver::{Delta, FleetStore, delegate},
    },
    time::TokioClock,
};

use crate::synced::nodes::{Fleet, PERIOD, Server, acquire, admits, at_once, bucket, spent};

/// The error of the deltas of a key.
type Fails = fn() -> StoreError;

/// A store that fails the deltas of some keys, and decides their calls.
#[derive(Clone)]
struct Picky {
    store: Server<TokenBucket>,
    fails: Arc<Mutex<HashMap<u64, Fails>>>,
}

impl Picky {
    fn set(&self, key: &str, fails: Option<Fails>) {
        let mut all = self.fails.lock().unwrap();
        match fails {
            Some(fails) => all.insert(Key::from(key).digest(), fails),
            None => all.remove(&Key::from(key).digest()),
        };
    }
}

impl Backend for Picky {
    type Error = StoreError;
}

impl Store<TokenBucket> for Picky {
    type Answer = <Server<TokenBucket> as Store<TokenBucket>>::Answer;
    type Done = <Server<TokenBucket> as Store<TokenBucket>>::Done;

    fn fleet(&self) -> Option<&dyn FleetStore<TokenBucket, Error = Self::Error>> {
        Some(self)
    }

    delegate!(Store<TokenBucket>, self => self.store; calls);
}

impl FleetStore<TokenBucket> for Picky {
    fn sync(
        &self,
        deltas: &[Delta<'_, TokenBucket>],
    ) -> Option<SyncFuture<TokenBucket, StoreError>> {
        let fails = self.fails.lock().unwrap().clone();
        let fails: Vec<_> = deltas
            .iter()
            .map(|delta| fails.get(&delta.key().digest()).copied())
            .collect();
        let sent: Vec<_> = (deltas.iter().zip(&fails))
            .filter(|(_, fails)| fails.is_none())
            .map(|(it, _)| {
                let pushed = (it.age(), it.units());
                Delta::new(it.policy(), it.rule(), *it.key(), it.batch(), pushed)
            })
            .collect();
        let syncing = self.store.sync(&sent)?;
        Some(Box::pin(async move {
            let mut answered = syncing.await?.into_iter();
            let each = fails.into_iter().filter_map(|fails| match fails {
                Some(fails) => Some(Err(fails())),
                None => answered.next(),
            });
            Ok(each.collect())
        }))
    }
}

type Node = Synced<Picky, TokenBucket, TokioClock>;

fn node(fleet: &Fleet) -> (Node, Picky) {
    let store = Picky {
        store: fleet.server(),
        fails: Arc::default(),
    };
    let config = SyncConfig::new().max_unsynced(10).nodes(2);
    let node = store
        .clone()
        .synced(config.period(PERIOD).clock(TokioClock::new()));
    (node, store)
}

fn unsupported() -> StoreError {
    StoreError::unsupported("a test refuses this key")
}

const KEYS: [&str; 3] = ["alice", "bob", "carol"];

/// Has all keys called together, so that one call asks for all.
async fn all(node: &Node, rule: &TokenBucket) -> [Result<bool, StoreError>; 3] {
    let one = async |key| acquire(node, rule, key, 1).await.map(|it| it.is_admitted());
    let (alice, bob, carol) = tokio::join!(one(KEYS[0]), one(KEYS[1]), one(KEYS[2]));
    [alice, bob, carol]
}

/// Calls of a key whose units the store cannot take in are decided by the store, and the others
/// here.
#[tokio::test(start_paused = true)]
async fn the_store_decides_the_calls_of_a_key_that_it_cannot_take_in() {
    let (fleet, rule) = (Fleet::new(), bucket(100));
    let (node, store) = node(&fleet);
    store.set("bob", Some(unsupported));
    for admitted in all(&node, &rule).await {
        assert!(admitted.unwrap());
    }
    assert_eq!(spent(&fleet.server(), &rule, "bob").await, 1);
    let first = node.stats();
    assert_eq!((first.in_store, first.syncs), (1, 1), "{first:?}");
    for _ in 0..5 {
        assert!(at_once(&node, &rule, "alice", 1).is_some());
        assert!(at_once(&node, &rule, "bob", 1).is_none());
        assert!(admits(&node, &rule, "bob", 1).await);
    }
    // The other call of each round was dropped unpolled.
    assert_eq!(spent(&fleet.server(), &rule, "bob").await, 6);
    // Several calls of it are under way at a time.
    let before = tokio::time::Instant::now();
    let calls = (0..20).map(|_| acquire(&node, &rule, "bob", 1));
    let calls = futures_util::future::join_all(calls).await;
    assert!(
        calls
            .iter()
            .all(|call| call.as_ref().is_ok_and(|it| it.is_admitted()))
    );
    assert!(before.elapsed() < PERIOD / 2, "{:?}", before.elapsed());
    assert_eq!(spent(&fleet.server(), &rule, "bob").await, 26);
    // It is asked again after ten periods, and not in each.
    let syncs = node.stats().syncs;
    for _ in 0..9 {
        tokio::time::sleep(PERIOD).await;
        assert!(admits(&node, &rule, "bob", 1).await);
    }
    assert!(node.stats().syncs - syncs <= 3, "{:?}", node.stats());
    store.set("bob", None);
    let mut admitted = 26 + 9 + 1;
    while at_once(&node, &rule, "bob", 1).is_none() {
        assert!(admits(&node, &rule, "bob", 1).await);
        tokio::time::sleep(PERIOD).await;
        admitted += 1;
        assert!(admitted < 50, "it is never asked again");
    }
    assert_eq!(node.flush(PERIOD).await, 0);
    assert_eq!(spent(&fleet.server(), &rule, "bob").await, admitted);
    let stats = node.stats();
    assert_eq!((stats.failed, stats.dropped, stats.offline), (0, 0, 0));
}

/// Units that the store will never take in are counted, and pushed no more.
#[tokio::test(start_paused = true)]
async fn units_that_the_store_cannot_take_in_are_counted_as_dropped() {
    let (fleet, rule) = (Fleet::new(), bucket(100));
    let (node, store) = node(&fleet);
    for admitted in all(&node, &rule).await {
        assert!(admitted.unwrap());
    }
    tokio::time::sleep(5 * PERIOD).await;
    for _ in 0..3 {
        assert!(at_once(&node, &rule, "alice", 1).is_some());
        assert!(at_once(&node, &rule, "bob", 1).is_some());
    }
    store.set("bob", Some(unsupported));
    tokio::time::sleep(5 * PERIOD).await;
    let stats = node.stats();
    assert_eq!((stats.dropped, stats.unsynced), (3, 0), "{stats:?}");
    assert_eq!((stats.failed, stats.offline), (0, 0), "{stats:?}");
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, 4);
    assert_eq!(spent(&fleet.server(), &rule, "bob").await, 1);
    assert!(admits(&node, &rule, "bob", 1).await);
    assert_eq!(spent(&fleet.server(), &rule, "bob").await, 2);
}

/// Other failures of a key leave its units to be pushed again, each once, and the other keys as
/// they are.
#[tokio::test(start_paused = true)]
async fn a_key_that_fails_is_pushed_again_and_the_others_go_on() {
    let faults: [Fails; 2] = [StoreError::contended, || StoreError::unavailable("a test")];
    for (n, fails) in faults.into_iter().enumerate() {
        let (fleet, rule) = (Fleet::new(), bucket(100));
        let (node, store) = node(&fleet);
        for admitted in all(&node, &rule).await {
            assert!(admitted.unwrap());
        }
        tokio::time::sleep(5 * PERIOD).await;
        store.set("bob", Some(fails));
        for round in 1..=4_u64 {
            for key in KEYS {
                assert!(at_once(&node, &rule, key, 1).is_some(), "{key}");
            }
            tokio::time::sleep(5 * PERIOD).await;
            for key in ["alice", "carol"] {
                assert_eq!(spent(&fleet.server(), &rule, key).await, 1 + round);
            }
            assert_eq!(spent(&fleet.server(), &rule, "bob").await, 1);
            assert_eq!(node.stats().unsynced, round);
        }
        assert!(admits(&node, &rule, "dave", 1).await);
        // Only calls of the key that cannot be reached, from the second round on.
        let stats = node.stats();
        assert_eq!(stats.offline, [0, 3][n], "{stats:?}");
        store.set("bob", None);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(spent(&fleet.server(), &rule, "bob").await, 5);
        let stats = node.stats();
        assert_eq!((stats.unsynced, stats.dropped), (0, 0), "{stats:?}");
        assert!(stats.failed > 3 && stats.syncs > stats.failed, "{stats:?}");
    }
}
