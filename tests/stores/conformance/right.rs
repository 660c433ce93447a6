//! Correct stores.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use support::timelines;
use tollgate::{
    AnyRule, TokenBucket,
    algorithm::Algorithm,
    store::{
        AtCapacity, Local, LocalBuilder, Store, StoreError, StoreExt,
        driver::{CasStoreBuilder, CompareAndSwap, Loaded, Swap, Swapped, Transactional},
    },
    testing::{
        Alternating, Fault, Faulty,
        conformance::{Broken, Law, Report, Suite},
    },
    time::{ManualClock, TokioClock},
};

use super::flawed::{Flaw, Flawed};
use crate::common::{
    custom::PerSecond,
    map_store::MapStore,
    memory::{Memory, Ways},
};

/// Checks everything that can be checked on a store whose clock can be moved.
async fn check<R, S>(suite: Suite<R, S>, clock: &ManualClock) -> Report
where
    R: Algorithm,
    S: Store<R, Answer: Send, Error: Debug + Send> + Clone + Send + Sync + 'static,
{
    let suite = suite
        .clock(clock.clone())
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .timelines(timelines());
    suite.run().await.unwrap()
}

fn local<R: Algorithm>(clock: &ManualClock) -> Local<R, ManualClock> {
    LocalBuilder::new().clock(clock.clone()).build()
}

fn all_but_faults(report: &Report) {
    assert_eq!(report.left_out(), [Law::Fault]);
    assert_eq!(report.kept().len(), Law::ALL.len() - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_under_any_rule() {
    let clock = ManualClock::default();
    let store = local(&clock);
    let report = check(Suite::new(store.clone()), &clock).await;
    all_but_faults(&report);
    // The suite made calls, and the memory used is bounded.
    assert!(report.calls() > 10_000, "{report}");
    let inserted = store.stats().inserted;
    assert!((2_000..5_000).contains(&inserted), "{inserted} keys");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_under_token_buckets() {
    let rules = [
        TokenBucket::per_second(3),
        TokenBucket::per_minute(7).burst(4),
        TokenBucket::per_second(7),
        TokenBucket::per_second(30_000_000),
        TokenBucket::per_hour(5).burst(9).initial(2),
        TokenBucket::per_minute(1).burst(5).initial(8),
        TokenBucket::per_second(2)
            .burst(3)
            .initial(0)
            .keep(Duration::from_secs(9)),
    ];
    for choice in [AtCapacity::InheritDebts, AtCapacity::RefuseNewcomers] {
        let clock = ManualClock::default();
        let store = LocalBuilder::new()
            .capacity(20_000)
            .at_capacity(choice)
            .clock(clock.clone())
            .build();
        all_but_faults(&check(Suite::with_rules(store, rules), &clock).await);
    }
}

/// Rules from outside the crate, including delaying ones, and pairs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_under_user_defined_rules() {
    let clock = ManualClock::default();
    let rules = [PerSecond::new(3), PerSecond::new(40), PerSecond::waiting(2)];
    all_but_faults(&check(Suite::with_rules(local(&clock), rules), &clock).await);
    let rules = [2, 9].map(|limit| (TokenBucket::per_minute(limit), PerSecond::new(5)));
    all_but_faults(&check(Suite::with_rules(local(&clock), rules), &clock).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_in_every_wrapper() {
    let clock = ManualClock::default();
    let store = || local::<AnyRule>(&clock);
    all_but_faults(&check(Suite::new(Arc::new(store())), &clock).await);
    all_but_faults(&check(Suite::new(store().boxed::<AnyRule>()), &clock).await);
    all_but_faults(&check(Suite::new(store().fail_open()), &clock).await);
    all_but_faults(&check(Suite::new(store().fail_closed().boxed::<AnyRule>()), &clock).await);
    let faulty = Faulty::new(Arc::new(store()).boxed::<AnyRule>());
    let counts = || faulty.faults().counts();
    all_but_faults(&check(Suite::new(faulty.clone()), &clock).await);
    assert!(counts().passed > 5_000 && counts().late == 0);
}

/// Late answers are valid answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_answers_late() {
    let clock = ManualClock::default();
    let faulty = Faulty::new(local::<AnyRule>(&clock));
    let late = [Fault::Late(1), Fault::Late(2), Fault::Late(7)];
    faulty.faults().by_chance(7, 2, late);
    all_but_faults(&check(Suite::new(faulty.clone()), &clock).await);
    let counts = faulty.faults().counts();
    assert!(counts.late > 2_000 && counts.passed > 2_000, "{counts:?}");
}

/// Each answer takes time, as that of a server does, so refunds come later than their charges, and
/// other calls in between.
#[tokio::test(start_paused = true)]
async fn races_that_take_time() {
    for seed in 1..=16 {
        let ways = Ways {
            delay: Some(Duration::from_millis(5)),
            varies: true,
            ..Ways::default()
        };
        let memory = Memory::new(ManualClock::default(), ways);
        let node = |memory| {
            CasStoreBuilder::new(memory)
                .clock(TokioClock::new())
                .seed(1)
                .build()
        };
        let (one, other) = (memory.node(seed), memory.node(seed + 100));
        let suite = Suite::new(Alternating::new(node(one), node(other)))
            .sleep(tokio::time::sleep)
            .spawn(tokio::spawn)
            .settling_back()
            .only(Law::Race);
        suite.run().await.unwrap();
    }
}

/// A store in a process that stalls for longer than an answer about a short lease may take.
struct Stalling {
    memory: Memory,
    loads: AtomicU64,
    /// The load at which it stalls; `None` for each of them.
    stalls_at: Option<u64>,
    stalled: Arc<AtomicBool>,
    /// It loses what it is to write.
    is_broken: bool,
}

impl CompareAndSwap for Stalling {
    type Version = u64;

    async fn load(&self, key: &[u8]) -> Result<Loaded<u64>, StoreError> {
        let load = self.loads.fetch_add(1, Relaxed);
        if self.stalls_at.is_none_or(|at| at == load) {
            self.stalled.store(true, Relaxed);
            std::thread::sleep(Duration::from_millis(40));
        }
        self.memory.load(key).await
    }

    async fn swap(&self, key: &[u8], swap: Swap<'_, u64>) -> Result<Swapped<u64>, StoreError> {
        match self.is_broken {
            true => Ok(Swapped::Done(None)),
            false => self.memory.swap(key, swap).await,
        }
    }
}

impl Stalling {
    /// Checks a law, with a lease whose third is shorter than a stall. Returns `true` if it stalled.
    async fn check(
        stalls_at: Option<u64>,
        is_broken: bool,
        law: Law,
    ) -> (bool, Result<Report, Broken>) {
        let (clock, stalled) = (ManualClock::default(), Arc::new(AtomicBool::new(false)));
        let stalling = Self {
            memory: Memory::new(clock.clone(), Ways::default()),
            loads: AtomicU64::new(0),
            stalls_at,
            stalled: Arc::clone(&stalled),
            is_broken,
        };
        let store = CasStoreBuilder::new(stalling).clock(clock.clone()).build();
        let rule: AnyRule = "in-flight 3 lease=100ms".parse().unwrap();
        let suite = Suite::with_rules(store, [rule])
            .clock(clock)
            .spawn(tokio::spawn)
            .settling_back();
        let result = suite.only(law).run().await;
        (stalled.load(Relaxed), result)
    }
}

#[tokio::test]
async fn a_machine_that_stalls_once_breaks_no_law() {
    for law in [Law::Limit, Law::Settle, Law::Renew, Law::Race, Law::Cancel] {
        // At every third load.
        for load in (0..).step_by(3) {
            let (stalled, result) = Stalling::check(Some(load), false, law).await;
            result.unwrap();
            if !stalled {
                assert!(load > 2, "{law}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_machine_that_stalls_excuses_no_broken_store() {
    let (stalled, result) = Stalling::check(None, true, Law::Limit).await;
    assert!(stalled && result.is_err());
}

/// The clock cannot be moved, so the suite waits in real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_with_the_system_clock() {
    let suite = Suite::new(Local::new())
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .timelines(4);
    all_but_faults(&suite.run().await.unwrap());
}

/// Two nodes that share their state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_that_take_turns() {
    let clock = ManualClock::default();
    let store = Flawed::new(&clock, Flaw::None);
    let nodes = Alternating::new(store.clone(), store);
    all_but_faults(&check(Suite::new(nodes), &clock).await);
}

/// Time advances while all tasks sleep.
#[tokio::test(start_paused = true)]
async fn memory_with_a_paused_clock() {
    let store: Local<AnyRule, _> = LocalBuilder::new().clock(TokioClock::new()).build();
    let suite = Suite::new(store)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .timelines(4);
    all_but_faults(&suite.run().await.unwrap());
}

/// A map that decides under its lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_under_a_lock() {
    let clock = ManualClock::default();
    let store = Transactional::with_clock(MapStore::<AnyRule>::default(), clock.clone());
    all_but_faults(&check(Suite::new(store), &clock).await);
}

/// The store of these tests, without a flaw.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_store_without_a_flaw() {
    let clock = ManualClock::default();
    let store = Flawed::new(&clock, Flaw::None);
    all_but_faults(&check(Suite::new(store), &clock).await);
}

/// Several asks are charged one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_settles_back() {
    let clock = ManualClock::default();
    let store = || Flawed::new(&clock, Flaw::SettlesBack);
    all_but_faults(&check(Suite::new(store()).settling_back(), &clock).await);
}
