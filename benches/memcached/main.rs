//! The stores in memcached, on a real server on the loopback, beside bare increments through the
//! same connection.
//!
//! 64 tasks, each of which calls again as soon as it has its answer. The server runs on the same
//! cores, so its processor time is counted too.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark reads clocks, prints ratios, and stops where something is odd"
)]

mod contenders;
mod turn;

use std::time::Duration;

use support::{bench::Mode, servers};
use tokio::runtime::Runtime;
use tollgate::{
    FixedWindow, SlidingWindow, TokenBucket,
    store::{
        Memcached, MemcachedConnection, MemcachedCounters,
        driver::{CasStore, CasStoreBuilder, CounterStore, Increment},
    },
};
use turn::{Contender, Load, admitted, operations, race};

const ROUNDS: usize = 21;
const TASKS: usize = 64;
/// As long as every key's counter is kept.
const KEEP: Duration = Duration::from_secs(86_400);

/// Limits that nobody reaches.
const MANY: u64 = 1_000_000_000;

struct Bench {
    runtime: Runtime,
    server: servers::Memcached,
    connection: MemcachedConnection,
}

impl Bench {
    fn start() -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let server = servers::Memcached::start();
        let connection = runtime.block_on(connect(&server));
        Self {
            runtime,
            server,
            connection,
        }
    }

    /// `incr`, and nothing else: its keys are there already, and named beforehand.
    fn floor(&self, load: Load) -> Contender<'_> {
        let names = (0..load.keys).map(|key| format!("floor:2:{{{key:032x}}}:bench:0123456789"));
        let names: std::sync::Arc<[String]> = names.collect();
        self.contender("floor", load, move |connection, key| {
            let names = std::sync::Arc::clone(&names);
            async move {
                let name = names[key as usize].as_bytes();
                connection.add(name, 1, KEEP, &[]).await.unwrap().total > 0
            }
        })
    }

    fn contender<'a, F>(
        &'a self,
        name: &'static str,
        load: Load,
        decide: impl Fn(MemcachedConnection, u64) -> F + Clone + Send + 'static,
    ) -> Contender<'a>
    where
        F: Future<Output = bool> + Send,
    {
        let connection = self.connection.clone();
        let decide = move |key| decide(connection.clone(), key);
        Contender {
            name,
            turn: Box::new(move |round| {
                turn::turn(
                    &self.runtime,
                    &self.server,
                    load,
                    round as u64,
                    decide.clone(),
                )
            }),
        }
    }

    fn fixed(&self, load: Load) -> Contender<'_> {
        let store: MemcachedCounters<FixedWindow> = CounterStore::new(self.connection.clone());
        let rule = FixedWindow::per_day(MANY);
        self.contender("counters, fixed window", load, move |_, key| {
            admitted(store.clone(), rule, key)
        })
    }

    fn sliding(&self, load: Load) -> Contender<'_> {
        let store: MemcachedCounters<SlidingWindow> = CounterStore::new(self.connection.clone());
        let rule = SlidingWindow::per_day(MANY);
        self.contender("counters, sliding window", load, move |_, key| {
            admitted(store.clone(), rule, key)
        })
    }

    fn swaps(
        &self,
        name: &'static str,
        load: Load,
        store: Memcached<TokenBucket>,
    ) -> Contender<'_> {
        let rule = TokenBucket::per_day(MANY);
        self.contender(name, load, move |_, key| admitted(store.clone(), rule, key))
    }
}

async fn connect(server: &servers::Memcached) -> MemcachedConnection {
    let builder = MemcachedConnection::builder(format!("memcached://{}", server.address()));
    let builder = builder.response_timeout(Duration::from_secs(60));
    builder.connect().await.unwrap()
}

fn patient<R>(connection: &MemcachedConnection) -> CasStoreBuilder<MemcachedConnection, R> {
    CasStoreBuilder::new(connection.clone())
        .attempts(u32::MAX)
        .deadline(Duration::from_secs(600))
}

fn main() {
    let mode = Mode::from_args();
    let bench = Bench::start();

    let load = Load {
        tasks: TASKS,
        keys: 10_000,
        decisions: mode.pick(64_000, 640),
    };
    if mode.runs("10,000 keys") {
        let swaps = CasStore::new(bench.connection.clone());
        let contenders = vec![
            bench.floor(load),
            bench.fixed(load),
            bench.sliding(load),
            bench.swaps("compare-and-swap", load, swaps),
        ];
        race(&mode, "10,000 keys, 64 tasks", ROUNDS, contenders);
    }

    // So few that the slowest is done in some seconds.
    let load = Load {
        keys: 1,
        decisions: mode.pick(6_400, 128),
        ..load
    };
    if mode.runs("one hot key") {
        let combined = CasStore::new(bench.connection.clone());
        let bare = patient(&bench.connection)
            .combining(false)
            .backoff(None)
            .build();
        let contenders = vec![
            bench.swaps("neither combined nor backing off", load, bare.clone()),
            bench.swaps("compare-and-swap", load, combined.clone()),
            bench.fixed(load),
            bench.floor(load),
        ];
        race(&mode, "one hot key, 64 tasks", mode.pick(7, 1), contenders);
        let rounds = mode.pick(8, 1) * load.decisions;
        for (name, stats) in [("combined", combined.stats()), ("neither", bare.stats())] {
            let each = operations(&stats) as f64 / rounds as f64;
            println!("one hot key, {name}: {each:.2} operations of the server per decision");
        }
    }

    if mode.runs("contenders") {
        contenders::table(&mode, &bench.runtime, &bench.server);
    }
}
