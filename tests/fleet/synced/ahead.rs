//! A node is ahead of the store by no more than it may be, and pushes everything to it.

use std::time::Duration;

use tollgate::{
    Policy, TokenBucket,
    key::Key,
    store::{Store, SyncConfig, driver::Ask},
};

use crate::synced::nodes::{
    DELAY, Fleet, Node, PERIOD, acquire, admits, at_once, bucket, spent, units,
};

#[tokio::test(start_paused = true)]
async fn calls_are_decided_here_and_pushed_later() {
    let fleet = Fleet::new();
    let rule = bucket(1000);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(100).nodes(2));
    assert!(
        at_once(&node, &rule, "alice", 1).is_none(),
        "its state is not known"
    );
    assert!(admits(&node, &rule, "alice", 1).await);
    for _ in 0..30 {
        let decision = at_once(&node, &rule, "alice", 1).unwrap();
        assert!(decision.is_admitted());
    }
    let store = fleet.server();
    assert_eq!(spent(&store, &rule, "alice").await, 0);
    let stats = node.stats();
    assert_eq!((stats.unsynced, stats.admitted, stats.keys), (31, 31, 1));
    assert_eq!(node.overshoot_bound(&rule), Some(100));
    assert_eq!((stats.overshoot_bound, stats.nodes), (100, 2));
    // 400 ms of 1000 a day.
    assert_eq!(
        (node.undershoot_bound(&rule), stats.undershoot_bound),
        (1, 1)
    );
    // Less than a tenth of the limit is used.
    tokio::time::sleep(4 * PERIOD + 4 * DELAY).await;
    assert_eq!(spent(&store, &rule, "alice").await, 31);
    let stats = node.stats();
    assert_eq!(
        (stats.unsynced, stats.pushed, stats.staleness_nanos),
        (0, 31, 0)
    );
    assert_eq!(stats.syncs, 2, "one to pull, and one to push");
}

#[tokio::test(start_paused = true)]
async fn half_of_what_is_allowed_is_pushed_at_once() {
    let fleet = Fleet::new();
    let rule = bucket(1000);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(100).nodes(2));
    acquire(&node, &rule, "alice", 1).await.unwrap();
    assert!(at_once(&node, &rule, "alice", 49).unwrap().is_admitted());
    tokio::time::sleep(PERIOD / 10 + 4 * DELAY).await;
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, 50);
}

#[tokio::test(start_paused = true)]
async fn at_the_bound_a_call_waits_for_a_push() {
    let fleet = Fleet::new();
    let rule = bucket(1000);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(10).nodes(2));
    acquire(&node, &rule, "alice", 10).await.unwrap();
    assert!(at_once(&node, &rule, "alice", 1).is_none());
    assert!(admits(&node, &rule, "alice", 1).await);
    assert!(spent(&fleet.server(), &rule, "alice").await >= 10);
    assert!(node.stats().unsynced <= 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_costs_more_than_the_bound_is_decided_by_the_store() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(10).nodes(2));
    assert!(admits(&node, &rule, "alice", 7).await);
    assert!(admits(&node, &rule, "alice", 80).await);
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, 87);
    assert_eq!(node.stats().in_store, 1);
    assert!(!admits(&node, &rule, "alice", 14).await);
    assert!(admits(&node, &rule, "alice", 13).await);
    assert!(!admits(&node, &rule, "alice", 1).await);
}

const KEYS: [&str; 4] = ["alice", "bob", "carol", "dave"];

/// Calls keys one unit at a time, so often that each is ahead of the store all the time.
fn keep_busy(node: &Node<TokenBucket>, rule: TokenBucket) -> tokio::task::JoinSet<()> {
    let mut others = tokio::task::JoinSet::new();
    for n in 0..40u64 {
        let node = node.clone();
        others.spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_micros(300 + 17 * n)).await;
                let key = KEYS[n as usize % KEYS.len()];
                acquire(&node, &rule, key, 1).await.unwrap();
            }
        });
    }
    others
}

/// A busy key never seems to have pushed all. Calls that need that, or nearly so, are made
/// nevertheless, and those that give up hold up nobody.
#[tokio::test(start_paused = true)]
async fn a_costly_call_of_a_busy_key_is_not_starved() {
    // The number of keys, the cost of the first one, and those of the others.
    for (keys, first, cost) in [
        (1, 80, 0),
        (2, 80, 80),
        (3, 51, 51),
        (4, 80, 80),
        (1, 50, 0),
        (1, 40, 0),
        (2, 30, 30),
        (2, 1, 80),
        (3, 1, 51),
    ] {
        for starts in 0..keys {
            let fleet = Fleet::new();
            let rule = bucket(1_000_000);
            let (node, _) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
            let _others = keep_busy(&node, rule);
            tokio::time::sleep(PERIOD).await;
            let policy = Policy::new("api");
            let names = KEYS[..keys].iter().cycle().skip(starts).take(keys);
            let ask = |(n, key): (usize, &&str)| {
                let cost = units(if n == 0 { first } else { cost });
                Ask::new(&policy, &rule, Key::from(*key), cost)
            };
            let asks: Vec<_> = names.enumerate().map(ask).collect();
            for call in 0..5 {
                let begun = tokio::time::Instant::now();
                assert!(node.acquire(&asks).await.unwrap().is_admitted());
                let waited = begun.elapsed();
                assert!(
                    waited < 30 * DELAY,
                    "{keys} keys, {first}, {cost}, {call}: {waited:?}"
                );
                // As if its client had left.
                let _ = tokio::time::timeout(2 * DELAY, node.acquire(&asks)).await;
                let alone = tokio::time::timeout(3 * PERIOD, acquire(&node, &rule, "bob", 1));
                assert!(alone.await.unwrap().unwrap().is_admitted());
            }
        }
    }
}

/// Behind a deadline no call waits as long as one that must ask. They get through all the same.
#[tokio::test(start_paused = true)]
async fn calls_that_give_up_hold_up_nobody_for_long() {
    let fleet = Fleet::new();
    let rule = bucket(1_000_000);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    let policy = Policy::new("api");
    let mut passed = 0;
    for round in 0..200 {
        acquire(&node, &rule, "alice", 1).await.unwrap();
        let asks = ["bob", "alice"].map(|key| Ask::new(&policy, &rule, Key::from(key), units(80)));
        let _ = tokio::time::timeout(DELAY / 2, node.acquire(&asks)).await;
        for _ in 0..60 {
            let cheap = acquire(&node, &rule, "alice", 1);
            passed += u64::from(tokio::time::timeout(2 * DELAY, cheap).await.is_ok());
        }
        assert!(
            passed >= 45 * (round + 1),
            "{passed} of {}",
            60 * (round + 1)
        );
    }
}

/// All calls come at once, to all nodes: the worst that can happen to the bound.
#[tokio::test(start_paused = true)]
async fn all_nodes_together_keep_the_bound() {
    for (nodes, most) in [(1, 20), (2, 10), (5, 7), (3, 1)] {
        let fleet = Fleet::new();
        let all: Vec<_> = (0..nodes)
            .map(|_| {
                fleet
                    .node(SyncConfig::new().max_unsynced(most).nodes(nodes))
                    .0
            })
            .collect();
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..400 {
            let node = all[n % all.len()].clone();
            calls.spawn(async move {
                tokio::time::sleep(DELAY * (n as u32 % 40) / 4).await;
                admits(&node, &bucket(100), "alice", 1).await
            });
        }
        let admitted = calls
            .join_all()
            .await
            .into_iter()
            .filter(|admitted| *admitted)
            .count() as u64;
        assert!(admitted >= 100, "{nodes} nodes: {admitted}");
        let bound = 100 + (nodes - 1) * most;
        assert!(admitted <= bound, "{nodes} nodes: {admitted} of {bound}");
        for node in &all {
            assert_eq!(node.flush(PERIOD * 10).await, 0);
        }
        // All of it is in the store: what exceeds the limit is a debt, and is seen when the store
        // is asked for more than remains.
        let pushed: u64 = all.iter().map(|node| node.stats().pushed).sum();
        let here: u64 = all.iter().map(|node| node.stats().admitted).sum();
        assert_eq!(pushed, here);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_refusal_is_pushed_at_once() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let config = || SyncConfig::new().max_unsynced(60).nodes(2);
    let [(one, _), (other, _)] = [fleet.node(config()), fleet.node(config())];
    for node in [&one, &other] {
        acquire(node, &rule, "alice", 1).await.unwrap();
    }
    // 100 units from one node, up to its last one.
    for _ in 0..11 {
        acquire(&one, &rule, "alice", 9).await.unwrap();
    }
    assert!(!admits(&one, &rule, "alice", 9).await);
    tokio::time::sleep(PERIOD / 10 + 4 * DELAY).await;
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, 100);
    // The other one learns it at once, when it asks next.
    let mut admitted = 0;
    for _ in 0..100 {
        admitted += u64::from(admits(&other, &rule, "alice", 1).await);
        tokio::time::sleep(DELAY).await;
    }
    assert!(admitted <= 60, "{admitted}");
    assert!(other.stats().drift > 0);
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_pushes_everything() {
    let fleet = Fleet::new();
    let rule = bucket(1000);
    let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(100).nodes(2));
    for key in ["alice", "bob", "carol"] {
        acquire(&node, &rule, key, 20).await.unwrap();
    }
    assert_eq!(node.stats().unsynced, 60);
    assert_eq!(node.flush(PERIOD).await, 0);
    let store = fleet.server();
    for key in ["alice", "bob", "carol"] {
        assert_eq!(spent(&store, &rule, key).await, 20);
    }
    // From now on the store decides.
    assert!(admits(&node, &rule, "alice", 1).await);
    assert_eq!(spent(&store, &rule, "alice").await, 21);

    let (other, other_faults) = fleet.node(SyncConfig::new().max_unsynced(100).nodes(2));
    acquire(&other, &rule, "dave", 20).await.unwrap();
    other_faults.always(tollgate::testing::Fault::Unavailable);
    assert_eq!(other.flush(PERIOD).await, 20, "nothing was pushed");
    drop(faults);
}

/// After a flush nobody would push to the store what the node admits by itself: calls fail if the
/// store cannot be reached.
#[tokio::test(start_paused = true)]
async fn after_a_flush_nothing_is_admitted_here() {
    let fleet = Fleet::new();
    let rule = bucket(1000);
    let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(100).nodes(2));
    acquire(&node, &rule, "pushed", 20).await.unwrap();
    assert_eq!(node.flush(PERIOD).await, 0);
    faults.always(tollgate::testing::Fault::Unavailable);
    for key in ["pushed", "new"] {
        for _ in 0..3 {
            assert!(acquire(&node, &rule, key, 1).await.is_err(), "{key}");
        }
    }
    let (other, faults) = fleet.node(SyncConfig::new().max_unsynced(100).nodes(2));
    acquire(&other, &rule, "untold", 20).await.unwrap();
    faults.always(tollgate::testing::Fault::Unavailable);
    assert_eq!(other.flush(PERIOD).await, 20);
    let error = acquire(&other, &rule, "untold", 1).await.unwrap_err();
    assert!(error.to_string().contains("flush"), "{error}");
    assert_eq!((node.stats().unsynced, other.stats().unsynced), (0, 20));
    // A charge above the estimate goes to the store, too, and what is left is pushed once it
    // answers.
    faults.none();
    tokio::time::sleep(4 * PERIOD).await;
    assert_eq!(other.stats().unsynced, 0);
    assert!(admits(&other, &rule, "untold", 1).await);
    assert_eq!(spent(&fleet.server(), &rule, "untold").await, 21);
}

/// Under backlog units wait longer than four periods: the bound of what calls may lack follows.
#[tokio::test(start_paused = true)]
async fn a_backlog_raises_the_bound_of_what_calls_may_lack() {
    let fleet = Fleet::new();
    // A unit in 100 ms.
    let rule = tollgate::TokenBucket::per_second(10).burst(100);
    let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    acquire(&node, &rule, "alice", 1).await.unwrap();
    assert_eq!(node.undershoot_bound(&rule), 4);
    faults.always(tollgate::testing::Fault::Unavailable);
    tokio::time::sleep(20 * PERIOD).await;
    let stats = node.stats();
    assert!((20..=21).contains(&stats.undershoot_bound), "{stats:?}");
    assert_eq!(node.undershoot_bound(&rule), stats.undershoot_bound);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_takes_nothing() {
    let fleet = Fleet::new();
    let rule = bucket(1000);
    let (node, _) = fleet.node(SyncConfig::new().max_unsynced(10).nodes(2));
    for _ in 0..5 {
        let call = acquire(&node, &rule, "alice", 1);
        let _ = tokio::time::timeout(DELAY / 10, call).await;
    }
    tokio::time::sleep(4 * PERIOD).await;
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, 0);
    assert_eq!(node.stats().unsynced, 0);
    assert!(admits(&node, &rule, "alice", 10).await);
}

/// One node admits three quarters of what both admit: that is its part. Drift is that of the last
/// minute or two.
#[tokio::test(start_paused = true)]
async fn parts_and_drift_are_those_of_late() {
    let fleet = Fleet::new();
    let rule = bucket(10_000);
    let config = || SyncConfig::new().max_unsynced(500).nodes(2);
    let [(one, _), (other, _)] = [fleet.node(config()), fleet.node(config())];
    for _ in 0..10 {
        for (node, units) in [(&one, 480), (&other, 160)] {
            acquire(node, &rule, "alice", units).await.unwrap();
            tokio::time::sleep(5 * PERIOD / 2).await;
        }
    }
    let shares = [&one, &other].map(|node| {
        let stats = node.stats();
        assert_eq!(stats.least_share, stats.most_share, "one key");
        assert_eq!(stats.mean_share, stats.most_share, "one key");
        stats.mean_share
    });
    assert!((700..=800).contains(&shares[0]), "{shares:?}");
    assert!((200..=300).contains(&shares[1]), "{shares:?}");
    assert!(other.stats().drift >= 60, "{:?}", other.stats());
    tokio::time::sleep(Duration::from_secs(130)).await;
    let stats = other.stats();
    assert_eq!((stats.drift, stats.keys, stats.mean_share), (0, 0, 0));
}

/// Of one key a node admits three quarters, of another one a quarter.
#[tokio::test(start_paused = true)]
async fn parts_of_several_keys_are_summed_up() {
    let fleet = Fleet::new();
    let rule = bucket(10_000);
    let config = || SyncConfig::new().max_unsynced(500).nodes(2);
    let [(one, _), (other, _)] = [fleet.node(config()), fleet.node(config())];
    for _ in 0..10 {
        for (node, [alice, bob]) in [(&one, [480, 160]), (&other, [160, 480])] {
            acquire(node, &rule, "alice", alice).await.unwrap();
            acquire(node, &rule, "bob", bob).await.unwrap();
            tokio::time::sleep(5 * PERIOD / 2).await;
        }
    }
    let stats = one.stats();
    assert!((200..=300).contains(&stats.least_share), "{stats:?}");
    assert!((700..=800).contains(&stats.most_share), "{stats:?}");
    let mean = (stats.least_share + stats.most_share) / 2;
    assert_eq!(stats.mean_share, mean, "{stats:?}");
}
