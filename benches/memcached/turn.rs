//! Many decisions at once, and what they cost; contenders take turns.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use support::{
    Random,
    bench::{Mode, process_cpu, take_turns},
    servers::Memcached,
};
use tokio::{runtime::Runtime, sync::Barrier};
use tollgate::{
    Cost, Policy,
    key::Key,
    store::{CasStats, Store, StoreError, driver::Ask},
};

/// The number of tasks, keys, and decisions in all.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tasks: usize,
    pub(crate) keys: u64,
    pub(crate) decisions: usize,
}

/// Nanoseconds for each decision: of the wall, and of the processors, the server's included.
#[derive(Clone, Copy)]
pub(crate) struct Took {
    wall: f64,
    cpu: f64,
}

/// Takes a turn in that round.
type Turn<'a> = Box<dyn FnMut(usize) -> Took + 'a>;

pub(crate) struct Contender<'a> {
    pub(crate) name: &'static str,
    pub(crate) turn: Turn<'a>,
}

/// Lets all tasks decide about keys at random, each as soon as it has its answer.
pub(crate) fn turn<F>(
    runtime: &Runtime,
    server: &Memcached,
    load: Load,
    round: u64,
    decide: impl Fn(u64) -> F + Clone + Send + 'static,
) -> Took
where
    F: Future<Output = bool> + Send,
{
    let each = load.decisions / load.tasks;
    let together = Arc::new(Barrier::new(load.tasks));
    let cpu = || process_cpu() + server.cpu_time();
    let (before, begin) = (cpu(), Instant::now());
    let tasks: Vec<_> = (0..load.tasks as u64)
        .map(|task| {
            let (decide, together) = (decide.clone(), Arc::clone(&together));
            let mut random = Random::new(round << 32 | task);
            runtime.spawn(async move {
                together.wait().await;
                for _ in 0..each {
                    let key = random.next_u64() % load.keys;
                    assert!(decide(key).await, "key {key} was refused");
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    let wall = begin.elapsed();
    let per = |time: Duration| time.as_nanos() as f64 / load.decisions as f64;
    Took {
        wall: per(wall),
        cpu: per(cpu().saturating_sub(before)),
    }
}

/// Returns `true` if a store admits a call.
pub(crate) async fn admitted<Rule, S>(store: S, rule: Rule, key: u64) -> bool
where
    S: Store<Rule, Error = StoreError>,
{
    static POLICY: std::sync::LazyLock<Policy> = std::sync::LazyLock::new(|| Policy::new("bench"));
    let check = store.acquire(&[Ask::new(&POLICY, &rule, Key::from(key), Cost::ONE)]);
    check.await.unwrap().is_admitted()
}

/// The operations of the server.
pub(crate) fn operations(stats: &CasStats) -> u64 {
    stats.loads + stats.swaps
}

/// Lets the contenders run against each other (A B C, B C A, …), and prints their rates over that
/// of the first one.
pub(crate) fn race(mode: &Mode, name: &str, rounds: usize, mut all: Vec<Contender<'_>>) {
    let count = all.len();
    let took = take_turns(mode, rounds, count, |who, round| (all[who].turn)(round));
    if !mode.full {
        println!("{name}: all decide as they should; nothing was measured");
        return;
    }
    println!(
        "\n{name}: decisions per second over those of `{}`; median of {rounds} rounds (quartiles)\n",
        all[0].name
    );
    println!("| | by the wall | by processor time | 1,000 decisions/s | µs of processors |");
    println!("|---|---|---|---|---|");
    for (contender, theirs) in all.iter().zip(&took) {
        let ratio = |of: fn(&Took) -> f64| {
            let pairs = took[0].iter().zip(theirs);
            quartiles(pairs.map(|(first, this)| of(first) / of(this)))
        };
        let [low, wall, high] = ratio(|took| took.wall);
        let [_, cpu, _] = ratio(|took| took.cpu);
        let median = |of: fn(&Took) -> f64| quartiles(theirs.iter().map(of))[1];
        println!(
            "| {} | **{wall:.2}** ({low:.2}–{high:.2}) | {cpu:.2} | {:.1} | {:.2} |",
            contender.name,
            1e6 / median(|took| took.wall),
            median(|took| took.cpu) / 1e3,
        );
    }
}

/// Least quartile, median, greatest quartile.
fn quartiles(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}
