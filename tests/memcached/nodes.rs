//! Nodes that count themselves.

use std::time::Duration;

use tollgate::{
    FixedWindow, Policy, Timestamp,
    store::{
        MemcachedCounters,
        driver::{CounterStore, FleetStore, NodeCounts},
    },
    time::{Clock, SystemClock},
};

use super::{connect, servers};

/// A clock that is so many seconds ahead.
#[derive(Clone)]
struct Ahead(i64);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        let by = Duration::from_secs(self.0.unsigned_abs());
        match self.0 {
            0.. => SystemClock::default().now().saturating_add(by),
            _ => SystemClock::default().now().saturating_sub(by),
        }
    }
}

type Node = (MemcachedCounters<FixedWindow>, Ahead);

/// Each node is the last one of a round to count itself once. Returns in how many rounds it counts
/// all nodes.
async fn rounds_that_count_all(nodes: &[Node], name: &str) -> usize {
    let mut whole = 0;
    for last in 0..nodes.len() {
        let policy = Policy::new(&format!("{name}{last}"));
        let mut nodes_found = 0;
        for n in 1..=nodes.len() {
            let (store, clock) = &nodes[(last + n) % nodes.len()];
            let period = clock.now().as_nanos() / NodeCounts::PERIOD.as_nanos() as u64;
            let counting = store.count_node(&policy, period).unwrap();
            nodes_found = counting.await.unwrap().nodes();
        }
        assert!(nodes_found <= nodes.len() as u64, "{nodes_found}");
        whole += usize::from(nodes_found == nodes.len() as u64);
    }
    whole
}

#[tokio::test]
async fn a_node_that_is_ahead_or_behind_hides_nobody() {
    let server = servers::Memcached::start();
    let mut nodes: Vec<Node> = Vec::new();
    for ahead in [0, 0, 0, 0, 60, -60] {
        let connection = connect(&server).await;
        let store = CounterStore::builder_on(connection)
            .clock(Ahead(ahead))
            .build();
        nodes.push((store, Ahead(ahead)));
    }
    // A period may end within one of six rounds.
    assert!(rounds_that_count_all(&nodes, "a").await >= 5);
    // What a node knows of the server's clock is asked for again in time.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    assert!(rounds_that_count_all(&nodes, "b").await >= 5);
}
