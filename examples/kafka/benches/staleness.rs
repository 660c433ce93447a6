//! Measures how old the totals of a node are: `cargo bench`, or
//! `TOLLGATE_KAFKA=HOST:PORT cargo bench` for real brokers.
//!
//! One aggregator, and two nodes. One of them produces a delta; the other one looks once in a
//! millisecond until it sees it.
#![allow(missing_docs, reason = "a benchmark")]

use std::{env, error::Error, time::Duration};

use rdkafka::mocking::MockCluster;
use tokio::time::Instant;
use tollgate::{
    AnyRule, Cost, Policy,
    key::Key,
    store::{
        Store,
        driver::{Ask, Batch, Check, Delta, FleetStore},
    },
};
use tollgate_kafka::{Aggregator, Kafka, Settings};

/// Of `cargo bench`. Without its flag, a few show that everything runs.
const DELTAS: u64 = 1000;
const PARTITIONS: i32 = 12;

/// Prints the median, the 99th percentile and the maximum.
fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let [p50, p99] = [50, 99].map(|percent| times[(times.len() - 1) * percent / 100]);
    let most = times[times.len() - 1];
    println!("{what}: p50 {p50:.1?}, p99 {p99:.1?}, at most {most:.1?}");
}

fn spent(node: &Kafka, policy: &Policy, rule: &AnyRule, key: &str) -> Option<u64> {
    let ask = Ask::new(policy, rule, Key::from(key), Cost::ONE);
    match node.look(&[ask]) {
        Check::Ready(Ok(looked)) => {
            let look = looked.as_slice()[0];
            look.limit()?.checked_sub(look.remaining()?)
        }
        _ => None,
    }
}

async fn measure(settings: Settings) -> Result<(), Box<dyn Error>> {
    let mut aggregator = Aggregator::start(settings.clone()).await?;
    let adding_up = tokio::spawn(async move { aggregator.run_until(std::future::pending()).await });
    let (a, b) = (
        Kafka::connect(settings.clone(), 1).await?,
        Kafka::connect(settings, 2).await?,
    );
    while b.staleness().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let policy = Policy::new("api");
    let rule: AnyRule = "fixed-window 1000000/100d".parse()?;
    let (mut ways, mut ages) = (Vec::new(), Vec::new());
    let is_bench = env::args().any(|argument| argument == "--bench");
    for number in 1..=if is_bench { DELTAS } else { 20 } {
        // Every key is in another partition, and not in step with the rounds of the aggregator.
        tokio::time::sleep(Duration::from_millis(7 + number % 11)).await;
        let key = format!("client-{}", number % 50);
        let before = spent(&b, &policy, &rule, &key).unwrap_or_default();
        let batch = Batch { node: 7, number };
        let start = Instant::now();
        let delta = Delta::new(&policy, &rule, Key::from(&*key), batch, (Duration::ZERO, 1));
        a.sync(&[delta]).ok_or("no deltas")?.await?;
        while spent(&b, &policy, &rule, &key) == Some(before) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        ways.push(start.elapsed());
        ages.extend(b.staleness());
    }
    print("a delta is seen by another node after", ways);
    print("`Kafka::staleness`, of the oldest partition,", ages);
    adding_up.abort();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let topic = format!("staleness-{}", std::process::id());
    if let Ok(brokers) = env::var("TOLLGATE_KAFKA") {
        let settings = Settings::new(&brokers, &topic);
        settings.create_topics(PARTITIONS, 1).await?;
        return measure(settings).await;
    }
    let mock = MockCluster::new(1)?;
    for name in [&topic, &format!("{topic}.totals")] {
        mock.create_topic(name, PARTITIONS, 1)?;
    }
    measure(Settings::new(&mock.bootstrap_servers(), &topic)).await
}
