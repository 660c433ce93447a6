//! Several aggregators, which divide the partitions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{Consumer, StreamConsumer},
};
use tollgate::{AnyRule, store::driver::Batch};
use tollgate_kafka::Settings;

use crate::cluster::{
    Cluster, PARTITIONS, Running, SOON, keys_by_partition, push, push_under, spent, until,
    until_all_see,
};

/// Waits until both have partitions, and all are had.
async fn until_divided(both: [&Running; 2]) {
    until("partitions of both", || {
        let had = both.map(|one| one.counters.partitions());
        let all = u64::try_from(PARTITIONS).unwrap();
        let is_divided = had.iter().sum::<u64>() == all && had.iter().all(|had| *had > 0);
        is_divided.then_some(()).ok_or(format!("{had:?}"))
    })
    .await;
}

/// The second one joins, and the first one ends in the middle of something. Each unit is counted
/// once, whoever had its partition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_go_from_one_to_the_other_and_back() {
    let cluster = Cluster::start().await;
    let (kafka, other) = (cluster.store(1).await, cluster.store(2).await);
    let keys: Vec<String> = keys_by_partition(2).concat();
    let first = cluster.aggregator().await;
    let (mut number, node) = (0, 7);
    let mut push_all = async || {
        for _ in 0..5 {
            number += 1;
            for key in &keys {
                push(&kafka, key, Batch { node, number }, 2).await;
            }
        }
        number * 2
    };
    let pushed = push_all().await;
    for key in &keys {
        until_all_see(&[&kafka, &other], key, pushed).await;
    }
    let second = cluster.aggregator().await;
    push_all().await;
    until_divided([&first, &second]).await;
    let pushed = push_all().await;
    for key in &keys {
        until_all_see(&[&kafka, &other], key, pushed).await;
    }
    push_all().await;
    first.abort().await;
    let pushed = push_all().await;
    for key in &keys {
        until_all_see(&[&kafka, &other], key, pushed).await;
    }
    // The second one gives partitions away and gets them back. It has forgotten what it had of
    // them.
    let third = cluster.aggregator().await;
    until_divided([&second, &third]).await;
    let pushed = push_all().await;
    for key in &keys {
        until_all_see(&[&kafka, &other], key, pushed).await;
    }
    third.abort().await;
    let pushed = push_all().await;
    for key in &keys {
        until_all_see(&[&kafka, &other], key, pushed).await;
    }
    assert_eq!(spent(&cluster.store(3).await, &keys[0]), pushed);
}

/// Keys are removed from the topic of totals once they are like new for a while, and only by the
/// aggregator of their partition: not by one that knows an old total of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_keys_that_are_like_new_are_removed() {
    let cluster = Cluster::start().await;
    let settings = Settings {
        keep: Duration::from_millis(1500),
        ..cluster.settings.clone()
    };
    let rule: AnyRule = "token-bucket 100/1s".parse().unwrap();
    let kafka = cluster.store(1).await;
    let keys: Vec<String> = keys_by_partition(1).concat();
    let first = cluster.aggregator_of(settings.clone()).await;
    let pushing = tokio::spawn({
        let kafka = kafka.clone();
        async move {
            for number in 1.. {
                for key in &keys {
                    push_under(&kafka, &rule, key, Batch { node: 7, number }, 1).await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    let until_keys = async |count: usize| {
        until(&format!("{count} keys"), || {
            let keys = kafka.keys();
            (keys == count).then_some(()).ok_or(keys.to_string())
        })
        .await;
    };
    until_keys(3).await;
    let mut totals = Totals::read_from_now(&cluster.settings);
    // It reads young totals of partitions that it does not get.
    let second = cluster.aggregator_of(settings).await;
    until_divided([&first, &second]).await;
    // More than twice as long as those are kept.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(totals.removed().await, BTreeSet::new());
    assert_eq!(kafka.keys(), 3);

    pushing.abort();
    until_keys(0).await;
    assert_eq!(totals.removed().await.len(), 3);
}

/// The topic of totals, from an instant on.
struct Totals {
    consumer: StreamConsumer,
    topic: String,
    /// The next offset of each partition.
    next: BTreeMap<i32, i64>,
}

impl Totals {
    fn read_from_now(settings: &Settings) -> Self {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &settings.brokers)
            .set("group.id", "test")
            .set("enable.auto.commit", "false");
        let mut totals = Self {
            consumer: config.create().unwrap(),
            topic: format!("{}.totals", settings.topic),
            next: BTreeMap::new(),
        };
        totals.next = totals.ends();
        let mut list = TopicPartitionList::new();
        for (partition, end) in &totals.next {
            let end = Offset::Offset(*end);
            list.add_partition_offset(&totals.topic, *partition, end)
                .unwrap();
        }
        totals.consumer.assign(&list).unwrap();
        totals
    }

    fn ends(&self) -> BTreeMap<i32, i64> {
        let ends = |partition| self.consumer.fetch_watermarks(&self.topic, partition, SOON);
        let end = |partition| (partition, ends(partition).unwrap().1);
        (0..PARTITIONS).map(end).collect()
    }

    /// Returns the keys that were removed since, up to now.
    async fn removed(&mut self) -> BTreeSet<String> {
        let (mut removed, ends) = (BTreeSet::new(), self.ends());
        while ends
            .iter()
            .any(|(partition, end)| self.next[partition] < *end)
        {
            let message = self.consumer.recv().await.unwrap();
            self.next.insert(message.partition(), message.offset() + 1);
            if message.payload().is_none() {
                removed.insert(String::from_utf8(message.key().unwrap().to_vec()).unwrap());
            }
        }
        removed
    }
}
