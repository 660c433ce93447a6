//! The cost of a decision of each algorithm in the store in memory, beside a token bucket.
//!
//! There are two token buckets: one whose state is packed into a slot without a lock, as those of
//! queues, windows, cascades of two and markers are, and one whose state is in the map, as those of
//! the other algorithms are.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark prints ratios, and stops where something is odd"
)]

use std::{hint::black_box, str::FromStr};

use support::{
    Random,
    bench::{Contender, Mode, Race, Reads, Table, together},
    counting::{Counting, allocations},
};
use tollgate::{
    AnyRule, Cascade, Cost, Error, FixedWindow, LeakyBucket, Policy, SlidingLog, SlidingWindow,
    ThreeColor, TokenBucket, WarmUp, WarmUpSpaced,
    algorithm::Algorithm,
    key::Key,
    store::{Local, LocalBuilder, driver::Ask},
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 21;

/// The keys, and the order in which they are visited.
struct Course {
    keys: Vec<Key>,
    visits: Vec<u32>,
    each: usize,
}

impl Course {
    fn new(count: usize, mode: &Mode) -> Self {
        let each = mode.pick(200_000, 500);
        let mut random = Random::new(7);
        let visits = (0..2 * each).map(|_| (random.next_u64() % count as u64) as u32);
        Self {
            keys: (0..count as u64).map(Key::from).collect(),
            visits: visits.collect(),
            each,
        }
    }

    /// A store under a rule; all that it is asked passes, if `passes` says so.
    fn contender<A>(&self, name: &'static str, rule: &str, passes: bool) -> Contender<'_>
    where
        A: Algorithm + FromStr<Err = Error> + Sync + 'static,
    {
        let rule: A = rule.parse().unwrap();
        let store: Local<A> = LocalBuilder::new()
            .capacity(self.keys.len().max(1000))
            .build();
        let policy = Policy::new("bench");
        let decide = move |visits: &[u32]| {
            let passed = visits.iter().filter(|visit| {
                let key = self.keys[**visit as usize];
                let ask = Ask::new(&policy, &rule, black_box(key), Cost::ONE);
                black_box(store.decide(&ask).is_admitted())
            });
            passed.count()
        };
        // Every key is known before anything is measured.
        let all: Vec<u32> = (0..self.keys.len() as u32).collect();
        decide(&all);
        decide(&self.visits);
        let (count, _) = allocations(|| decide(&self.visits[..self.each.min(1000)]));
        let turn = move |round: usize| {
            let begin = round * 97 % self.each;
            let visits = &self.visits[begin..begin + self.each];
            together(1, self.each, |_| {
                let passed = decide(visits);
                assert!(!passes || passed == self.each, "{name}: {passed} passed");
            })
        };
        Contender {
            name,
            allocations: count as f64 / self.each.min(1000) as f64,
            turn: Box::new(turn),
        }
    }
}

/// All visits of one key pass, and what each of them spends outlives the run: a key that says
/// nothing any more would be a newcomer at its next visit.
const LARGE: &str = "1/1s burst=30000000";
const METERED: &str = "token bucket, a mark";
const MAPPED: &str = "token bucket, in the map";

fn main() {
    let mode = Mode::from_args();
    let mut table = Table::new(Reads::Time);
    for (keys, place) in [(1, "one hot key"), (100_000, "100 k keys")] {
        let course = Course::new(mode.pick(keys, keys.min(1000)), &mode);
        let mut race = |what: &str, aim: &'static str, ours: Contender<'_>| {
            let name = format!("{what}, {place}");
            if !mode.runs(&name) {
                return;
            }
            let name: &'static str = name.leak();
            let metered =
                course.contender::<TokenBucket>(METERED, &format!("token-bucket {LARGE}"), true);
            // A rule that does not start at rest has no meter.
            let mapped = course.contender::<TokenBucket>(
                MAPPED,
                &format!("token-bucket {LARGE} initial=29999999"),
                true,
            );
            let targets: &'static [_] = vec![(METERED, aim), (MAPPED, aim)].leak();
            let contenders = vec![ours, metered, mapped];
            table.race(
                &mode,
                mode.rounds(ROUNDS),
                Race {
                    name,
                    bare: None,
                    contenders,
                    targets,
                },
            );
        };
        macro_rules! race {
            ($what:literal, $Rule:ty, $text:expr, $aim:literal) => {
                race($what, $aim, course.contender::<$Rule>("", $text, true))
            };
        }
        race!(
            "fixed window",
            FixedWindow,
            "fixed-window 1000000000000/1d",
            "≤ 1.2"
        );
        race!(
            "sliding window",
            SlidingWindow,
            "sliding-window 200000000/365d",
            "≤ 1.6"
        );
        race!(
            "sliding window of 4 slices",
            SlidingWindow,
            // In the map: so high a limit fits into no packed state of several slices.
            "sliding-window 1000000000000/1d slices=4",
            "≤ 2.2"
        );
        race!(
            "leaky bucket",
            LeakyBucket,
            "leaky-bucket 1/1s queue=30000000",
            "≤ 1.6"
        );
        race!(
            "cascade of two",
            Cascade,
            &format!("cascade {LARGE} > {LARGE}"),
            "≤ 1.6"
        );
        race!(
            "three colours",
            ThreeColor,
            "three-color 1/1s burst=30000000 peak=2/1s peak-burst=30000000",
            "≤ 1.6"
        );
        race!("warm-up", WarmUp, "warm-up 1000000000/s", "≤ 2");
        race!(
            "warm-up, spaced",
            WarmUpSpaced,
            "warm-up-spaced 1/1s max-wait=1000d",
            "≤ 2"
        );
        race!(
            "token bucket, chosen at run time",
            AnyRule,
            &format!("token-bucket {LARGE}"),
            "≤ 1.15"
        );
        race!(
            "fixed window, chosen at run time",
            AnyRule,
            "fixed-window 1000000000000/1d",
            "–"
        );
        // Windows of a length in which a key that is asked all the time reaches its limit.
        let log = |name, limit: u64| {
            let window = limit * keys as u64 * 50;
            course.contender::<SlidingLog>(name, &format!("sliding-log {limit}/{window}ns"), false)
        };
        race("sliding log of 100", "≤ 3", log("", 100));
        let name = format!("sliding log of 10,000 beside one of 100, {place}");
        if mode.runs(&name) {
            let contenders = vec![log("", 10_000), log("sliding log of 100", 100)];
            table.race(
                &mode,
                mode.rounds(ROUNDS),
                Race {
                    name: name.leak(),
                    bare: None,
                    contenders,
                    targets: &[("sliding log of 100", "≤ 1.5")],
                },
            );
        }
        // An interval that is no whole number of nanoseconds, and one that is.
        let name = format!("token bucket of 7/h beside one of 8/h, {place}");
        if mode.runs(&name) {
            let bucket = |name, rule| course.contender::<TokenBucket>(name, rule, false);
            let contenders = vec![
                bucket("", "token-bucket 7/1h burst=100000"),
                bucket("token bucket of 8/h", "token-bucket 8/1h burst=100000"),
            ];
            table.race(
                &mode,
                mode.rounds(ROUNDS),
                Race {
                    name: name.leak(),
                    bare: None,
                    contenders,
                    targets: &[("token bucket of 8/h", "≤ 1.05")],
                },
            );
        }
    }
    table.print(&mode, mode.rounds(ROUNDS));
}
