//! Limits through a mock cluster in this process, or through the brokers that `TOLLGATE_KAFKA` names.
#![allow(missing_docs, reason = "tests")]

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};
use tokio::sync::oneshot;
use tollgate::{
    AnyRule, Cost, Policy,
    key::Key,
    store::{Ask, Error, Settlement, Store, StoreExt, SyncConfig, Synced},
};
use tollgate_kafka::{Aggregator, Kafka, Settings};

const PARTITIONS: i32 = 3;
/// The longest time in which a cluster on this machine comes to rest.
const SOON: Duration = Duration::from_secs(30);

type Node = Synced<Kafka, AnyRule>;

struct Cluster {
    mock: Option<MockCluster<'static, DefaultProducerContext>>,
    settings: Settings,
}

/// The first message of a producer takes its time where processors are busy.
fn patient(brokers: &str, topic: &str) -> Settings {
    Settings {
        timeout: SOON,
        ..Settings::new(brokers, topic)
    }
}

impl Cluster {
    async fn start() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let topic = format!("limits-{}-{number}", std::process::id());
        if let Ok(brokers) = env::var("TOLLGATE_KAFKA") {
            let settings = patient(&brokers, &topic);
            settings.create_topics(PARTITIONS, 1).await.unwrap();
            return Self {
                mock: None,
                settings,
            };
        }
        let mock = MockCluster::new(1).unwrap();
        let settings = patient(&mock.bootstrap_servers(), &topic);
        for name in [&topic, &format!("{topic}.totals")] {
            mock.create_topic(name, PARTITIONS, 1).unwrap();
        }
        Self {
            mock: Some(mock),
            settings,
        }
    }

    async fn node(&self, id: u64, most_ahead: u64) -> (Node, Kafka) {
        let kafka = Kafka::connect(self.settings.clone(), id).await.unwrap();
        let config = SyncConfig::new()
            .period(Duration::from_millis(20))
            .most_ahead(most_ahead)
            .nodes(2);
        (kafka.clone().synced(config), kafka)
    }

    /// Starts an aggregator, which ends when the sender is used or dropped.
    async fn aggregator(&self) -> (oneshot::Sender<()>, tokio::task::JoinHandle<Aggregator>) {
        let mut aggregator = Aggregator::start(self.settings.clone()).await.unwrap();
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let ended = async {
                let _ = ended.await;
            };
            aggregator.run_until(ended).await.unwrap();
            aggregator
        });
        (end, task)
    }
}

fn rule() -> AnyRule {
    "sliding-window 1000/1d slices=4".parse().unwrap()
}

async fn acquire(node: &impl Store<AnyRule, Error = Error>, key: &str) -> Result<bool, Error> {
    let (policy, rule) = (Policy::new("api"), rule());
    let ask = Ask::new(&policy, &rule, Key::from(key), Cost::ONE);
    Ok(node.acquire(&[ask]).await?.is_admitted())
}

fn spent(node: &Kafka, key: &str) -> u64 {
    let (policy, rule) = (Policy::new("api"), rule());
    let ask = Ask::new(&policy, &rule, Key::from(key), Cost::ONE);
    let tollgate::store::Check::Ready(Ok(looked)) = node.look(&[ask]) else {
        panic!("totals are here");
    };
    let look = looked.as_slice()[0];
    look.limit().unwrap() - look.remaining().unwrap()
}

/// Waits until all nodes see so many units, and nothing of theirs is under way.
async fn until_all_see(nodes: &[&Kafka], key: &str, units: u64) {
    let start = tokio::time::Instant::now();
    loop {
        let seen: Vec<_> = nodes
            .iter()
            .map(|node| (spent(node, key), node.untold()))
            .collect();
        if seen.iter().all(|seen| *seen == (units, 0)) {
            return;
        }
        assert!(start.elapsed() < SOON, "{seen:?} instead of {units}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_hear_of_each_other_by_the_totals() {
    let cluster = Cluster::start().await;
    let (end, task) = cluster.aggregator().await;
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
    assert!(a.staleness().unwrap() < SOON);
    let _ = end.send(());
    assert_eq!(task.await.unwrap().unreadable(), 0);
    for node in [one, other] {
        assert_eq!(node.flush(SOON).await, 0);
    }
}

/// Both nodes spend as fast as they can. They exceed the limit by what they admit while totals are under way, and afterwards both refuse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_used_up_is_refused_everywhere() {
    let cluster = Cluster::start().await;
    let (end, task) = cluster.aggregator().await;
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
    let _ = end.send(());
    task.await.unwrap();
}

/// The aggregator is stopped and started anew in the middle, and reads what it had not committed again. Nothing counts twice, and nothing is lost. Meanwhile nodes go on, and
/// say how old the totals are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_the_aggregator_count_nothing_twice() {
    let cluster = Cluster::start().await;
    let (node, kafka) = cluster.node(1, 10).await;
    let mut admitted = 0;
    for round in 0..4 {
        let (end, task) = cluster.aggregator().await;
        for _ in 0..50 {
            admitted += u64::from(acquire(&node, "alice").await.unwrap());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        match round % 2 {
            // Without a commit of what was read last.
            0 => task.abort(),
            _ => drop(end),
        }
        let _ = task.await;
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
    let (end, task) = cluster.aggregator().await;
    // A node that is started now reads all of it.
    let (_, late) = cluster.node(2, 10).await;
    until_all_see(&[&kafka, &late], "alice", 300).await;
    let _ = end.send(());
    task.await.unwrap();
}

/// The brokers are gone, and the node goes on by its part. Afterwards it tells everything, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_brokers_is_told_afterwards() {
    let mut cluster = Cluster::start().await;
    cluster.settings.timeout = Duration::from_secs(1);
    let Some(mock) = &cluster.mock else {
        return;
    };
    let (end, task) = cluster.aggregator().await;
    let (node, kafka) = cluster.node(1, 10).await;
    let mut admitted = 0;
    for n in 0..120 {
        if n == 20 {
            mock.broker_down(1).unwrap();
        }
        admitted += u64::from(acquire(&node, "alice").await.unwrap());
    }
    assert!(node.stats().cut_off > 50, "{:?}", node.stats());
    mock.broker_up(1).unwrap();
    let start = tokio::time::Instant::now();
    while node.stats().unsynced > 0 {
        assert!(start.elapsed() < SOON, "{:?}", node.stats());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    until_all_see(&[&kafka], "alice", admitted).await;
    let _ = end.send(());
    task.await.unwrap();
}

/// Without `.synced(…)` each call is a message; refunds and resets are, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_and_resets_are_messages() {
    let cluster = Cluster::start().await;
    let (end, task) = cluster.aggregator().await;
    let kafka = Kafka::connect(cluster.settings.clone(), 7).await.unwrap();
    let (policy, rule) = (Policy::new("api"), rule());
    let ask = Ask::new(&policy, &rule, Key::from("alice"), Cost::new(40).unwrap());
    let decisions = kafka.acquire(&[ask]).await.unwrap();
    let charge = { decisions.as_slice()[0] }.take_charge().unwrap();
    until_all_see(&[&kafka], "alice", 40).await;
    let settlement = Settlement::new(&policy, &rule, Key::from("alice"), charge, 15).unwrap();
    kafka.settle(vec![settlement]).await.unwrap();
    until_all_see(&[&kafka], "alice", 15).await;
    kafka.reset(&policy, &Key::from("alice")).await.unwrap();
    until_all_see(&[&kafka], "alice", 0).await;
    let _ = end.send(());
    task.await.unwrap();
}
