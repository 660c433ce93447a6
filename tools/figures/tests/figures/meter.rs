//! The meters, against definitions that are slower still.

use figures::meter;
use tollgate::{AnyRule, Timestamp};

const BEGINNING: u64 = 1_767_225_600_000_000_000;

/// A few hundred admissions, some milliseconds apart.
fn admissions(seed: u64) -> Vec<(u64, u64)> {
    let (mut word, mut at) = (seed, BEGINNING);
    let mut next = || {
        word = word
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        word >> 33
    };
    let mut list = Vec::new();
    for _ in 0..300 {
        at += next() % 25 * 1_000_000;
        list.push((at, 1 + next() % 3));
    }
    list
}

/// Feeds all admissions, and compares each excess with that of a definition.
fn check(rule: &str, seed: u64, expected: impl Fn(&[(u64, u64)]) -> u64) {
    let rule: AnyRule = rule.parse().expect("a rule");
    let mut meter = meter::of(&rule).expect("a meter");
    let list = admissions(seed);
    for (index, (at, units)) in list.iter().enumerate() {
        let at = Timestamp::from_nanos(*at);
        let excess = meter.excess(at, *units);
        assert_eq!(excess, expected(&list[..=index]), "{rule}, {index}");
        meter.add(at, *units);
    }
}

fn sum<'a>(list: impl Iterator<Item = &'a (u64, u64)>) -> u64 {
    list.map(|(_, units)| units).sum()
}

/// In no span more than the burst and what is refilled in it.
#[test]
fn buckets_are_measured_over_all_spans() {
    for seed in 1..=5 {
        check("token-bucket 100/s burst=30", seed, |list| {
            let (end, _) = list[list.len() - 1];
            let of_span = |first: usize| {
                let units = u128::from(sum(list[first..].iter())) * 1_000_000_000;
                let refilled = u128::from(end - list[first].0) * 100;
                units
                    .saturating_sub(refilled + 30 * 1_000_000_000)
                    .div_ceil(1_000_000_000) as u64
            };
            (0..list.len()).map(of_span).max().unwrap_or(0)
        });
    }
}

#[test]
fn logs_are_measured_over_the_last_period() {
    check("sliding-log 100/s", 1, |list| {
        let (end, _) = list[list.len() - 1];
        let recent = list.iter().filter(|(at, _)| at + 1_000_000_000 > end);
        sum(recent).saturating_sub(100)
    });
}

#[test]
fn windows_are_measured_by_the_calendar() {
    check("fixed-window 100/s", 1, |list| {
        let (end, _) = list[list.len() - 1];
        let second = |at: u64| at / 1_000_000_000;
        sum(list.iter().filter(|(at, _)| second(*at) == second(end))).saturating_sub(100)
    });
    check("sliding-window 100/s", 1, |list| {
        let (end, _) = list[list.len() - 1];
        let of = |second: u64| sum(list.iter().filter(|(at, _)| at / 1_000_000_000 == second));
        let now = end / 1_000_000_000;
        let rest = 1_000_000_000 - end % 1_000_000_000;
        let weighted = of(now) * 1_000_000_000 + of(now - 1) * rest;
        weighted
            .saturating_sub(100 * 1_000_000_000)
            .div_ceil(1_000_000_000)
    });
}

#[test]
fn a_rule_without_a_meter_is_an_error() {
    let rule = "leaky-bucket 10/s".parse().expect("a rule");
    assert!(meter::of(&rule).is_err_and(|error| error.contains("has no meter")));
}
