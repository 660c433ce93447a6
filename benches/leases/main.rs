//! Decisions from a lease, and of a node that pushes to the store later, beside those of the store
//! in memory.
//!
//! All units were granted before the run, so that nearly every decision is made from what is here.
//! The store behind the leases is a map in memory, and the table at the end says how often it was
//! asked. How many round trips leases save is measured by `benches/redis`.
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
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{
    decider::{Decider, Part},
    keys::{BenchKey, Keys, texts, zipf},
};
use shelf::Shelf;
use support::{
    bench::{Contender, Mode, Race, Reads, Table},
    counting::{Counting, allocations},
};
use tokio::runtime::Runtime;
use tollgate::{
    Policy, TokenBucket,
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
/// No unit ends during a run.
const HOLD: Duration = Duration::from_secs(60);

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
/// Tells the store within a period, or four, while the run goes on.
type Later = Synced<CasStore<Shelf, TokenBucket>, TokenBucket>;

fn main() {
    let mode = Mode::from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let mut table = Table::new(Reads::Time);
    let many = mode.pick(10_000, 100);
    let visits = mode.pick(4_000_000, 10_000);
    for threads in [1, 2] {
        let names = [
            format!("10,000 keys, {threads} threads"),
            format!("hot key, {threads} threads"),
        ];
        let targets: [&[_]; 2] = [&[("Local", "≤ 2.5")], &[("Local", "≤ 3.5")]];
        for ((name, targets), count) in names.into_iter().zip(targets).zip([many, 1]) {
            if mode.runs(&name) {
                let order = if count == 1 {
                    vec![0; visits]
                } else {
                    zipf(count, visits)
                };
                let keys = Keys::new(texts(count), &order);
                let race = (&*name, targets, threads);
                let asked = compete(&mode, &mut table, &runtime, &keys, race);
                if mode.full {
                    eprintln!("{name}: the store was asked for {asked:.5} of the decisions");
                }
            }
        }
    }
    table.print(&mode, mode.rounds(ROUNDS));
}

/// Lets leases run against the store in memory. Returns the part of the decisions from leases that
/// asked the store.
fn compete(
    mode: &Mode,
    table: &mut Table,
    runtime: &Runtime,
    keys: &Keys<String>,
    (name, targets, threads): (&str, &'static [(&'static str, &'static str)], usize),
) -> f64 {
    let (rule, policy) = (rule(), Policy::new("bench"));
    let config = LeaseConfig::new().duration(HOLD).keys(1_000_000);
    let node: Node = Transactional::new(States::default()).leased(config);
    let local = || -> Local<TokenBucket> { LocalBuilder::new().capacity(20_000).build() };
    let acquired = || acquiring(keys, local(), &rule, &policy);
    let leased = Decider::new(keys, |key: &String| {
        let ask = Ask::new(&policy, &rule, key.ours(), tollgate::Cost::ONE);
        match node.acquire(&[ask]) {
            Check::Ready(answer) => answer.unwrap().is_admitted(),
            Check::Pending(answer) => runtime.block_on(answer).unwrap().is_admitted(),
        }
    });
    let decided = Decider::ours(keys, rule, local());
    let shelf = CasStoreBuilder::new(Shelf::default()).build();
    let config = SyncConfig::new().max_unsynced(1_000_000_000).nodes(2);
    let later: Later = shelf.synced(config.keys(1_000_000));
    let synced = Decider::new(keys, |key: &String| {
        let ask = Ask::new(&policy, &rule, key.ours(), tollgate::Cost::ONE);
        match later.acquire(&[ask]) {
            Check::Ready(answer) => answer.unwrap().is_admitted(),
            Check::Pending(answer) => runtime.block_on(answer).unwrap().is_admitted(),
        }
    });
    let visits = keys.visits.len();
    // So many units are asked for as were offered before: afterwards each key has more than a run
    // spends.
    for _ in 0..mode.pick(1000, 10) {
        for key in &keys.all {
            let ask = Ask::new(&policy, &rule, key.ours(), tollgate::Cost::ONE);
            let _ = runtime.block_on(node.acquire(&[ask]).into_future());
        }
    }
    leased.decide(0..visits);
    synced.decide(0..visits);
    let before = node.stats();
    let each = mode.pick(250_000, 500).min(visits / threads);
    // The first one is compared with all others.
    let contenders = [
        contender("leases", leased, visits, threads, each),
        contender("Local", acquired(), visits, threads, each),
        contender("Local::decide", decided, visits, threads, each),
    ];
    table.race(
        mode,
        mode.rounds(ROUNDS),
        Race {
            name,
            bare: None,
            contenders: contenders.into(),
            targets,
        },
    );
    let name = format!("pushed later, {name}");
    table.race(
        mode,
        mode.rounds(ROUNDS),
        Race {
            name: &name,
            bare: None,
            contenders: vec![
                contender("pushed later", synced, visits, threads, each),
                contender("Local", acquired(), visits, threads, each),
            ],
            targets: &[("Local", "≤ 2")],
        },
    );
    let after = node.stats();
    let asked = (after.asked - before.asked) as f64;
    asked / (asked + (after.admitted - before.admitted) as f64)
}

/// Asks the store in memory as a wrapper is asked.
fn acquiring<'a>(
    keys: &'a Keys<String>,
    store: Local<TokenBucket>,
    rule: &'a TokenBucket,
    policy: &'a Policy,
) -> Decider<'a> {
    Decider::new(keys, move |key: &String| {
        let ask = Ask::new(policy, rule, key.ours(), tollgate::Cost::ONE);
        match store.acquire(&[ask]) {
            Check::Ready(Ok(decisions)) => decisions.is_admitted(),
            Check::Pending(_) => unreachable!("the store in memory never waits"),
        }
    })
}

fn contender<'a>(
    name: &'static str,
    decider: Decider<'a>,
    visits: usize,
    threads: usize,
    each: usize,
) -> Contender<'a> {
    let (allocations, _) = allocations(|| decider.decide(0..each.min(1000)));
    let turn = move |round: usize| {
        let part = Part {
            visits: 0..visits,
            threads,
            each,
        };
        let (cost, passed) = decider.turn(&part, round);
        assert_eq!(passed, threads * each, "{name} passed");
        cost
    };
    Contender {
        name,
        allocations: allocations as f64 / each.min(1000) as f64,
        turn: Box::new(turn),
    }
}
