//! Decisions from a lease, and of a node that pushes to the store later, beside those of the store
//! in memory.
//!
//! All units were granted before the run, all states were read, and nothing is pushed during it. So
//! every decision is made from what is here, and costs the same however slow the store is, and
//! whatever else the processors do. How many round trips are saved is measured by `benches/redis`.
//!
//! A busy machine still has slower caches. To count instructions instead, run a race by its name
//! and with `BENCH_ROUNDS=1` under `valgrind --tool=callgrind`, with
//! `--toggle-collect='leases::Bench::decide_later'` or `…decide_local`: each contender decides in a
//! function of its own, twice `EACH` times and a thousand times before. Leases read a clock that
//! valgrind does not have.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark prints ratios, and stops where something is odd"
)]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod common;
mod shelf;

use std::{
    collections::HashMap,
    hint::black_box,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use common::keys::{BenchKey, Keys, texts, zipf};
use shelf::Shelf;
use support::{
    bench::{Contender, Mode, Race, Reads, Table, together},
    counting::{Counting, allocations},
};
use tokio::runtime::Runtime;
use tollgate::{
    Cost, Policy, TokenBucket,
    algorithm::Algorithm,
    key::Key,
    store::{
        Backend, LeaseConfig, Leased, Local, LocalBuilder, Store, StoreError, StoreExt, SyncConfig,
        Synced,
        driver::{
            Ask, CasStore, CasStoreBuilder, Check, Decisions, StateKey, Transact, Transaction,
            Transactional,
        },
    },
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 21;
/// Decisions of each thread in a turn.
const EACH: usize = 250_000;
/// No unit ends during a run.
const HOLD: Duration = Duration::from_secs(600);
/// Nothing is pushed before four of these.
const PERIOD: Duration = Duration::from_secs(60);
/// More units than all turns spend of a key.
const UNITS: u64 = 12_000_000;
/// Units that are spent of each key at first. Otherwise buckets would fill up between two visits,
/// and each unit would begin a delta.
const SPENT: u64 = 400_000_000;

/// A limit that nobody reaches.
fn rule() -> TokenBucket {
    TokenBucket::per_second(1_000_000).burst(1_000_000_000)
}

/// The states of a server.
#[derive(Clone, Default)]
struct States(Arc<Mutex<HashMap<StateKey, <TokenBucket as Algorithm>::State>>>);

impl Backend for States {
    type Error = StoreError;
}

impl Transact<TokenBucket> for States {
    fn transact(&self, transaction: Transaction<'_, TokenBucket>) -> Result<Decisions, StoreError> {
        let mut states = self.0.lock().unwrap();
        let (decisions, changes) = transaction.decide(|key| states.get(key).cloned());
        for change in changes {
            match change.state {
                Some(state) => states.insert(change.key, state),
                None => states.remove(&change.key),
            };
        }
        Ok(decisions)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Result<(), StoreError> {
        let mut states = self.0.lock().unwrap();
        states.retain(|state, _| !state.is_of(policy, key));
        Ok(())
    }
}

type Node = Leased<Transactional<States>, TokenBucket>;
type Later = Synced<CasStore<Shelf, TokenBucket>, TokenBucket>;

/// The limit, and the visits of its keys.
struct Bench {
    runtime: Runtime,
    keys: Keys<String>,
    policy: Policy,
    rule: TokenBucket,
    threads: usize,
    each: usize,
    /// Decisions that waited for the store.
    waited: AtomicU64,
}

fn main() {
    let mode = Mode::from_args();
    let mut table = Table::new(Reads::Time);
    let each = mode.pick(EACH, 500);
    for (count, threads) in [(10_000, 1), (1, 1), (10_000, 2), (1, 2)] {
        let of = match count {
            1 => "hot key".to_owned(),
            _ => "10,000 keys".to_owned(),
        };
        let count = mode.pick(count, count.min(100));
        let runtime = tokio::runtime::Builder::new_current_thread();
        let bench = Bench {
            runtime: { runtime }.enable_time().build().unwrap(),
            keys: Keys::new(texts(count), &zipf(count, 4 * each)),
            policy: Policy::new("bench"),
            rule: rule(),
            threads,
            each,
            waited: AtomicU64::new(0),
        };
        let of = format!("{of}, {threads} threads");
        let (leases, later) = (format!("leases, {of}"), format!("pushed later, {of}"));
        if mode.runs(&leases) {
            bench.leases(&mode, &mut table, &leases);
        }
        if mode.runs(&later) {
            bench.pushed_later(&mode, &mut table, &later);
        }
        let waited = bench.waited.into_inner();
        if waited > 0 {
            eprintln!("{of}: {waited} decisions waited for the store");
        }
    }
    table.print(&mode, mode.rounds(ROUNDS));
}

impl Bench {
    fn ask<'a>(&'a self, key: &String, cost: Cost) -> Ask<'a, TokenBucket> {
        Ask::new(&self.policy, &self.rule, key.ours(), cost)
    }

    fn leases(&self, mode: &Mode, table: &mut Table, name: &str) {
        let config = LeaseConfig::new().duration(HOLD).keys(1_000_000);
        let node: Node = Transactional::new(States::default()).leased(config);
        self.runtime.block_on(async {
            for key in &self.keys.all {
                // The second call begins a lease, and the third one is granted what both cost.
                for units in [1, UNITS, UNITS] {
                    let ask = self.ask(key, Cost::new(units).unwrap());
                    assert!(node.acquire(&[ask]).await.unwrap().is_admitted());
                }
            }
        });
        let ours = self.contender("leases", |visits| self.decide_leases(&node, visits));
        self.race(mode, table, (name, &[("Local", "≤ 2.6")]), ours);
    }

    fn pushed_later(&self, mode: &Mode, table: &mut Table, name: &str) {
        let config = SyncConfig::new().max_unsynced(1_000_000_000).nodes(2);
        let config = config.period(PERIOD).keys(1_000_000);
        let later: Later = CasStoreBuilder::new(Shelf::default())
            .build()
            .synced(config);
        let spent = Cost::new(SPENT).unwrap();
        self.runtime.block_on(async {
            for key in &self.keys.all {
                let decisions = later.acquire(&[self.ask(key, spent)]).await;
                assert!(decisions.unwrap().is_admitted());
            }
        });
        let ours = self.contender("pushed later", |visits| self.decide_later(&later, visits));
        self.race(mode, table, (name, &[("Local", "≤ 3.0")]), ours);
    }

    fn race(
        &self,
        mode: &Mode,
        table: &mut Table,
        (name, targets): (&str, &'static [(&'static str, &'static str)]),
        ours: Contender<'_>,
    ) {
        let local: Local<TokenBucket> = LocalBuilder::new().capacity(20_000).build();
        for key in &self.keys.all {
            let _ = local.acquire(&[self.ask(key, Cost::new(SPENT).unwrap())]);
        }
        let local = self.contender("Local", |visits| self.decide_local(&local, visits));
        let race = Race {
            name,
            bare: None,
            contenders: vec![ours, local],
            targets,
        };
        table.race(mode, mode.rounds(ROUNDS), race);
    }

    /// A contender. `decide` returns the number of admitted visits.
    fn contender<'a>(
        &'a self,
        name: &'static str,
        decide: impl Fn(&[String]) -> usize + Sync + 'a,
    ) -> Contender<'a> {
        let (visits, each) = (&self.keys.visits, self.each);
        let few = each.min(1000);
        let (allocations, _) = allocations(|| decide(&visits[..few]));
        let turn = move |round: usize| {
            let share = visits.len() / self.threads;
            together(self.threads, each, |thread| {
                let begin = thread * share + round * each % (share - each + 1);
                let passed = decide(&visits[begin..begin + each]);
                assert_eq!(passed, each, "{name} passed");
            })
        };
        Contender {
            name,
            allocations: allocations as f64 / few as f64,
            turn: Box::new(turn),
        }
    }

    #[inline(never)]
    fn decide_leases(&self, node: &Node, visits: &[String]) -> usize {
        self.admitted(visits, |ask| node.acquire(&[ask]))
    }

    #[inline(never)]
    fn decide_later(&self, later: &Later, visits: &[String]) -> usize {
        self.admitted(visits, |ask| later.acquire(&[ask]))
    }

    /// Asks the store in memory as a wrapper is asked.
    #[inline(never)]
    fn decide_local(&self, local: &Local<TokenBucket>, visits: &[String]) -> usize {
        let admitted = visits.iter().filter(|key| {
            match local.acquire(&[self.ask(black_box(key), Cost::ONE)]) {
                Check::Ready(Ok(decisions)) => black_box(decisions).is_admitted(),
                Check::Pending(_) => unreachable!("the store in memory never waits"),
            }
        });
        admitted.count()
    }

    #[inline]
    fn admitted<F>(
        &self,
        visits: &[String],
        acquire: impl Fn(Ask<'_, TokenBucket>) -> Check<F>,
    ) -> usize
    where
        F: Future<Output = Result<Decisions, StoreError>>,
    {
        let admitted = visits.iter().filter(|key| {
            let decisions = match acquire(self.ask(black_box(key), Cost::ONE)) {
                Check::Ready(decisions) => decisions,
                Check::Pending(decisions) => {
                    self.waited.fetch_add(1, Ordering::Relaxed);
                    self.runtime.block_on(decisions)
                }
            };
            black_box(decisions.unwrap()).is_admitted()
        });
        admitted.count()
    }
}
