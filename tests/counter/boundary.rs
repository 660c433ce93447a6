//! Calls around the boundary of two slices of a sliding window.

use std::time::Duration;

use tollgate::{
    Decision, SlidingWindow, Timestamp,
    algorithm::Counted,
    store::{Counters, CountersBuilder},
    time::{Clock, ManualClock},
};

use super::{acquire, cache::Cache};

/// The admissions with their instants, by the clocks of the hosts.
#[derive(Default)]
struct Admitted(Vec<(Timestamp, u64)>);

impl Admitted {
    fn note(&mut self, decision: &Decision) {
        self.0.extend(
            { *decision }
                .take_charge()
                .map(|charge| (charge.at, charge.cost)),
        );
    }

    /// Asserts that the estimate is at most the limit at each admission, in exact fractions.
    fn assert_limit(&self, rule: &SlidingWindow, context: &str) {
        let slicing = rule.slicing().unwrap();
        let limit = u128::from(rule.quota().amount());
        for (at, _) in &self.0 {
            let slice = slicing.slice(*at);
            let (begin, end) = (slicing.begin(slice), slicing.begin(slice + 1));
            let nanos = |from: Timestamp, to: Timestamp| to.saturating_since(from).as_nanos();
            let (rest, length) = (nanos(*at, end), nanos(begin, end));
            let mut sum = 0;
            for (other, cost) in &self.0 {
                let age = slice.checked_sub(slicing.slice(*other));
                let weight = match age {
                    Some(age) if age == rule.slice_count() => rest,
                    Some(age) if age < rule.slice_count() && other <= at => length,
                    _ => 0,
                };
                sum += u128::from(*cost) * weight;
            }
            assert!(
                sum <= limit * length,
                "{context}: {sum} / {length} at {at:?}, above {limit}"
            );
        }
    }
}

/// The clock of a host that is late by a fixed duration.
///
/// All hosts share one clock underneath, so that their distance stays the same whenever it is moved.
#[derive(Clone)]
struct Late(ManualClock, Duration);

impl Clock for Late {
    fn now(&self) -> Timestamp {
        let late = u64::try_from(self.1.as_nanos()).unwrap();
        Timestamp::from_nanos(self.0.now().as_nanos() - late)
    }
}

type Host = Counters<Cache, SlidingWindow, Late>;

/// Returns two hosts that are late, and one that is not.
fn hosts(cache: &Cache, clock: &ManualClock, apart: Duration) -> [Host; 3] {
    [apart, apart, Duration::ZERO].map(|late| {
        CountersBuilder::new(cache.clone())
            .clocks_apart(apart)
            .clock(Late(clock.clone(), late))
            .build()
    })
}

/// Runs calls of many tasks while time passes from slice to slice, with clocks this far apart. Returns the number of
/// admissions.
async fn race(rule: SlidingWindow, seed: u64, apart: Duration) -> usize {
    let clock = ManualClock::default();
    let slicing = rule.slicing().unwrap();
    let slice = slicing.slice(clock.now());
    let length = slicing
        .begin(slice + 1)
        .saturating_since(slicing.begin(slice));
    // Just before the end of a slice.
    clock.advance(length - Duration::from_millis(1));
    let cache = Cache::new(&clock).slow(seed, 6);
    let hosts = hosts(&cache, &clock, apart);
    let mut admitted = Admitted::default();
    for _ in 0..6 {
        let mut tasks = Vec::new();
        for n in 0..36 {
            let host = hosts[n % hosts.len()].clone();
            tasks.push(tokio::spawn(async move {
                acquire(&host, &rule, 1 + n as u64 % 2).await.unwrap()
            }));
            tokio::task::yield_now().await;
            if n == 12 || n == 24 {
                clock.advance(Duration::from_millis(1) + apart);
            }
        }
        for task in tasks {
            admitted.note(&task.await.unwrap());
        }
        clock.advance(length - 2 * (Duration::from_millis(1) + apart));
    }
    admitted.assert_limit(&rule, &format!("{rule:?}, seed {seed}, {apart:?} apart"));
    admitted.0.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_at_a_boundary_see_each_other() {
    for seed in 0..40 {
        for slices in [1, 4] {
            let rule = SlidingWindow::per_minute(12).slices(slices);
            for apart in [0, 1, 70].map(Duration::from_millis) {
                let admitted = race(rule, seed, apart).await;
                assert!(admitted >= 8, "{rule:?}, seed {seed}: {admitted}");
            }
        }
    }
}
