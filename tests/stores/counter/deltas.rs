//! Deltas of nodes that decide by themselves, on counters that fail, hang or are far.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use support::Random;
use tollgate::{
    FixedWindow, SlidingWindow,
    algorithm::Counted,
    key::Key,
    store::{
        Store, StoreError, StoreExt, SyncConfig,
        driver::{Batch, CounterStore, CounterStoreBuilder, Delta, FleetStore, Increment, Totals},
    },
    time::ManualClock,
};

use super::{ask, cache::Cache, policy};

/// The most deltas of a call of a node that decides by itself.
const WHOLE_BATCH: u64 = 256;

/// The units of additions, noted where they are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    /// Units of all additions that were begun.
    sent: u64,
    /// Of these, units of additions that were not made.
    lost: u64,
    /// Of these, units of additions without an answer, made or not.
    unanswered: u64,
}

/// A cache at the end of a link that takes its time, loses what it is told to, and hangs.
#[derive(Clone)]
struct Link {
    cache: Cache,
    trip: Duration,
    account: Arc<Mutex<Account>>,
    /// One addition in this many is lost before it is made, after that, and never answered. 0 means
    /// none.
    faults: Arc<Mutex<(Random, u64)>>,
    /// A counter whose name contains this cannot be read.
    unreadable: Option<&'static str>,
}

impl Link {
    fn new(clock: &ManualClock) -> Self {
        Self {
            cache: Cache::new(clock),
            trip: Duration::from_millis(2),
            account: Arc::default(),
            faults: Arc::new(Mutex::new((Random::new(7), 0))),
            unreadable: None,
        }
    }

    fn fail(&self, seed: u64, one_in: u64) {
        *self.faults.lock().unwrap() = (Random::new(seed), one_in);
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap()
    }

    /// The units of all counters.
    fn total(&self) -> u64 {
        self.cache.counters().into_values().sum()
    }

    /// Returns a number below 4 if an operation fails.
    fn fault(&self) -> Option<u64> {
        let (random, one_in) = &mut *self.faults.lock().unwrap();
        (*one_in > 0 && random.below(*one_in) == 0).then(|| random.below(4))
    }

    fn store<Rule: Counted>(&self, clock: &ManualClock) -> CounterStore<Self, Rule> {
        CounterStoreBuilder::new(self.clone())
            .clock(clock.clone())
            .build()
    }
}

/// Notes an addition that ends without an answer, also by being dropped.
struct Open<'a>(&'a Link, u64);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.account().unanswered += self.1;
    }
}

impl Increment for Link {
    async fn add(
        &self,
        key: &[u8],
        amount: u64,
        keep: Duration,
        beside: &[Box<[u8]>],
    ) -> Result<Totals, StoreError> {
        self.account().sent += amount;
        self.account().lost += amount;
        let mut open = Open(self, amount);
        tokio::time::sleep(self.trip / 2).await;
        let fault = self.fault();
        if fault == Some(0) {
            return Err(StoreError::unavailable("a fault before the addition"));
        }
        if fault == Some(1) {
            std::future::pending::<()>().await;
        }
        let totals = self.cache.add(key, amount, keep, beside).await?;
        self.account().lost -= amount;
        match fault {
            Some(2) => return Err(StoreError::timeout()),
            Some(_) => std::future::pending::<()>().await,
            None => {}
        }
        tokio::time::sleep(self.trip / 2).await;
        open.1 = 0;
        Ok(totals)
    }

    async fn subtract(&self, key: &[u8], amount: u64) -> Result<(), StoreError> {
        self.cache.subtract(key, amount).await
    }

    async fn read(&self, keys: &[Box<[u8]>]) -> Result<Vec<u64>, StoreError> {
        tokio::time::sleep(self.trip).await;
        if let Some(bad) = self.unreadable
            && keys
                .iter()
                .any(|key| String::from_utf8_lossy(key).contains(bad))
        {
            return Err(StoreError::unsupported("not a number"));
        }
        match self.fault() {
            Some(_) => Err(StoreError::unavailable("a reading that fails")),
            None => self.cache.read(keys).await,
        }
    }

    async fn remove(&self, keys: &[Box<[u8]>]) -> Result<(), StoreError> {
        self.cache.remove(keys).await
    }
}

fn delta<Rule>(rule: &Rule, key: Key, number: u64, units: u64) -> Delta<'_, Rule> {
    let batch = Batch { node: 1, number };
    Delta::new(policy(), rule, key, batch, (Duration::ZERO, units))
}

/// A key by its name, so that its counters can be found.
fn named(n: u64) -> Key {
    Key::from(format!("k{n}").as_str()).labelled()
}

/// Additions of different keys are in flight together: a store two milliseconds away takes a whole
/// batch within one deadline.
#[tokio::test(start_paused = true)]
async fn a_whole_batch_is_added_within_one_deadline() {
    let clock = ManualClock::default();
    let link = Link::new(&clock);
    let store = link.store(&clock).timeout(Duration::from_millis(100));
    let rule = SlidingWindow::per_day(1000);
    let deltas: Vec<_> = (0..WHOLE_BATCH)
        .map(|n| delta(&rule, Key::from(n), 1, n + 1))
        .collect();
    let before = tokio::time::Instant::now();
    let synced = store.sync(&deltas).unwrap().await.unwrap();
    assert_eq!(synced.len() as u64, WHOLE_BATCH);
    assert!(synced.iter().all(Result::is_ok), "{synced:?}");
    assert!(before.elapsed() < Duration::from_millis(50));
    assert_eq!(link.total(), (1..=WHOLE_BATCH).sum::<u64>());
    assert_eq!(store.get_ref().stats().doubtful, 0);
}

/// A delta may be sent again many times after its addition failed: its units are counted as
/// doubtful once.
#[tokio::test(start_paused = true)]
async fn a_doubtful_unit_is_counted_once() {
    for fault in 0..4 {
        let clock = ManualClock::default();
        let link = Link::new(&clock);
        let store = link.store(&clock);
        let rule = FixedWindow::per_day(100);
        let mut seed = 0;
        // The first addition and nothing else meets this fault.
        while {
            link.fail(seed, 1);
            link.fault();
            link.fail(seed, 1);
            link.fault() != Some(fault)
        } {
            seed += 1;
        }
        link.fail(seed, 1);
        let deltas = [delta(&rule, Key::GLOBAL, 1, 7)];
        for _ in 0..5 {
            let syncing = store.sync(&deltas).unwrap();
            let answer = tokio::time::timeout(Duration::from_millis(50), syncing).await;
            assert!(!answer.is_ok_and(|answer| answer.is_ok()));
        }
        link.fail(0, 0);
        let synced = store.sync(&deltas).unwrap().await.unwrap();
        assert!(synced[0].is_ok());
        assert_eq!(store.stats().doubtful, 7, "fault {fault}");
        assert_eq!(link.total(), if fault < 2 { 0 } else { 7 }, "fault {fault}");
    }
}

/// Deltas that were added, and whose answer was lost because a reading failed, are not doubtful.
#[tokio::test(start_paused = true)]
async fn an_addition_that_was_answered_is_not_doubtful() {
    let clock = ManualClock::default();
    let mut link = Link::new(&clock);
    link.unreadable = Some(":");
    let rule = FixedWindow::per_day(100);
    let store = link.store(&clock);
    for _ in 0..3 {
        let deltas = [delta(&rule, Key::GLOBAL, 1, 7)];
        assert!(store.sync(&deltas).unwrap().await.unwrap()[0].is_err());
    }
    assert_eq!((store.stats().doubtful, link.total()), (0, 7));
}

/// Keys with several deltas under two windows, as after a change of the rule, on a link that loses
/// and hangs: what is counted as doubtful is what a slow book-keeper counts, and nothing else is
/// lost or repeated.
#[tokio::test(start_paused = true)]
async fn nothing_is_lost_or_repeated_but_what_is_counted() {
    for seed in 0..support::cases(30).max(10) {
        let clock = ManualClock::default();
        let link = Link::new(&clock);
        let store = link.store(&clock);
        let rules = [
            SlidingWindow::per_day(1 << 40),
            SlidingWindow::per_hour(1 << 40),
        ];
        let mut random = Random::new(seed);
        let (mut number, mut sent) = (0, 0);
        for round in 0..10 {
            let mut deltas = Vec::new();
            for _ in 0..=random.below(150) {
                number += 1;
                let units = random.below(20);
                sent += units;
                let (rule, key) = (random.below(2) as usize, Key::from(random.below(100)));
                deltas.push(delta(&rules[rule], key, number, units));
            }
            // Each key's until all of them are answered, as a node does.
            for attempt in 0.. {
                if deltas.is_empty() {
                    break;
                }
                assert!(attempt < 100, "a link that fails no more");
                let faults = [4, 4, 0][usize::min(attempt / 3, 2)];
                link.fail(seed * 1000 + round * 100 + attempt as u64, faults);
                let deadline = Duration::from_millis(20 + random.below(40));
                let syncing = store.sync(&deltas).unwrap();
                let answer = tokio::time::timeout(deadline, syncing).await;
                let Ok(Ok(synced)) = answer else { continue };
                let failed: HashSet<Key> = (deltas.iter().zip(&synced))
                    .filter(|(_, result)| result.is_err())
                    .map(|(delta, _)| *delta.key())
                    .collect();
                deltas.retain(|delta| failed.contains(delta.key()));
            }
        }
        let account = *link.account();
        assert_eq!(account.sent, sent, "seed {seed}: each delta is added once");
        assert_eq!(store.stats().doubtful, account.unanswered, "seed {seed}");
        assert_eq!(link.total(), sent - account.lost, "seed {seed}");
        assert!(account.lost > 0 && account.unanswered > account.lost);
    }
}

/// A key that counters cannot run or read fails alone.
#[tokio::test(start_paused = true)]
async fn one_key_does_not_fail_the_others() {
    let clock = ManualClock::default();
    let mut link = Link::new(&clock);
    link.unreadable = Some("k1");
    let store = link.store(&clock);
    let rule = FixedWindow::per_day(100);
    let unfit = FixedWindow::per_day(100).from_first_call();
    for number in 1..=2 {
        let synced = store.sync(&[
            delta(&rule, named(0), number, 5),
            delta(&unfit, named(3), number, 5),
            delta(&rule, named(1), number, 0),
            delta(&rule, named(2), number, 5),
        ]);
        let synced = synced.unwrap().await.unwrap();
        let fails: Vec<_> = synced.iter().map(Result::is_err).collect();
        assert_eq!(fails, [false, true, true, false]);
        let mut errors = synced.into_iter().filter_map(Result::err);
        assert!(errors.all(|error| error.is_unsupported()));
    }
    assert_eq!(link.total(), 2 * (5 + 5));
}

/// A node that decides by itself, on counters that fail: it pushes each unit once.
#[tokio::test(start_paused = true)]
async fn a_node_on_counters_loses_what_is_counted() {
    for seed in 0..10 {
        let clock = ManualClock::default();
        let link = Link::new(&clock);
        let store = link.store(&clock);
        let rule = FixedWindow::per_day(1 << 30);
        let config = SyncConfig::new().max_unsynced(50).nodes(2);
        let node = store.clone().timeout(Duration::from_millis(50)).synced(
            config
                .clock(clock.clone())
                .period(Duration::from_millis(20)),
        );
        // The store decides first calls of keys, which are no deltas.
        for key in 0..40_u64 {
            let asks = [ask(&rule, Key::from(key), 1)];
            assert!(node.acquire(&asks).await.unwrap().is_admitted());
        }
        for _ in 0..1_000 {
            clock.advance(Duration::from_millis(1));
            tokio::time::sleep(Duration::from_millis(1)).await;
            if node.stats().unsynced == 0 {
                break;
            }
        }
        assert_eq!(node.stats().unsynced, 0);
        let pushed_before = node.stats().pushed;
        let (sent_before, total_before) = (link.account().sent, link.total());
        link.fail(seed, 3);
        let (mut random, mut admitted) = (Random::new(seed), 0);
        for _ in 0..2000 {
            clock.advance(Duration::from_millis(1));
            tokio::time::advance(Duration::from_millis(1)).await;
            let cost = 1 + random.below(3);
            let asks = [ask(&rule, Key::from(random.below(40)), cost)];
            let call = node.acquire(&asks);
            let decided = tokio::time::timeout(Duration::from_millis(100), async { call.await });
            if let Ok(Ok(decisions)) = decided.await
                && decisions.is_admitted()
            {
                admitted += cost;
            }
        }
        link.fail(seed, 0);
        let mut left = 1;
        for _ in 0..100 {
            clock.advance(Duration::from_millis(20));
            left = node.flush(Duration::from_millis(20)).await;
            if left == 0 {
                break;
            }
        }
        let account = *link.account();
        let stats = node.stats();
        assert_eq!((left, stats.dropped), (0, 0), "seed {seed}: {stats:?}");
        let pushed = stats.pushed - pushed_before;
        assert_eq!(pushed, admitted, "seed {seed}: {stats:?}");
        assert_eq!(account.sent - sent_before, admitted, "seed {seed}");
        assert_eq!(store.stats().doubtful, account.unanswered, "seed {seed}");
        let added = link.total() - total_before;
        assert_eq!(added, admitted - account.lost, "seed {seed}");
        assert!(
            stats.failed > 0 && account.lost > 0,
            "seed {seed}: {stats:?}"
        );
    }
}
