//! Random requests under each rule, decided by the simulation and by the oracle.

use std::time::Duration;

use playground::{Axis, Column, Report, Totals, simulate};
use support::{Random, cases};

use crate::oracle::{Admission, Oracle, admits, retry_after, room};

const AXIS: Axis = Axis {
    width_ms: 100,
    columns: 30,
};

/// The rules of a case, alone or charged together.
fn rules(random: &mut Random) -> Vec<Oracle> {
    let mut choose = |numbers: &[u64]| *random.choose(numbers);
    let bucket = Oracle::TokenBucket {
        interval: choose(&[1, 40, 100, 250]),
        burst: choose(&[1, 2, 5, 20]),
    };
    let period = choose(&[100, 700, 1000, 5000]);
    let window = Oracle::FixedWindow {
        amount: choose(&[1, 3, 12]),
        period,
        offset: choose(&[0, 1, 99]),
    };
    let log = Oracle::SlidingLog {
        amount: choose(&[1, 3, 12]),
        period,
    };
    let queue = Oracle::LeakyBucket {
        interval: choose(&[10, 100, 300]),
        queue: choose(&[0, 1, 4, 10]),
        max_wait: choose(&[50, 100, 450, 2000]),
    };
    match choose(&[0, 1, 2, 3, 4, 5, 6]) {
        0 => vec![bucket],
        1 => vec![window],
        2 => vec![log],
        3 => vec![queue],
        4 => vec![bucket, window],
        5 => vec![queue, window],
        _ => vec![window, bucket, log],
    }
}

/// Requests at random, in bursts, and on the milliseconds around the edges of columns.
fn arrivals(random: &mut Random) -> Vec<u32> {
    let mut arrivals = Vec::new();
    for _ in 0..random.below(12) {
        let at = match random.below(3) {
            0 => random.below(3200),
            1 => 100 * random.below(32),
            _ => 100 * (1 + random.below(31)) - 1,
        };
        let gap = *random.choose(&[0, 0, 1, 37]);
        arrivals.extend((0..random.below(8)).map(|index| (at + index * gap) as u32));
    }
    random.shuffle(&mut arrivals);
    arrivals
}

/// Counts as the documentation of the report says.
fn expected(rules: &[Oracle], arrivals: &[u32]) -> (Report, Vec<Admission>) {
    let mut sorted: Vec<u64> = arrivals.iter().map(|at| u64::from(*at)).collect();
    sorted.sort_unstable();
    let mut report = simulate(&text(rules), &[], AXIS).unwrap();
    let mut history = Vec::new();
    let width = u64::from(AXIS.width_ms);
    let columns = &mut report.columns;
    *columns = vec![Column::default(); AXIS.columns as usize];
    for at in sorted {
        let mut one = Totals::default();
        match admits(rules, &history, at) {
            Some(wait) => {
                let count = if wait == 0 {
                    &mut one.at_once
                } else {
                    &mut one.delayed
                };
                *count = 1;
                let passed = at + wait;
                history.push(Admission { at, passed });
                report.longest_delay = report.longest_delay.max(Duration::from_millis(wait));
            }
            None => {
                one.refused = 1;
                let wait = Duration::from_millis(retry_after(rules, &history, at));
                report.longest_retry_after = report.longest_retry_after.max(Some(wait));
            }
        }
        let column = columns.get_mut((at / width) as usize);
        let counts = column.map(|column| &mut column.arrived);
        for totals in counts.into_iter().chain([&mut report.totals]) {
            totals.at_once += one.at_once;
            totals.delayed += one.delayed;
            totals.refused += one.refused;
        }
    }
    for (index, column) in columns.iter_mut().enumerate() {
        let (begin, end) = (index as u64 * width, (index as u64 + 1) * width);
        let count = |counted: &dyn Fn(&Admission) -> bool| {
            history
                .iter()
                .filter(|admission| counted(admission))
                .count() as u64
        };
        column.passed = count(&|it| it.passed >= begin && it.passed < end);
        column.waiting = count(&|it| it.at < end && it.passed >= end);
        let before: Vec<_> = history.iter().filter(|it| it.at < begin).copied().collect();
        column.remaining = room(rules, &before, begin);
    }
    for (window, rule) in report.windows.iter_mut().zip(rules) {
        let ending_at = |end: u64| {
            let begins = end.saturating_sub(rule.period() - 1);
            let within = history
                .iter()
                .filter(|it| it.passed >= begins && it.passed <= end);
            within.count() as u64
        };
        window.most = (0..9000).map(ending_at).max().unwrap();
        window.within = (0..u64::from(AXIS.columns))
            .map(|column| {
                let most = (column * width..(column + 1) * width).map(ending_at).max();
                most.unwrap()
            })
            .collect();
    }
    (report, history)
}

fn text(rules: &[Oracle]) -> String {
    let texts: Vec<_> = rules.iter().map(|rule| rule.text()).collect();
    texts.join(" & ")
}

#[test]
fn the_simulation_is_as_the_oracle() {
    let (mut refused, mut delayed, mut several) = (0, 0, 0);
    for seed in 0..cases(600) {
        let mut random = Random::new(seed);
        let rules = rules(&mut random);
        let arrivals = arrivals(&mut random);
        let report = simulate(&text(&rules), &arrivals, AXIS).unwrap();
        let (expected, history) = expected(&rules, &arrivals);
        assert_eq!(report, expected, "seed {seed}: {rules:?} of {arrivals:?}");
        let totals = report.totals;
        assert_eq!(totals.at_once + totals.delayed, history.len() as u64);
        refused += totals.refused;
        delayed += totals.delayed;
        several += u64::from(rules.len() > 1);
    }
    assert!(
        refused > 100 && delayed > 10 && several > 5,
        "cases without refusals, delays or pairs: {refused}, {delayed}, {several}"
    );
}

/// The classic of fixed windows: twice the quota passes around an edge.
#[test]
fn two_bursts_around_an_edge_pass_a_fixed_window() {
    let at = [[999; 10], [1000; 10]].concat();
    let most = |text: &str| simulate(text, &at, AXIS).unwrap().windows[0].most;
    assert_eq!(most("fixed-window 10/s"), 20);
    assert_eq!(most("sliding-log 10/s"), 10);
}
