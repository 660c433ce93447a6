//! Limits that all nodes share.

use std::time::Duration;

use tollgate::{
    AnyRule, Cost, Policy,
    future::BoxFuture,
    key::Key,
    store::{
        Backend, Store, StoreError,
        driver::{Ask, Check, Settlement},
    },
};

use crate::cluster::{Cluster, SOON, acquire, rule, spent, until, until_all_see};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_hear_of_each_other_by_the_totals() {
    let cluster = Cluster::start().await;
    let aggregator = cluster.aggregator().await;
    let [(one, a), (other, b)] = [cluster.node(1, 50).await, cluster.node(2, 50).await];
    let mut admitted = [0; 2];
    for n in 0..300 {
        let node = if n % 3 == 0 { &one } else { &other };
        for (key, admitted) in ["alice", "bob"].into_iter().zip(&mut admitted) {
            *admitted += u64::from(acquire(node, key).await.unwrap());
        }
    }
    assert_eq!(admitted, [300, 300]);
    until_all_see(&[&a, &b], "alice", 300).await;
    until_all_see(&[&a, &b], "bob", 300).await;
    let age = until("all partitions", || a.staleness().ok_or("none".to_owned()));
    assert!(age.await < SOON);
    assert_eq!(aggregator.end().await.unreadable(), 0);
    for node in [one, other] {
        assert_eq!(node.flush(SOON).await, 0);
    }
}

/// Both nodes spend as fast as they can. They exceed the limit by what they admit while totals are
/// under way, and afterwards both refuse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_used_up_is_refused_everywhere() {
    let cluster = Cluster::start().await;
    let aggregator = cluster.aggregator().await;
    let [(one, a), (other, b)] = [cluster.node(1, 20).await, cluster.node(2, 20).await];
    assert!(acquire(&one, "alice").await.unwrap());
    until_all_see(&[&a, &b], "alice", 1).await;
    let (mut admitted, start) = (1, tokio::time::Instant::now());
    let mut refused_in_a_row = 0;
    while refused_in_a_row < 20 {
        for node in [&one, &other] {
            match acquire(node, "alice").await.unwrap() {
                true => (admitted, refused_in_a_row) = (admitted + 1, 0),
                false => refused_in_a_row += 1,
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(start.elapsed() < SOON, "{admitted} admitted");
    }
    // Two nodes that hear nothing of each other admit 1999.
    assert!((1000..1950).contains(&admitted), "{admitted}");
    until_all_see(&[&a, &b], "alice", 1000).await;
    aggregator.end().await;
}

/// The aggregator is stopped and started anew in the middle, and reads what it had not committed
/// again. Nothing counts twice, and nothing is lost. Meanwhile nodes go on, and say how old the
/// totals are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_the_aggregator_count_nothing_twice() {
    let cluster = Cluster::start().await;
    let (node, kafka) = cluster.node(1, 10).await;
    let mut admitted = 0;
    for round in 0..4 {
        let aggregator = cluster.aggregator().await;
        until("all partitions", || {
            match aggregator.counters.partitions() {
                3 => kafka.staleness().ok_or("no staleness".to_owned()),
                partitions => Err(partitions.to_string()),
            }
        })
        .await;
        for _ in 0..50 {
            admitted += u64::from(acquire(&node, "alice").await.unwrap());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        match round % 2 {
            // Without a commit of what was read last.
            0 => aggregator.abort().await,
            _ => drop(aggregator.end().await),
        }
        let before = kafka.staleness();
        for _ in 0..25 {
            admitted += u64::from(acquire(&node, "alice").await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(kafka.staleness() > before, "{before:?}");
    }
    assert_eq!(admitted, 300);
    assert_eq!(
        spent(&kafka, "alice"),
        300,
        "its own changes are in its view"
    );
    let aggregator = cluster.aggregator().await;
    // A node that is started now reads all of it.
    let (_, late) = cluster.node(2, 10).await;
    until_all_see(&[&kafka, &late], "alice", 300).await;
    aggregator.end().await;
}

/// The brokers are gone, and the node goes on by its part. Afterwards it pushes everything, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_brokers_is_pushed_afterwards() {
    let mut cluster = Cluster::start().await;
    cluster.settings.timeout = Duration::from_secs(1);
    let Some(mock) = &cluster.mock else {
        return;
    };
    let aggregator = cluster.aggregator().await;
    let (node, kafka) = cluster.node(1, 10).await;
    let mut admitted = 0;
    for n in 0..120 {
        if n == 20 {
            mock.broker_down(1).unwrap();
        }
        admitted += u64::from(acquire(&node, "alice").await.unwrap());
    }
    assert!(node.stats().offline > 50, "{:?}", node.stats());
    mock.broker_up(1).unwrap();
    let start = tokio::time::Instant::now();
    while node.stats().unsynced > 0 {
        assert!(start.elapsed() < SOON, "{:?}", node.stats());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    until_all_see(&[&kafka], "alice", admitted).await;
    aggregator.end().await;
}

/// Without `.synced(…)` each call is a message; refunds and resets are, too, also if nobody awaits
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_and_resets_are_messages() {
    async fn end(done: Check<BoxFuture<Result<(), StoreError>>>, is_dropped: bool) {
        match is_dropped {
            true => drop(done),
            false => done.await.unwrap(),
        }
    }
    let cluster = Cluster::start().await;
    let aggregator = cluster.aggregator().await;
    let kafka = cluster.store(7).await;
    let (policy, rule) = (Policy::new("api"), rule());
    for (name, is_dropped) in [("alice", false), ("bob", true)] {
        let key = Key::from(name);
        let ask = Ask::new(&policy, &rule, key, Cost::new(40).unwrap());
        let decisions = kafka.acquire(&[ask]).await.unwrap();
        let charge = { decisions.as_slice()[0] }.take_charge().unwrap();
        until_all_see(&[&kafka], name, 40).await;
        let settlement = Settlement::new(&policy, &rule, key, charge, 15).unwrap();
        end(kafka.settle(vec![settlement]), is_dropped).await;
        until_all_see(&[&kafka], name, 15).await;
        end(Store::<AnyRule>::reset(&kafka, &policy, &key), is_dropped).await;
        until_all_see(&[&kafka], name, 0).await;
    }
    assert_eq!(kafka.unsettled(), Some(0));
    aggregator.end().await;
}

/// A limit that was given another name begins with what its clients have spent under the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_limit_goes_on_with_its_states() {
    let cluster = Cluster::start().await;
    let _aggregator = cluster.aggregator().await;
    let kafka = cluster.store(1).await;
    let (rule, key) = (rule(), Key::from("alice"));
    let renamed = Policy::new("clients").with_states_of(&Policy::new("api"));
    assert!(acquire(&kafka, "alice").await.unwrap());
    let ask = Ask::new(&renamed, &rule, key, Cost::ONE);
    kafka.acquire(&[ask]).await.unwrap();
    until_all_see(&[&kafka], "alice", 2).await;
    kafka.reset(&renamed, &key).await.unwrap();
    until_all_see(&[&kafka], "alice", 0).await;
}

/// Without `.synced(…)`, too, which refuses them by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_do_not_add_up_are_refused() {
    let cluster = Cluster::start().await;
    let kafka = cluster.store(1).await;
    assert!(Store::fits(&kafka, &rule()).is_ok());
    for rule in [
        "fixed-window 5/1m from=first-call",
        "warm-up 200/s over=10s cold=3",
    ] {
        let rule: AnyRule = rule.parse().unwrap();
        assert!(Store::fits(&kafka, &rule).is_err(), "{rule}");
        let policy = Policy::new("api");
        let ask = || [Ask::new(&policy, &rule, Key::from("alice"), Cost::ONE)];
        for answer in [kafka.acquire(&ask()).await, kafka.look(&ask()).await] {
            assert!(answer.unwrap_err().is_unsupported(), "{rule}");
        }
    }
}
