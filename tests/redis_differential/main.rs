//! The same timelines through memory and through the program in Lua: all that decisions tell is equal.
#![cfg(all(target_os = "linux", feature = "redis", feature = "test-util"))]
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod memory;
mod rules;
#[path = "../servers/mod.rs"]
mod servers;
mod settlements;

use std::fmt::Debug;

use tollgate::{
    AnyRule, Cost, Policy, Timestamp,
    key::Key,
    store::{Ask, Redis},
};

use self::{
    memory::{Memory, told},
    rules::{RULES, UNEVEN},
};

/// As splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn of<'a, T>(&mut self, choice: &'a [T]) -> &'a T {
        &choice[self.below(choice.len() as u64) as usize]
    }
}

/// Whether calls come within seconds and are compared with memory, or within microseconds.
#[derive(Clone, Copy, PartialEq)]
enum Pace {
    Seconds,
    Micros,
}

/// What a timeline came to.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    asks: u64,
    admitted: u64,
    refused: u64,
}

/// A client's calls at random times; at the pace of seconds, each decision is compared with that of memory.
async fn run(
    store: Redis<AnyRule>,
    name: String,
    rules: Vec<AnyRule>,
    seed: u64,
    calls: u64,
    pace: Pace,
) -> Tally {
    let mut random = Random(seed);
    let policy = Policy::new(&name);
    let keys: Vec<Key> = (0..3)
        .map(|n| Key::join([Key::from(seed), Key::from(n)]))
        .collect();
    let mut memory = Memory(vec![None; keys.len()]);
    let mut now = 1_767_235_685_123_456_u64;
    let mut rule = &rules[0];
    let mut tally = Tally::default();
    let unit = match pace {
        Pace::Seconds => 100_000,
        Pace::Micros => 1,
    };
    for call in 0..calls {
        match random.below(16) {
            0 => now -= random.below(5 * unit),
            1 => now += random.below(40 * unit),
            2 => now += 10 * unit - now % (10 * unit),
            3 => rule = random.of(&rules),
            4 => now += random.below(20) * random.below(10 * unit),
            5..12 => now += random.below(3 * unit),
            _ => {}
        }
        let at = Timestamp::from_nanos(now * 1000);
        let count = *random.of(&[1, 1, 2, 3]);
        let first = random.below(3) as usize;
        let twice = random.below(8) == 0;
        let costs: Vec<Cost> = (0..count)
            .map(|_| Cost::new(*random.of(&[1, 1, 1, 2, 3, 5, 50])).unwrap())
            .collect();
        let key = |n: usize| if twice { first } else { (first + n) % 3 };
        let asks: Vec<_> = costs
            .iter()
            .enumerate()
            .map(|(n, cost)| Ask::new(&policy, rule, keys[key(n)], *cost))
            .collect();
        let questions: Vec<_> = asks
            .iter()
            .enumerate()
            .map(|(n, ask)| {
                (
                    key(n),
                    ask.rule_for_key().unwrap_or_else(|| rule.clone()),
                    ask.cost(),
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
        let decisions = match store.acquire_at(at, &asks).await {
            Ok(decisions) => decisions,
            Err(error) => panic!("{}", context(&error)),
        };
        tally.asks += count as u64;
        tally.admitted += if decisions.is_admitted() {
            count as u64
        } else {
            0
        };
        tally.refused += decisions
            .as_slice()
            .iter()
            .filter(|decision| !decision.is_admitted())
            .count() as u64;
        if pace == Pace::Seconds {
            let found: Vec<_> = decisions.as_slice().iter().map(told).collect();
            let expected: Vec<_> = memory.decide(&questions, at).iter().map(told).collect();
            assert!(found == expected, "{}", context(&(found, expected)));
        }
    }
    tally
}

/// All timelines at once, so that nobody waits for a single answer.
async fn run_all(url: &str, sets: &[(&str, &[&str])], seeds: u64, calls: u64, pace: Pace) {
    let store: Redis<AnyRule> = Redis::connect(url).await.unwrap();
    let mut tasks = Vec::new();
    for (name, rules) in sets {
        let rules: Vec<AnyRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let runs = (0..seeds).map(|seed| {
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
    for (name, runs) in tasks {
        let mut all = Tally::default();
        for one in runs {
            let one = one.await.unwrap();
            all.asks += one.asks;
            all.admitted += one.admitted;
            all.refused += one.refused;
        }
        let often = all.asks / 8;
        assert!(
            all.admitted > often && all.refused > often,
            "{name}: {all:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_are_those_of_memory() {
    let redis = servers::Redis::start();
    run_all(&redis.url(), &RULES, 12, 3000, Pace::Seconds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_are_those_of_memory_in_valkey() {
    if let Some(valkey) = servers::Redis::start_valkey() {
        run_all(&valkey.url(), &RULES, 2, 1000, Pace::Seconds).await;
    }
}

/// The store gives an error where the program admits other calls than this process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_agrees_with_this_process_on_uneven_rules() {
    let redis = servers::Redis::start();
    run_all(&redis.url(), &UNEVEN, 8, 2000, Pace::Micros).await;
}
