//! Rules of every kind, and orders in which two of them take turns.
#![allow(
    unreachable_pub,
    dead_code,
    reason = "items of a module that several tests share"
)]

use support::Random;
use tollgate::AnyRule;

/// A rule of each kind, and some compositions.
pub const RULES: [&str; 13] = [
    "token-bucket 6/1h",
    "leaky-bucket 6/1h queue=5",
    "fixed-window 4/1d",
    "sliding-window 6/1d slices=4",
    "sliding-log 4/1h",
    "warm-up 6/s over=2s",
    "warm-up-spaced 20/s over=4s max-wait=1s",
    "cascade 4/1h > 3/1d",
    "three-color 4/1h burst=4 peak=6/1h peak-burst=6",
    "token-bucket 6/1h & fixed-window 4/1d",
    "fixed-window 4/1d & token-bucket 6/1h",
    "token-bucket 6/1h & token-bucket 4/1d",
    "token-bucket 6/1h & fixed-window 4/1d & sliding-log 7/1h",
];

pub fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

/// Returns every pair of rules of different kinds.
pub fn pairs() -> impl Iterator<Item = [AnyRule; 2]> {
    let pair = |n: usize| (0..n).map(move |m| [rule(RULES[m]), rule(RULES[n])]);
    (0..RULES.len()).flat_map(pair)
}

/// The calls of two rules that take turns: each makes more than its limit, in any order below.
pub const CALLS: u64 = 40;

/// Returns which of two rules makes a call, 0 or 1.
pub type Turns = fn(u64, &mut Random) -> usize;

/// First one rule and then the other, alternating, in groups of five, and at random.
pub const TURNS: [Turns; 4] = [
    |call, _| usize::from(call >= CALLS / 2),
    |call, _| (call % 2) as usize,
    |call, _| (call / 5 % 2) as usize,
    |_, random| random.below(2) as usize,
];
