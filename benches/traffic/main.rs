//! Traffic that servers have: most clients stay below their limits, so their states have expired,
//! or nearly, when they return.
//!
//! Clocks are real. Contenders take turns, so the keys of one rest while the others decide; with
//! few keys, a contender also waits for its next turn until a client that asks once a turn asks at
//! half its limit. Keys to visit are drawn before the measurement, and lie in memory in the order
//! of their visits.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark prints ratios, and stops where something is odd"
)]

#[path = "../common/mod.rs"]
mod common;
mod limiters;
mod newcomers;
mod report;
mod returning;
mod rules;

use common::keys::{BenchKey, Keys, addresses, texts, zipf};
use limiters::{count_text, threads_text};
use report::Report;
use returning::Setting;
use rules::{FULL_AT_ONCE, OTHERS, Rule, TEN};
use support::{Random, bench::Mode};

const ROUNDS: usize = 13;

/// The most decisions in a turn, of all threads.
const DECISIONS: usize = 250_000;

/// The number of visits that are drawn: those of a few turns.
const VISITS: usize = 1_000_000;

/// The races with some keys. With `--all`, every rule runs, by one and two threads.
#[derive(Clone, Copy, PartialEq)]
enum Extent {
    /// Every rule, by one and two threads.
    All,
    /// Every rule, by one thread.
    OneThread,
    /// The first rule.
    FirstRule,
}

struct Bench {
    mode: Mode,
    rounds: usize,
    returning: Report,
    newcomers: Report,
}

impl Bench {
    fn new() -> Self {
        let mode = Mode::from_args();
        Self {
            rounds: mode.rounds(ROUNDS),
            mode,
            returning: returning::report(),
            newcomers: newcomers::report(),
        }
    }

    /// Races the rules with so many keys, whose visits are drawn.
    fn drawn<K: BenchKey>(
        &mut self,
        what: &str,
        count: usize,
        extent: Extent,
        make: impl Fn(usize) -> Vec<K>,
        draw: impl Fn(usize, usize) -> Vec<u32>,
    ) {
        let name = format!("{} {what}", count_text(count));
        let count = self.mode.pick(count, 1_000);
        let visits = self.mode.pick(VISITS.max(count), 2 * count);
        // Made for the first race that runs.
        let mut keys = None;
        for (n, rule) in [TEN].iter().chain(&OTHERS).enumerate() {
            for threads in [1, 2] {
                let runs = match extent {
                    Extent::All => true,
                    Extent::OneThread => n == 0 || threads == 1,
                    Extent::FirstRule => n == 0,
                };
                let setting = Setting {
                    rule,
                    keys: &name,
                    threads,
                    // Each client asks about once a turn, or less.
                    decisions: count.min(DECISIONS),
                    pauses: true,
                };
                if !(runs || self.mode.all) || !self.mode.runs(&setting.name()) {
                    continue;
                }
                let keys = keys.get_or_insert_with(|| Keys::new(make(count), &draw(count, visits)));
                self.race(&setting, keys);
            }
        }
    }

    fn race<K: BenchKey>(&mut self, setting: &Setting<'_>, keys: &Keys<K>) {
        returning::race(&self.mode, self.rounds, &mut self.returning, setting, keys);
    }

    fn hot_key(&mut self, rule: &Rule) {
        let mode = &self.mode;
        let decisions = mode.pick(DECISIONS, 500);
        let keys = Keys::new(addresses(1), &vec![0; 2 * decisions]);
        for threads in [1, 2] {
            let setting = Setting {
                rule,
                keys: "one hot key",
                threads,
                decisions,
                pauses: false,
            };
            if self.mode.runs(&setting.name()) {
                self.race(&setting, &keys);
            }
        }
    }

    fn newcomers(&mut self, known: usize) {
        let (mode, rounds) = (&self.mode, self.rounds);
        for threads in [1, 2] {
            let name = format!(
                "newcomers beside {} known addresses, {}",
                count_text(known),
                threads_text(threads)
            );
            if mode.runs(&name) {
                let count = mode.pick(known, 1_000);
                let all = addresses(count + newcomers::newcomers(mode, rounds, threads));
                newcomers::race(mode, rounds, &mut self.newcomers, (&name, threads), all);
            }
        }
    }

    fn print(&self) {
        if !self.mode.full {
            println!("smoke test: all contenders decide as they should; nothing was measured");
            return;
        }
        self.returning.print(self.rounds);
        self.newcomers.print(self.rounds);
    }
}

/// Draws visits of so many keys, each with the same probability.
fn uniform(keys: usize, visits: usize) -> Vec<u32> {
    let mut random = Random::new(1);
    (0..visits)
        .map(|_| random.below(keys as u64) as u32)
        .collect()
}

fn main() {
    let mut bench = Bench::new();
    for (count, extent) in [
        (1_000, Extent::FirstRule),
        (10_000, Extent::OneThread),
        (200_000, Extent::FirstRule),
        (1_000_000, Extent::All),
    ] {
        bench.drawn("addresses, uniform", count, extent, addresses, uniform);
        bench.drawn(
            "addresses, Zipf 0.99",
            count,
            Extent::FirstRule,
            addresses,
            zipf,
        );
    }
    bench.drawn(
        "strings, uniform",
        1_000_000,
        Extent::FirstRule,
        texts,
        uniform,
    );
    for rule in [TEN, FULL_AT_ONCE] {
        bench.hot_key(&rule);
    }
    for known in [10_000, 200_000] {
        bench.newcomers(known);
    }
    bench.print();
}
