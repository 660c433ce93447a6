//! Runs equal timelines on the store in memory and on the scripts in Redis: all numbers of the
//! decisions are equal.

mod blocks;
mod long_logs;
mod memory;
mod mixed;
mod rules;
mod settlements;
mod states;

use std::{fmt::Debug, time::Duration};

use support::{Random, cases, servers};
use tollgate::{
    AnyRule, Cost, Decision, Policy, Timestamp,
    algorithm::Scripted,
    key::Key,
    store::{Redis, driver::Ask},
};

use super::logs;

use self::{
    memory::{InMicros, Memory, Question, in_micros},
    rules::{GRANTED, KINDS, RULES, UNEVEN, UNEVEN_SECONDS},
};

/// The time between calls, and what is asked and compared.
#[derive(Clone, Copy)]
struct Pace {
    /// In microseconds.
    unit: u64,
    compares: bool,
    /// Some asks are for more units than they cost.
    grants: bool,
}

/// The time between calls, in tenths of a second.
const TENTHS: u64 = 100_000;

/// The results of timelines.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    asks: u64,
    admitted: u64,
    refused: u64,
    /// The asks that spent more than their cost.
    granted: u64,
    /// The number of asks of each algorithm, by its index in `KINDS`.
    of_kind: [u64; KINDS.len()],
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.asks += other.asks;
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.granted += other.granted;
        for (own, other) in self.of_kind.iter_mut().zip(other.of_kind) {
            *own += other;
        }
    }

    /// Counts this many more asks, of all `kinds` of algorithms.
    fn count(&mut self, kinds: &[usize], asks: u64) {
        self.asks += asks;
        for kind in kinds {
            self.of_kind[*kind] += asks;
        }
    }
}

/// Makes a client's calls at random times. If the pace says so, compares each decision with memory.
///
/// Decisions equal those of a memory store that counts in the units of scripts, and differ from
/// ordinary memory by at most a microsecond.
async fn run(
    store: Redis<AnyRule>,
    name: String,
    rules: Vec<AnyRule>,
    seed: u64,
    calls: u64,
    pace: Pace,
) -> Tally {
    let mut random = Random::new(seed);
    let policy = Policy::new(&name);
    let keys: Vec<Key> = (0..3)
        .map(|n| Key::join([Key::from(seed), Key::from(n)]))
        .collect();
    let places = keys.len() * rules.len();
    let mut memory = Memory(vec![None; places]);
    let mut finer = rules
        .iter()
        .any(|rule| rule.in_script().is_some())
        .then(|| Memory(vec![None; places]));
    let mut now = 1_767_235_685_123_456_u64;
    // Rules with equal lists of algorithms are of one kind and read each other's states.
    let algorithms = rules.iter().map(algorithms).collect::<Vec<_>>();
    let kind = |rule: usize| {
        algorithms
            .iter()
            .position(|first| *first == algorithms[rule])
    };
    let rules: Vec<_> = rules
        .iter()
        .enumerate()
        .map(|(n, rule)| (rule, kinds(rule), kind(n).unwrap()))
        .collect();
    let (mut rule, mut of_rule, mut of_kind) = (rules[0].0, &rules[0].1, 0);
    let mut tally = Tally::default();
    let Pace {
        unit,
        compares,
        grants,
    } = pace;
    for call in 0..calls {
        match random.below(16) {
            0 => now -= random.below(5 * unit),
            1 => now += random.below(40 * unit),
            2 => now += 10 * unit - now % (10 * unit),
            3 => {
                let (next, kinds, kind) = random.choose(&rules);
                (rule, of_rule, of_kind) = (*next, kinds, *kind);
            }
            4 => now += random.below(20) * random.below(10 * unit),
            5..12 => now += random.below(3 * unit),
            _ => {}
        }
        let at = Timestamp::from_nanos(now * 1000);
        let count = *random.choose(&[1, 1, 2, 3]);
        let first = random.below(3) as usize;
        let twice = random.below(8) == 0;
        // One call for each ask, in one request, instead of one call for all.
        let apart = random.below(4) == 0;
        let costs: Vec<Cost> = (0..count)
            .map(|_| Cost::new(*random.choose(&[1, 1, 1, 2, 3, 5, 50])).unwrap())
            .collect();
        let up_to: Vec<u64> = (0..count)
            .map(|_| if grants { any_grant(&mut random) } else { 0 })
            .collect();
        let key = |n: usize| if twice { first } else { (first + n) % 3 };
        let asks: Vec<_> = costs
            .iter()
            .enumerate()
            .map(|(n, cost)| Ask::new(&policy, rule, keys[key(n)], *cost).up_to(up_to[n]))
            .collect();
        let mut questions: Vec<_> = asks
            .iter()
            .enumerate()
            .map(|(n, ask)| {
                (
                    of_kind * keys.len() + key(n),
                    ask.rule_for_key().unwrap_or_else(|| rule.clone()),
                    ask.cost(),
                    up_to[n],
                )
            })
            .collect();
        let before = memory.0.clone();
        let context = |problem: &dyn Debug| {
            let name = policy.name();
            format!(
                "{name}, seed {seed}, call {call} at {now} µs: {problem:?}\nasked {asks:?}\nof {before:?}"
            )
        };
        let answered = if apart {
            store.acquire_each_at(at, &asks).await
        } else {
            store.acquire_at(at, &asks).await.map(|all| vec![all])
        };
        let calls = answered.unwrap_or_else(|error| panic!("{}", context(&error)));
        let decisions: Vec<_> = calls.iter().flat_map(|call| call.as_slice()).collect();
        let decide = |memory: &mut Memory, questions: &[Question]| -> Vec<InMicros> {
            let calls = questions.chunks(if apart { 1 } else { questions.len() });
            let decisions = calls.flat_map(|questions| memory.decide(questions, at));
            decisions.map(|decision| in_micros(&decision)).collect()
        };
        tally.count(of_rule, count as u64);
        tally.admitted += calls
            .iter()
            .filter(|call| call.is_admitted())
            .map(|call| call.as_slice().len() as u64)
            .sum::<u64>();
        tally.refused += decisions
            .iter()
            .filter(|decision| !decision.is_admitted())
            .count() as u64;
        tally.granted += decisions
            .iter()
            .zip(&costs)
            .filter(|(decision, cost)| {
                let charge = Decision::clone(decision).take_charge();
                charge.is_some_and(|charge| charge.cost > cost.get())
            })
            .count() as u64;
        if compares {
            let found: Vec<_> = decisions
                .iter()
                .map(|decision| in_micros(decision))
                .collect();
            if let Some(finer) = &mut finer {
                let near = decide(finer, &questions);
                let is_near = near
                    .iter()
                    .zip(&found)
                    .all(|(near, found)| near.is_near(found));
                assert!(is_near, "{}", context(&(found, near)));
                for (_, rule, ..) in &mut questions {
                    *rule = rule.in_script().unwrap_or_else(|| rule.clone());
                }
            }
            let expected = decide(&mut memory, &questions);
            assert!(found == expected, "{}", context(&(found, expected)));
        }
    }
    tally
}

/// Returns up to how many units an ask is for: none, few, many, or more than a script counts.
fn any_grant(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => random.below(1000),
        _ => random.below(20),
    }
}

/// Returns the algorithms of a rule in order.
pub(crate) fn algorithms(rule: &AnyRule) -> Vec<String> {
    let text = rule.to_string();
    let names = text.split(" & ").filter_map(|rule| rule.split(' ').next());
    names.map(str::to_owned).collect()
}

/// Returns the algorithms of a rule, each once.
fn kinds(rule: &AnyRule) -> Vec<usize> {
    let names = algorithms(rule);
    let has = |kind: &usize| names.iter().any(|name| name == KINDS[*kind]);
    (0..KINDS.len()).filter(has).collect()
}

/// Runs all timelines concurrently, so that their calls are batched.
async fn run_all(
    url: &str,
    sets: &[(&str, &[&str])],
    seeds: impl Fn(&str) -> u64,
    calls: u64,
    pace: Pace,
) -> Tally {
    // Allows for a machine under other load.
    let builder = Redis::<AnyRule>::builder(url).response_timeout(Duration::from_secs(60));
    let store: Redis<AnyRule> = builder.connect().await.unwrap();
    let mut tasks = Vec::new();
    for (name, rules) in sets {
        let rules: Vec<AnyRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let runs = (0..seeds(name)).map(|seed| {
            tokio::spawn(run(
                store.clone(),
                (*name).to_owned(),
                rules.clone(),
                seed,
                calls,
                pace,
            ))
        });
        tasks.push((name, runs.collect::<Vec<_>>()));
    }
    let mut sum = Tally::default();
    for (name, runs) in tasks {
        let mut all = Tally::default();
        for one in runs {
            all.add(&one.await.unwrap());
        }
        // Rules with room for grants refuse less.
        let often = all.asks / if pace.grants { 50 } else { 8 };
        assert!(
            all.admitted > often && all.refused > often,
            "{name}: {all:?}"
        );
        sum.add(&all);
    }
    sum
}

const COMPARED: Pace = Pace {
    unit: TENTHS,
    compares: true,
    grants: false,
};

/// The minimum number of compared asks of each algorithm.
const ASKS: u64 = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_equal_those_of_memory() {
    let redis = servers::Redis::start();
    // More seeds for algorithms that are in few sets.
    let seeds = |name: &str| match name {
        "three colors" | "calls in flight" => 24,
        "leaky bucket" | "sliding window" | "sliding log" => 14,
        _ => 8,
    };
    let all = run_all(&redis.url(), &RULES, seeds, cases(3000), COMPARED).await;
    for (kind, asks) in KINDS.iter().zip(all.of_kind) {
        assert!(asks >= cases(ASKS), "{kind}: {asks}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_equal_those_of_memory_in_valkey() {
    if let Some(valkey) = servers::Redis::start_valkey() {
        run_all(&valkey.url(), &RULES, |_| 2, cases(1000), COMPARED).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_equal_those_of_memory() {
    let redis = servers::Redis::start();
    let pace = Pace {
        grants: true,
        ..COMPARED
    };
    for (sets, seeds) in [(&GRANTED[..], 6), (&RULES, 1)] {
        let all = run_all(&redis.url(), sets, |_| seeds, cases(1500), pace).await;
        assert!(all.granted > cases(500), "{all:?}");
    }
    let uneven = Pace {
        unit: 1,
        compares: false,
        grants: true,
    };
    run_all(&redis.url(), &UNEVEN, |_| 4, cases(1500), uneven).await;
}

/// The store returns an error if the program's number of admissions differs from this process's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_agrees_with_this_process_on_uneven_rules() {
    let redis = servers::Redis::start();
    for (unit, sets) in [(1, &UNEVEN[..]), (TENTHS, &UNEVEN_SECONDS)] {
        let pace = Pace {
            unit,
            compares: false,
            grants: false,
        };
        run_all(&redis.url(), sets, |_| 8, cases(2000), pace).await;
    }
}
