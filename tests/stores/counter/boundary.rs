//! Calls around the boundary of two slices of a sliding window.

use std::{
    cmp,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tollgate::{
    Decision, SlidingWindow, Timestamp,
    algorithm::Counted,
    store::driver::{CounterStore, CounterStoreBuilder},
    time::{Clock, ManualClock},
};

use super::{acquire, cache::Cache};

/// An admission: when it was asked for and answered, by the clock of its host, and its cost.
struct Admission {
    at: Timestamp,
    answered: Timestamp,
    cost: u64,
}

#[derive(Default)]
struct Admitted(Vec<Admission>);

impl Admitted {
    fn note(&mut self, decision: &Decision, answered: Timestamp) {
        self.0
            .extend({ *decision }.take_charge().map(|charge| Admission {
                at: charge.at,
                answered,
                cost: charge.cost,
            }));
    }

    /// Asserts that the estimate is at most the limit whenever an admission is answered, in exact
    /// fractions. An admission counts in the slice in which it was asked for.
    ///
    /// Not at the instant when it was asked for: until the answer, the oldest slice may end, and no
    /// longer counts then.
    fn assert_limit(&self, rule: &SlidingWindow, context: &str) {
        let slicing = rule.slicing().unwrap();
        let limit = u128::from(rule.quota().amount());
        for now in self.0.iter().map(|admission| admission.answered) {
            let slice = slicing.slice(now);
            let (begin, end) = (slicing.begin(slice), slicing.begin(slice + 1));
            let nanos = |from: Timestamp, to: Timestamp| to.saturating_since(from).as_nanos();
            let (rest, length) = (nanos(now, end), nanos(begin, end));
            let before = self.0.iter().filter(|one| one.answered <= now);
            let weighed = before.map(|one| {
                let age = slice - slicing.slice(one.at);
                let weight = match age.cmp(&rule.slice_count()) {
                    cmp::Ordering::Less => length,
                    cmp::Ordering::Equal => rest,
                    cmp::Ordering::Greater => 0,
                };
                u128::from(one.cost) * weight
            });
            let sum: u128 = weighed.sum();
            assert!(
                sum <= limit * length,
                "{context}: {sum} / {length} at {now:?}, above {limit}"
            );
        }
    }
}

/// The clock of a host that is late by a fixed duration.
///
/// All hosts share one clock underneath, so that their distance stays the same whenever it is
/// moved.
#[derive(Clone)]
struct Late(ManualClock, Duration, Arc<AtomicU64>);

impl Clock for Late {
    fn now(&self) -> Timestamp {
        let late = u64::try_from(self.1.as_nanos()).unwrap();
        let now = Timestamp::from_nanos(self.0.now().as_nanos() - late);
        // Some threads stop here, so that others act between a reading of the clock and what
        // follows from it.
        let random = self.2.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        if random >> 59 == 0 {
            thread::sleep(Duration::from_micros((random >> 48) % 128));
        }
        now
    }
}

type Host = CounterStore<Cache, SlidingWindow>;

/// Returns two hosts that are late, and one that is not, with their clocks.
fn hosts(cache: &Cache, clock: &ManualClock, apart: Duration) -> [(Host, Late); 3] {
    [apart, apart, Duration::ZERO].map(|late| {
        let clock = Late(clock.clone(), late, Arc::default());
        let builder = CounterStoreBuilder::new(cache.clone()).clocks_apart(apart);
        (builder.clock(clock.clone()).build(), clock)
    })
}

/// Runs calls of many tasks while time passes from slice to slice, with clocks this far apart.
/// Returns the number of admissions.
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
            let (host, its_clock) = hosts[n % hosts.len()].clone();
            tasks.push(tokio::spawn(async move {
                let decision = acquire(&host, &rule, 1 + n as u64 % 2).await.unwrap();
                (decision, its_clock.now())
            }));
            tokio::task::yield_now().await;
            if n == 12 || n == 24 {
                clock.advance(Duration::from_millis(1) + apart);
            }
        }
        for task in tasks {
            let (decision, answered) = task.await.unwrap();
            admitted.note(&decision, answered);
        }
        clock.advance(length - 2 * (Duration::from_millis(1) + apart));
    }
    admitted.assert_limit(&rule, &format!("{rule:?}, seed {seed}, {apart:?} apart"));
    admitted.0.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn concurrent_calls_at_a_boundary_see_each_other() {
    for seed in 0..support::cases(40).max(6) {
        for slices in [1, 4] {
            let rule = SlidingWindow::per_minute(12).slices(slices);
            for apart in [0, 1, 70].map(Duration::from_millis) {
                let admitted = race(rule, seed, apart).await;
                assert!(admitted >= 8, "{rule:?}, seed {seed}: {admitted}");
            }
        }
    }
}
