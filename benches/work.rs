//! Measures how the cost of a decision grows with the state of its key: the time of the scripts in
//! Redis, of the store in memory, and of whole calls to memcached. Columns are microseconds,
//! medians of rounds, and in brackets the ratio to a refusal of a token bucket, measured each time
//! just before, because the speed of machines varies. Rounds take turns over the rules.
//!
//! `cargo bench --all-features --bench work -- redis` measures one store alone.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark reads clocks, prints times, and stops where something is odd"
)]

use std::{fmt::Debug, time::Instant};

use futures_util::future::join_all;
use support::{Random, bench::Mode, servers};
use tollgate::{
    AnyRule, Cost, Decision, Policy, SlidingWindow,
    key::Key,
    store::{
        Local, MemcachedConnection, Redis, Store,
        driver::{Ask, CasStore, CounterStore, Decisions, Settlement},
    },
};

/// The rules of each size of their states, and how often a key calls before it is measured.
fn rules(size: u64) -> [(String, u64); 11] {
    let window = size.min(SlidingWindow::MAX_SLICES);
    [
        ("token-bucket 10/1d".to_owned(), 10),
        ("fixed-window 10/365d".to_owned(), 10),
        ("sliding-window 10/365d".to_owned(), 10),
        ("cascade 5/1d > 5/1d".to_owned(), 10),
        ("three-color 5/1d peak=10/1d".to_owned(), 10),
        ("warm-up 15/s over=10s".to_owned(), 20),
        ("warm-up-spaced 1/1h over=5h max-wait=100h".to_owned(), 20),
        ("token-bucket 10/1d & fixed-window 10/365d".to_owned(), 10),
        (format!("sliding-window 10/365d slices={window}"), 10),
        (format!("leaky-bucket 1/1h queue={size}"), size + 1),
        (format!("sliding-log {size}/1d"), size),
    ]
}

const SIZES: [u64; 5] = [10, 100, 1_000, 5_000, 100_000];

/// Calls that change the state, which are measured together.
const CHARGES: usize = 40;
/// The calls of a batch.
const BATCH: usize = 40;

/// A key under a rule in a store.
struct Subject<'a, S> {
    store: &'a S,
    rule: AnyRule,
    policy: Policy,
    key: Key,
    /// Calls that change nothing, which are measured together.
    calls: usize,
    /// The microseconds that the store has worked until now.
    worked: &'a dyn Fn() -> f64,
}

impl<S> Subject<'_, S>
where
    S: Store<AnyRule, Error: Debug>,
{
    fn ask(&self) -> [Ask<'_, AnyRule>; 1] {
        [Ask::new(&self.policy, &self.rule, self.key, Cost::ONE)]
    }

    async fn acquire(&self) -> Decision {
        only(&self.store.acquire(&self.ask()).await.unwrap())
    }

    async fn settle(&self, mut decision: Decision) {
        let charge = decision.take_charge().unwrap();
        let settlement = Settlement::new(&self.policy, &self.rule, self.key, charge, 0);
        self.store.settle(vec![settlement.unwrap()]).await.unwrap();
    }

    /// Returns the microseconds of one of `count` repetitions.
    async fn each(&self, count: usize, mut act: impl AsyncFnMut()) -> f64 {
        let before = (self.worked)();
        for _ in 0..count {
            act().await;
        }
        ((self.worked)() - before) / count as f64
    }

    /// Returns the admitted ones of a number of calls, which fill the state.
    async fn fill(&self, calls: u64) -> Vec<Decision> {
        let mut charged = Vec::new();
        for _ in 0..calls {
            let decision = self.acquire().await;
            if decision.is_admitted() {
                charged.push(decision);
            }
        }
        charged
    }

    /// Returns the microseconds of a refused call.
    async fn refusal(&self) -> f64 {
        let act = async || {
            self.acquire().await;
        };
        self.each(self.calls, act).await
    }

    /// Returns the microseconds of an admitted call, a refused one, each further refusal of a
    /// batch, a look, and a settlement, on a state that these calls have filled.
    async fn measure(&self, mut charged: Vec<Decision>) -> [f64; 5] {
        let mut random = Random::new(charged.len() as u64);
        // Places of a queue that do not touch. It takes no call in their place.
        let mut hanging_up = f64::NAN;
        if self.policy.name().starts_with("leaky") {
            let mut gone = charged.iter().skip(1).step_by(2).take(CHARGES);
            hanging_up = self
                .each(gone.len(), async || {
                    self.settle(*gone.next().unwrap()).await;
                })
                .await;
            charged.clear();
            while self.acquire().await.is_admitted() {}
        }
        let refused = self.refusal().await;
        let batch = async |size: usize| {
            let act = async || {
                join_all((0..size).map(|_| self.acquire())).await;
            };
            self.each(self.calls.div_ceil(10), act).await
        };
        // One call goes out alone, and the others behind it together.
        let further = (batch(1 + BATCH).await - batch(2).await) / (BATCH - 1) as f64;
        let look = self
            .each(self.calls, async || {
                self.store.look(&self.ask()).await.unwrap();
            })
            .await;
        let settled = charged.len().min(CHARGES);
        let settlement = self
            .each(settled, async || {
                let place = random.below(charged.len() as u64) as usize;
                self.settle(charged.swap_remove(place)).await;
            })
            .await;
        let admitted = self
            .each(settled, async || {
                self.acquire().await;
            })
            .await;
        [
            admitted,
            refused,
            further,
            look,
            if settled > 0 { settlement } else { hanging_up },
        ]
    }
}

fn only(decisions: &Decisions) -> Decision {
    decisions.as_slice()[0]
}

/// Prints a table for a store.
async fn table<S>(mode: &Mode, name: &str, store: &S, worked: impl Fn() -> f64)
where
    S: Store<AnyRule, Error: Debug>,
{
    if !mode.runs(name) {
        return;
    }
    println!("\n{name}\n");
    println!("| rule | admitted | refused | each further refusal of a batch | look | settlement |");
    println!("|---|---:|---:|---:|---:|---:|");
    let mut rows: Vec<(String, u64, AnyRule)> = Vec::new();
    for size in &SIZES[..mode.pick(SIZES.len(), 1)] {
        for (text, calls) in rules(*size) {
            let rule: AnyRule = text.parse().unwrap();
            if let Err(error) = store.fits(&rule) {
                println!("| `{text}` | {error} | | | | |");
            } else if rows.iter().all(|(other, ..)| *other != text) {
                rows.push((text, calls, rule));
            }
        }
    }
    let subject = |text: &str, rule: &AnyRule, key: String| Subject {
        store,
        rule: rule.clone(),
        policy: Policy::new(text),
        key: Key::from(key.as_str()),
        calls: mode.pick(400, 1),
        worked: &worked,
    };
    let (bucket, spends, bucket_rule) = rows[0].clone();
    let mut measured: Vec<[Vec<(f64, f64)>; 5]> = vec![Default::default(); rows.len()];
    for round in 0..mode.pick(5, 1) {
        for ((text, calls, rule), measured) in rows.iter().zip(&mut measured) {
            let row = subject(text, rule, format!("{round}"));
            let charged = row.fill(*calls).await;
            let beside = subject(&bucket, &bucket_rule, format!("{round} beside {text}"));
            beside.fill(spends).await;
            let unit = beside.refusal().await;
            for (column, time) in measured.iter_mut().zip(row.measure(charged).await) {
                column.push((time, time / unit));
            }
        }
    }
    for ((text, ..), columns) in rows.iter().zip(measured) {
        let cells = columns.map(|column| {
            let (times, ratios) = column.into_iter().unzip();
            match median(times) {
                time if time.is_finite() => format!("{time:.2} ({:.2})", median(ratios)),
                _ => "–".to_owned(),
            }
        });
        println!("| `{text}` | {} |", cells.join(" | "));
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() {
    let mode = Mode::from_args();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let begin = Instant::now();
    let here = || begin.elapsed().as_secs_f64() * 1e6;
    runtime.block_on(async {
        table(&mode, "memory", &Local::new(), here).await;

        let server = servers::Redis::start();
        let store = Redis::<AnyRule>::connect(server.url()).await.unwrap();
        let scripts = || {
            let text = server.command(&["INFO", "commandstats"]);
            let lines = text.lines().filter(|line| line.starts_with("cmdstat_eval"));
            let times = lines.map(|line| {
                let usec = line.split("usec=").nth(1).unwrap();
                usec.split(',').next().unwrap().parse::<f64>().unwrap()
            });
            times.sum()
        };
        table(&mode, "redis", &store, scripts).await;

        let server = servers::Memcached::start();
        let connection = MemcachedConnection::connect(format!("memcached://{}", server.address()));
        let connection = connection.await.unwrap();
        let swaps = CasStore::new(connection.clone());
        table(&mode, "memcached, compare and swap", &swaps, here).await;
        let counters = CounterStore::new(connection);
        table(&mode, "memcached, counters", &counters, here).await;
    });
}
