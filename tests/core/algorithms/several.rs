//! Several rules on one key: the laws hold for pairs and for `… & …`, with any rules in them.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{AnyRule, Cost, Timestamp, algorithm::Algorithm};

use crate::algorithms::laws::{Keeps, beginnings, hold, ops};

type AnyState = <AnyRule as Algorithm>::State;

const SECOND: u64 = 1_000_000_000;

/// Rules that start at rest, two of each algorithm. Both fixed windows have the same period,
/// because a refused call in a combination does not always carry a count over to other windows.
const KINDS: [[&str; 2]; 10] = [
    ["token-bucket 10/s", "token-bucket 7/3s burst=20"],
    [
        "leaky-bucket 10/s queue=5",
        "leaky-bucket 7/3s max-wait=500ms",
    ],
    [
        "fixed-window 10/7s offset=10ms",
        "fixed-window 30/7s offset=10ms",
    ],
    [
        "fixed-window 12/5s from=first-call",
        "fixed-window 9/5s from=first-call",
    ],
    ["sliding-window 10/s", "sliding-window 30/10s slices=7"],
    ["sliding-log 10/s", "sliding-log 15/4s"],
    ["warm-up 20/s over=3s", "warm-up 12/s over=4s cold=2.5"],
    [
        "warm-up-spaced 5/s over=2s",
        "warm-up-spaced 20/s over=3s cold=2 max-wait=700ms",
    ],
    ["cascade 5/s burst=4 > 3/s burst=10", "cascade 5/s burst=8"],
    [
        "three-color 5/s peak=12/s peak-burst=20",
        "three-color 5/s burst=20 peak=6/s",
    ],
];

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

fn keeps<'a>(rules: impl IntoIterator<Item = &'a AnyRule>) -> Keeps {
    Keeps {
        starts_at_rest: true,
        never_shrinks: !rules.into_iter().any(Algorithm::may_shrink_when_idle),
        carries_over: false,
    }
}

proptest! {
    #[test]
    fn laws_hold_for_pairs(
        begin in beginnings(), a in 0..KINDS.len(), b in 0..KINDS.len(), ops in ops(2 * SECOND, 10),
    ) {
        let rules = [0, 1].map(|n| (rule(KINDS[a][n]), rule(KINDS[b][n])));
        hold(&rules, keeps([&rules[0].0, &rules[0].1]), begin, &ops);
    }

    #[test]
    fn laws_hold_for_combinations(
        begin in beginnings(), kinds in prop::collection::vec(0..KINDS.len(), 2..5), ops in ops(2 * SECOND, 10),
    ) {
        let rules = [0, 1].map(|n| {
            let texts: Vec<_> = kinds.iter().map(|kind| KINDS[*kind][n]).collect();
            rule(&texts.join(" & "))
        });
        hold(&rules, keeps(&rules), begin, &ops);
    }
}

fn step(rule: &AnyRule, state: &mut Option<AnyState>, second: u64, cost: u64) -> Option<Duration> {
    let now = Timestamp::from_nanos(second * SECOND);
    let decision = rule.step(state, now, Cost::new(cost).unwrap()).decision();
    decision.retry_after()
}

/// A warm key, and beside it a bucket that has room only when the key will be cold again.
#[test]
fn no_retry_time_is_returned_if_the_warm_up_cools_by_then() {
    let rule = rule("warm-up 12/s over=10s cold=3 & token-bucket 12/s");
    let slower = "warm-up 12/s over=10s cold=3 & token-bucket 1/10s burst=12";
    let slower: AnyRule = slower.parse().unwrap();
    let mut state = None;
    for second in 0..40 {
        while step(&rule, &mut state, second, 1) == Some(Duration::ZERO) {}
    }
    // A cold key admits 4.
    let (four, eight) = (
        step(&slower, &mut state, 40, 4),
        step(&slower, &mut state, 40, 8),
    );
    assert!(four.is_some() && four != Some(Duration::ZERO), "{four:?}");
    assert_eq!(eight, None);
}

/// A bucket that was forgotten starts empty again.
#[test]
fn no_retry_time_is_returned_if_a_bucket_is_forgotten_by_then() {
    let rule = rule("token-bucket 10/s initial=0 keep=5s & fixed-window 1/1m");
    let mut state = None;
    assert_eq!(
        step(&rule, &mut state, 10, 1),
        Some(Duration::from_millis(100))
    );
    assert_eq!(step(&rule, &mut state, 11, 1), Some(Duration::ZERO));
    assert_eq!(step(&rule, &mut state, 12, 1), None);
    // The bucket is seen anew, and will be full when the window ends.
    assert_eq!(step(&rule, &mut state, 58, 1), Some(Duration::from_secs(2)));
}
