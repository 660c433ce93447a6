//! The number of operations and the time with many processes on one key.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use support::Random;
use tokio::time::{Instant, sleep};
use tollgate::{
    Cost, Policy, TokenBucket,
    backoff::Backoff,
    store::{
        Store, StoreError,
        driver::{Ask, CasStore, CasStoreBuilder, CompareAndSwap, Loaded, Swap, Swapped},
    },
    time::ManualClock,
};

use crate::cas::memory::{Memory, Ways};

/// A store behind a network: each direction takes 8 to 12 ms.
struct Far {
    memory: Memory,
    random: Arc<Mutex<Random>>,
}

impl Far {
    async fn way(&self) {
        let more = self.random.lock().unwrap().below(5);
        sleep(Duration::from_millis(8 + more)).await;
    }
}

impl CompareAndSwap for Far {
    type Version = u64;

    async fn load(&self, key: &[u8]) -> Result<Loaded<u64>, StoreError> {
        self.way().await;
        let loaded = self.memory.load(key).await;
        self.way().await;
        loaded
    }

    async fn swap(&self, key: &[u8], swap: Swap<'_, u64>) -> Result<Swapped<u64>, StoreError> {
        self.way().await;
        let swapped = self.memory.swap(key, swap).await;
        self.way().await;
        swapped
    }
}

/// Returns the number of operations, and the time until all decisions are made.
async fn contend(nodes: u64, each: u64, ways: Ways, backoff: Option<Backoff>) -> (u64, Duration) {
    let memory = Memory::new(ManualClock::default(), ways);
    let started = Instant::now();
    let tasks = (0..nodes).map(|n| {
        let memory = memory.node(n);
        let clock = memory.clock.clone();
        let random = Arc::new(Mutex::new(Random::new(n)));
        let store: CasStore<Far, TokenBucket> = CasStoreBuilder::new(Far { memory, random })
            .clock(clock)
            .seed(1000 * n)
            .backoff(backoff)
            .attempts(u32::MAX)
            .deadline(Duration::from_secs(3600))
            .build();
        tokio::spawn(async move {
            let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(1_000_000));
            for _ in 0..each {
                let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
                assert!(store.acquire(&ask).await.unwrap().is_admitted());
            }
            store.stats().loads + store.stats().swaps
        })
    });
    let mut sent = 0;
    for task in tasks.collect::<Vec<_>>() {
        sent += task.await.unwrap();
    }
    (sent, started.elapsed())
}

const MS: Duration = Duration::from_millis(1);

/// The back-offs in the table of the documentation.
const BACKOFFS: [Option<Backoff>; 3] = [
    None,
    Some(Backoff::full(
        Duration::from_millis(4),
        Duration::from_millis(256),
    )),
    Some(Backoff::full(
        Duration::from_millis(20),
        Duration::from_secs(2),
    )),
];

#[tokio::test(start_paused = true)]
async fn the_table_in_the_documentation_is_current() {
    let documentation = include_str!("../../../src/store/cas/store.rs");
    let mut missing = Vec::new();
    for nodes in [1, 2, 5, 10, 20, 50, 100, 200] {
        let mut row = format!("/// | {nodes} |");
        for backoff in BACKOFFS {
            let (sent, took) = contend(nodes, 1, Ways::default(), backoff).await;
            let tenths = sent * 10 / nodes;
            let each = format!("{}.{}", tenths / 10, tenths % 10);
            row += &format!(" {each}, {} s |", seconds(took));
        }
        if !documentation.contains(&row) {
            missing.push(row);
        }
    }
    assert!(
        missing.is_empty(),
        "rows are missing:\n{}",
        missing.join("\n")
    );
}

/// Formats a time with two decimals.
fn seconds(time: Duration) -> String {
    let hundredths = time.as_millis() / 10;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[tokio::test(start_paused = true)]
async fn back_off_and_returned_versions_reduce_operations() {
    let all = Ways {
        versions: true,
        found: true,
        ..Ways::default()
    };
    let (plainly, _) = contend(64, 5, Ways::default(), None).await;
    let (politely, _) = contend(64, 5, Ways::default(), BACKOFFS[2]).await;
    let (knowingly, _) = contend(64, 5, all, BACKOFFS[2]).await;
    assert!(politely * 4 < plainly, "{politely} and {plainly}");
    assert!(knowingly * 3 < politely * 2, "{knowingly} and {politely}");
    // A single process needs one swap per decision.
    let (alone, took) = contend(1, 100, all, BACKOFFS[2]).await;
    assert_eq!(alone, 101);
    assert!(took <= 101 * 24 * MS);
}
