//! Changes that are delivered or sent twice count once.

use std::time::Duration;

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    producer::{FutureProducer, FutureRecord},
};
use tollgate::store::driver::Batch;

use crate::cluster::{
    Cluster, PARTITIONS, SOON, acquire, push, spent, state_key, until, until_all_see,
};

/// A node repeats a delta whose acknowledgement it did not get: at once, and after another
/// aggregator has taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delta_that_is_told_again_counts_once() {
    let cluster = Cluster::start().await;
    let (node, other) = (cluster.store(1).await, cluster.store(2).await);
    let batch = |number| Batch { node: 77, number };
    let first = cluster.aggregator().await;
    for _ in 0..3 {
        push(&node, "alice", batch(1), 20).await;
    }
    until_all_see(&[&node, &other], "alice", 20).await;
    let counters = first.counters.clone();
    until("two repetitions", || {
        let repeated = counters.repeated();
        (repeated == 2).then_some(()).ok_or(repeated.to_string())
    })
    .await;
    first.end().await;

    let second = cluster.aggregator().await;
    push(&node, "alice", batch(1), 20).await;
    push(&node, "alice", batch(2), 5).await;
    until_all_see(&[&node, &other], "alice", 25).await;
    assert_eq!(second.counters.repeated(), 1);
    // Nor does a node that reads it all now count it twice.
    let late = cluster.store(3).await;
    assert_eq!(spent(&late, "alice"), 25);
}

/// The brokers deliver everything again, because the commits are lost. Every change is known by its
/// offset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_delivered_again_counts_once() {
    let cluster = Cluster::start().await;
    let kafka = cluster.store(1).await;
    let first = cluster.aggregator().await;
    for number in 1..=9 {
        for node in [70, 71] {
            push(&kafka, "alice", Batch { node, number }, 2).await;
        }
    }
    until_all_see(&[&kafka], "alice", 36).await;
    first.end().await;

    let settings = &cluster.settings;
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &settings.brokers)
        .set("group.id", &settings.topic)
        .set("session.timeout.ms", "6000")
        .set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create().unwrap();
    // Only members of the group may commit.
    consumer.subscribe(&[&settings.topic]).unwrap();
    until("an assignment", || {
        let _ = consumer.poll(Duration::from_millis(10));
        let count = consumer.assignment().unwrap().count();
        (count > 0).then_some(()).ok_or(count.to_string())
    })
    .await;
    let mut beginning = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        let offset = Offset::Offset(0);
        beginning
            .add_partition_offset(&settings.topic, partition, offset)
            .unwrap();
    }
    consumer.commit(&beginning, CommitMode::Sync).unwrap();
    consumer.unsubscribe();
    until("the end of the assignment", || {
        let _ = consumer.poll(Duration::from_millis(10));
        let count = consumer.assignment().unwrap().count();
        (count == 0).then_some(()).ok_or(count.to_string())
    })
    .await;
    drop(consumer);

    let second = cluster.aggregator().await;
    let counters = second.counters.clone();
    until("18 redelivered", || {
        let redelivered = counters.redelivered();
        (redelivered == 18)
            .then_some(())
            .ok_or(redelivered.to_string())
    })
    .await;
    push(
        &kafka,
        "alice",
        Batch {
            node: 70,
            number: 10,
        },
        1,
    )
    .await;
    until_all_see(&[&kafka, &cluster.store(2).await], "alice", 37).await;
}

/// A node that starts again is another one: it begins with the totals, and its numbers begin anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_started_again_goes_on_with_the_totals() {
    let cluster = Cluster::start().await;
    let _aggregator = cluster.aggregator().await;
    let (node, kafka) = cluster.node(1, 10).await;
    for _ in 0..30 {
        assert!(acquire(&node, "alice").await.unwrap());
    }
    assert_eq!(node.flush(SOON).await, 0);
    until_all_see(&[&kafka], "alice", 30).await;
    drop((node, kafka));

    let (node, kafka) = cluster.node(2, 10).await;
    assert_eq!(spent(&kafka, "alice"), 30);
    for _ in 0..12 {
        assert!(acquire(&node, "alice").await.unwrap());
    }
    until_all_see(&[&kafka], "alice", 42).await;

    // Without `.synced(…)`, too, where the store counts the numbers.
    for start in [8, 9] {
        let kafka = cluster.store(start).await;
        for _ in 0..5 {
            assert!(acquire(&kafka, "bob").await.unwrap());
        }
        until_all_see(&[&kafka], "bob", 5 * (start - 7)).await;
    }
}

/// Calls of one key at the same time have their numbers in the order of the topic, so none is taken
/// for a repetition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_the_same_time_are_all_counted() {
    let cluster = Cluster::start().await;
    let aggregator = cluster.aggregator().await;
    let kafka = cluster.store(1).await;
    let calls: Vec<_> = (0..200)
        .map(|_| {
            let kafka = kafka.clone();
            tokio::spawn(async move { acquire(&kafka, "alice").await.unwrap() })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap());
    }
    until_all_see(&[&kafka], "alice", 200).await;
    assert_eq!(aggregator.counters.repeated(), 0);
}

/// An aggregator that had lost its partition wrote a total. Nodes know by the offset that it is
/// older than theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_total_that_is_older_is_left_out() {
    let cluster = Cluster::start().await;
    let kafka = cluster.store(1).await;
    let aggregator = cluster.aggregator().await;
    push(&kafka, "alice", Batch { node: 7, number: 1 }, 10).await;
    until_all_see(&[&kafka], "alice", 10).await;
    push(&kafka, "alice", Batch { node: 7, number: 2 }, 10).await;
    until_all_see(&[&kafka], "alice", 20).await;
    aggregator.end().await;

    let old = r#"{"state":null,"next":1,"last":{},"as_of":0,"until":0}"#;
    write_total(&cluster, "alice", Some(old)).await;
    until("an older total", || {
        (kafka.outdated() == 1)
            .then_some(())
            .ok_or(kafka.outdated().to_string())
    })
    .await;
    assert_eq!(spent(&kafka, "alice"), 20);
    // Nor does an aggregator begin with it.
    let _aggregator = cluster.aggregator().await;
    push(&kafka, "alice", Batch { node: 7, number: 3 }, 1).await;
    until_all_see(&[&kafka, &cluster.store(2).await], "alice", 21).await;
}

/// Writes to the topic of totals.
async fn write_total(cluster: &Cluster, key: &str, payload: Option<&str>) {
    let settings = &cluster.settings;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &settings.brokers);
    let producer: FutureProducer = config.create().unwrap();
    let topic = format!("{}.totals", settings.topic);
    let key = state_key(key);
    let key = format!(
        "api/{:016x}/{:016x}",
        key.key().digest(),
        key.kind().as_u64()
    );
    let partition = i32::try_from(tollgate::key::Key::from(&*key).digest() % PARTITIONS as u64);
    let record = FutureRecord::<str, str>::to(&topic)
        .partition(partition.unwrap())
        .key(&key);
    let record = match payload {
        Some(payload) => record.payload(payload),
        None => record,
    };
    producer.send(record, SOON).await.unwrap();
}

/// An aggregator that had lost its partition removed a key that is in use, and a foreign program
/// wrote to the topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_of_a_key_in_use_and_foreign_bytes_are_left_out() {
    let cluster = Cluster::start().await;
    let kafka = cluster.store(1).await;
    let aggregator = cluster.aggregator().await;
    push(&kafka, "alice", Batch { node: 7, number: 1 }, 10).await;
    until_all_see(&[&kafka], "alice", 10).await;
    aggregator.end().await;

    write_total(&cluster, "alice", None).await;
    write_total(&cluster, "alice", Some("foreign")).await;
    until("both", || {
        let left_out = (kafka.outdated(), kafka.unreadable());
        (left_out == (1, 1))
            .then_some(())
            .ok_or(format!("{left_out:?}"))
    })
    .await;
    let late = cluster.store(2).await;
    assert_eq!(late.unreadable(), 1);
    assert_eq!([&kafka, &late].map(|node| spent(node, "alice")), [10, 10]);

    let aggregator = cluster.aggregator().await;
    push(&kafka, "alice", Batch { node: 7, number: 2 }, 1).await;
    until_all_see(&[&kafka, &late], "alice", 11).await;
    assert_eq!(aggregator.counters.unreadable(), 1);
}
