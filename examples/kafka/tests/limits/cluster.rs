//! A cluster, its nodes and its aggregators.

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};
use tollgate::{
    AnyRule, Cost, Policy,
    key::Key,
    store::{
        Store, StoreError, StoreExt, SyncConfig, Synced,
        driver::{Ask, Batch, Check, Delta, FleetStore, StateKey},
    },
};
use tollgate_kafka::{Aggregator, AggregatorCounters, Kafka, Settings};

pub(crate) const PARTITIONS: i32 = 3;
/// The longest time in which a cluster on this machine comes to rest.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) type Node = Synced<Kafka, AnyRule>;

pub(crate) struct Cluster {
    pub(crate) mock: Option<MockCluster<'static, DefaultProducerContext>>,
    pub(crate) settings: Settings,
}

/// An aggregator, which ends with its handle as if it had died: without a last commit.
pub(crate) struct Running {
    pub(crate) counters: AggregatorCounters,
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    /// Ends as planned.
    pub(crate) async fn end(mut self) -> AggregatorCounters {
        self.end.take();
        (&mut self.task).await.unwrap();
        self.counters.clone()
    }

    /// Ends in the middle of something.
    pub(crate) async fn abort(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The first message of a producer takes its time where processors are busy.
fn patient(brokers: &str, topic: &str) -> Settings {
    Settings {
        timeout: SOON,
        ..Settings::new(brokers, topic)
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
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

    pub(crate) async fn store(&self, id: u64) -> Kafka {
        Kafka::connect(self.settings.clone(), id).await.unwrap()
    }

    pub(crate) async fn node(&self, id: u64, max_unsynced: u64) -> (Node, Kafka) {
        let kafka = self.store(id).await;
        let config = SyncConfig::new()
            .period(Duration::from_millis(20))
            .max_unsynced(max_unsynced)
            .nodes(2);
        (kafka.clone().synced(config), kafka)
    }

    pub(crate) async fn aggregator(&self) -> Running {
        self.aggregator_of(self.settings.clone()).await
    }

    pub(crate) async fn aggregator_of(&self, settings: Settings) -> Running {
        let mut aggregator = Aggregator::start(settings).await.unwrap();
        let (end, ended) = oneshot::channel::<()>();
        Running {
            counters: aggregator.counters(),
            end: Some(end),
            task: tokio::spawn(async move {
                let ended = async {
                    let _ = ended.await;
                };
                aggregator.run_until(ended).await.unwrap();
            }),
        }
    }
}

pub(crate) fn rule() -> AnyRule {
    "sliding-window 1000/1d slices=4".parse().unwrap()
}

pub(crate) fn state_key(key: &str) -> StateKey {
    let (policy, rule) = (Policy::new("api"), rule());
    Ask::new(&policy, &rule, Key::from(key), Cost::ONE).state_key()
}

pub(crate) async fn acquire(
    node: &impl Store<AnyRule, Error = StoreError>,
    key: &str,
) -> Result<bool, StoreError> {
    let (policy, rule) = (Policy::new("api"), rule());
    let ask = Ask::new(&policy, &rule, Key::from(key), Cost::ONE);
    Ok(node.acquire(&[ask]).await?.is_admitted())
}

/// Produces a delta of a node, by its number.
pub(crate) async fn push(node: &Kafka, key: &str, batch: Batch, units: u64) {
    push_under(node, &rule(), key, batch, units).await;
}

pub(crate) async fn push_under(node: &Kafka, rule: &AnyRule, key: &str, batch: Batch, units: u64) {
    let policy = Policy::new("api");
    let delta = Delta::new(
        &policy,
        rule,
        Key::from(key),
        batch,
        (Duration::ZERO, units),
    );
    let pushed = node.sync(&[delta]).unwrap();
    pushed.await.unwrap();
}

pub(crate) fn spent(node: &Kafka, key: &str) -> u64 {
    let (policy, rule) = (Policy::new("api"), rule());
    let ask = Ask::new(&policy, &rule, Key::from(key), Cost::ONE);
    let Check::Ready(Ok(looked)) = node.look(&[ask]) else {
        panic!("totals are here");
    };
    let look = looked.as_slice()[0];
    look.limit().unwrap() - look.remaining().unwrap()
}

/// Waits until all nodes see so many units, and nothing of theirs is under way.
pub(crate) async fn until_all_see(nodes: &[&Kafka], key: &str, units: u64) {
    until(&format!("{units} units of {key}"), || {
        let seen: Vec<_> = nodes
            .iter()
            .map(|node| (spent(node, key), node.unsynced()))
            .collect();
        let is_so = seen.iter().all(|seen| *seen == (units, 0));
        is_so.then_some(()).ok_or(format!("{seen:?}"))
    })
    .await;
}

/// Waits for something, or says what is there instead.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(start.elapsed() < SOON, "{seen} instead of {what}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns keys of each partition.
pub(crate) fn keys_by_partition(count: usize) -> Vec<Vec<String>> {
    // As nodes do it: the page of the example promises it to other writers.
    let partition = |key: &String| {
        let state_key = state_key(key);
        let (policy, kind) = (state_key.policy().name().to_owned(), state_key.kind());
        let name = format!(
            "{policy}/{:016x}/{:016x}",
            state_key.key().digest(),
            kind.as_u64()
        );
        usize::try_from(Key::from(&*name).digest() % PARTITIONS as u64).unwrap()
    };
    let mut keys = vec![Vec::new(); PARTITIONS as usize];
    for key in (0..1000).map(|n| format!("client-{n}")) {
        let of_partition = &mut keys[partition(&key)];
        if of_partition.len() < count {
            of_partition.push(key);
        }
    }
    keys
}
