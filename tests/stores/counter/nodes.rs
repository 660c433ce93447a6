//! Nodes that count themselves, by the clock of the store.

use std::time::Duration;

use support::Random;
use tollgate::{
    FixedWindow, Timestamp,
    store::{
        StoreError,
        driver::{CounterStore, CounterStoreBuilder, FleetStore, Increment, NodeCounts, Totals},
    },
    time::{Clock, ManualClock},
};

use super::{cache::Cache, policy};

const PERIOD: u64 = NodeCounts::PERIOD.as_secs();

/// A connection to a cache that has a clock, which is known to within a second.
#[derive(Clone)]
struct Timed {
    cache: Cache,
    server: ManualClock,
    late: Duration,
}

impl Increment for Timed {
    async fn add(
        &self,
        key: &[u8],
        amount: u64,
        keep: Duration,
        beside: &[Box<[u8]>],
    ) -> Result<Totals, StoreError> {
        self.cache.add(key, amount, keep, beside).await
    }

    async fn subtract(&self, key: &[u8], amount: u64) -> Result<(), StoreError> {
        self.cache.subtract(key, amount).await
    }

    async fn read(&self, keys: &[Box<[u8]>]) -> Result<Vec<u64>, StoreError> {
        self.cache.read(keys).await
    }

    async fn remove(&self, keys: &[Box<[u8]>]) -> Result<(), StoreError> {
        self.cache.remove(keys).await
    }

    async fn now(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(Some(self.server.now().saturating_sub(self.late)))
    }
}

/// A node, and by how many seconds its clock is ahead of the store's.
struct Node {
    store: CounterStore<Timed, FixedWindow>,
    clock: ManualClock,
    ahead: i64,
    /// The latest time that its answers have shown. They show none that falls.
    shown: Timestamp,
}

struct Fleet {
    cache: Cache,
    server: ManualClock,
    nodes: Vec<Node>,
    random: Random,
    /// Counted from the beginning of the server's clock.
    seconds: u64,
}

impl Fleet {
    fn new(seed: u64, ahead: &[i64]) -> Self {
        let server = ManualClock::default();
        let mut fleet = Self {
            cache: Cache::new(&server),
            server,
            nodes: Vec::new(),
            random: Random::new(seed),
            seconds: 100_000 * PERIOD,
        };
        for ahead in ahead {
            let clock = ManualClock::default();
            let increment = Timed {
                cache: fleet.cache.clone(),
                server: fleet.server.clone(),
                late: Duration::from_millis(fleet.random.below(1_000)),
            };
            let store = CounterStoreBuilder::new(increment)
                .clock(clock.clone())
                .build();
            fleet.nodes.push(Node {
                store,
                clock,
                ahead: *ahead,
                shown: Timestamp::from_nanos(0),
            });
        }
        fleet
    }

    /// Each node counts itself once, within two seconds after a period of its clock has begun.
    /// Returns the least and the most that one of them counts.
    async fn pass_period(&mut self) -> (u64, u64) {
        let mut due = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let phase = self.seconds.saturating_add_signed(node.ahead) % PERIOD;
            let begins = self.seconds + (PERIOD - phase) % PERIOD;
            due.push((begins * 1_000 + self.random.below(2_000), n));
        }
        due.sort_unstable();
        let (mut least, mut most) = (u64::MAX, 0);
        for (millis, n) in due {
            let at = Timestamp::from_nanos(millis * 1_000_000);
            self.server.set(at);
            let Node {
                store,
                clock,
                ahead,
                shown,
            } = &mut self.nodes[n];
            let by = Duration::from_secs(ahead.unsigned_abs());
            let here = match ahead {
                0.. => at.saturating_add(by),
                _ => at.saturating_sub(by),
            };
            clock.set(here);
            *shown = here.max(*shown);
            let period = shown.as_nanos() / NodeCounts::PERIOD.as_nanos() as u64;
            let counts = store.count_node(policy(), period).unwrap().await.unwrap();
            (least, most) = (least.min(counts.nodes()), most.max(counts.nodes()));
        }
        self.seconds += PERIOD;
        (least, most)
    }
}

#[tokio::test]
async fn clocks_hide_no_nodes() {
    for seed in 0..50 {
        for ahead in [
            [0; 6],
            [0, 0, 0, 0, 60, -60],
            [0, 200, -200, 1_000, -1_000, 86_400],
            [0, 4, 5, 6, -4, -5],
            [0, 15, 25, -15, -25, 9],
        ] {
            let mut fleet = Fleet::new(seed, &ahead);
            for round in 0..30 {
                let (least, most) = fleet.pass_period().await;
                // Where half a period lies between the clocks, a node may come in the next period.
                let exact = round < 2 || (least == 6 && most <= 7);
                assert!(
                    exact,
                    "{ahead:?}, seed {seed}, round {round}: {least} to {most}"
                );
            }
        }
    }
}

/// A node whose clock steps is counted twice at most, for as long as the count is read.
#[tokio::test]
async fn a_clock_that_steps_hides_no_nodes() {
    for seed in 0..50 {
        for step in [60, -60, 5, -5, 33, -3_600] {
            let mut fleet = Fleet::new(seed, &[0; 6]);
            for round in 0..30 {
                let (least, most) = fleet.pass_period().await;
                assert!(
                    round < 2 || (least == 6 && most <= 7),
                    "step {step}, seed {seed}, round {round}: {least} to {most}"
                );
                if round == 10 {
                    fleet.nodes[2].ahead = step;
                }
            }
        }
    }
}

#[tokio::test]
async fn nodes_that_are_gone_are_forgotten() {
    let mut fleet = Fleet::new(1, &[0, 0, 60, -60]);
    for _ in 0..5 {
        fleet.pass_period().await;
    }
    fleet.nodes.truncate(1);
    for _ in 0..3 {
        fleet.pass_period().await;
    }
    assert_eq!(fleet.pass_period().await, (1, 1));
    let kept = fleet.cache.counters().len();
    assert!(kept <= 5, "{kept} are kept");
}
