//! The age of the totals, and the changes that a node keeps meanwhile.

use std::time::Duration;

use tollgate::store::driver::Batch;

use crate::cluster::{
    Cluster, PARTITIONS, keys_by_partition, push, spent, state_key, until, until_all_see,
};

/// Without an aggregator the age of the totals grows, and what the node keeps does not. Its view
/// has all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_aggregator_a_node_keeps_a_bounded_number_of_changes() {
    let cluster = Cluster::start().await;
    let kafka = cluster.store(1).await;
    assert_eq!(kafka.staleness(), None);
    for number in 1..=100 {
        push(&kafka, "alice", Batch { node: 7, number }, 2).await;
    }
    assert_eq!(spent(&kafka, "alice"), 200);
    assert_eq!((kafka.unsynced(), kafka.given_up()), (16, 0));
    let _aggregator = cluster.aggregator().await;
    until_all_see(&[&kafka, &cluster.store(2).await], "alice", 200).await;
    until("totals of all partitions", || {
        kafka.staleness().ok_or("none".to_owned())
    })
    .await;
}

/// An aggregator that does not keep up says so by its heartbeats: they have the time of the last
/// change that it took in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_partition_has_a_staleness_of_its_own() {
    let cluster = Cluster::start().await;
    let kafka = cluster.store(1).await;
    let aggregator = cluster.aggregator().await;
    let young = Duration::from_secs(2);
    until("young totals", || match kafka.staleness() {
        Some(age) if age < young => Ok(()),
        age => Err(format!("{age:?}")),
    })
    .await;
    let by_partition = kafka.staleness_by_partition();
    assert_eq!(by_partition.len(), PARTITIONS as usize);
    for keys in keys_by_partition(1) {
        assert!(kafka.staleness_of(&state_key(&keys[0])).is_some());
    }
    aggregator.abort().await;
    until("old totals", || match kafka.staleness() {
        Some(age) if age > young => Ok(()),
        age => Err(format!("{age:?}")),
    })
    .await;
}
