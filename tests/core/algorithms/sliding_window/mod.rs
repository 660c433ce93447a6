//! The sliding window: the laws, worked examples, its text and its bytes. `timelines` compares it
//! with the oracle, `worst_case` checks the documented maximum.

mod bytes;
mod change;
mod oracle;
mod timelines;
mod worst_case;

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{AnyRule, Cost, Quota, SlidingWindow, Timestamp, algorithm::Algorithm};

use crate::algorithms::laws::{Keeps, beginnings, hold, ops};

type SlidingWindowState = <SlidingWindow as Algorithm>::State;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

fn rule(text: &str) -> SlidingWindow {
    format!("sliding-window {text}").parse().unwrap()
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// Spends `units` at `nanos`. Must be admitted.
fn spend(
    rule: &SlidingWindow,
    state: &mut Option<SlidingWindowState>,
    nanos: u64,
    units: u64,
) -> tollgate::Decision {
    let decision = rule
        .step(state, at(nanos), Cost::new(units).unwrap())
        .decision();
    assert!(decision.is_admitted(), "{decision:?}");
    decision
}

fn remaining(rule: &SlidingWindow, state: &Option<SlidingWindowState>, nanos: u64) -> u64 {
    rule.look(state.as_ref(), at(nanos)).remaining().unwrap()
}

proptest! {
    #[test]
    fn laws_hold(begin in beginnings(), first in 0..8_usize, ops in ops(MINUTE, 100)) {
        let mut rules = [
            "100/1m", "100/1m slices=4", "100/1m slices=7", "100/1m slices=60", "50/1m slices=4", "7/s", "1/365d",
            "10000000000/s",
        ].map(rule);
        rules.rotate_left(first);
        hold(&rules, Keeps::ALL, begin, &ops);
    }

    #[test]
    fn laws_hold_of_few_units(begin in beginnings(), first in 0..6_usize, ops in ops(SECOND, 5)) {
        let mut rules = [
            "7/s", "3/s", "3/s slices=7", "3/2s slices=60", "5/103ns slices=60", "1/365d slices=59",
        ].map(rule);
        rules.rotate_left(first);
        hold(&rules, Keeps::ALL, begin, &ops);
    }
}

#[test]
fn at_00_01_43_the_previous_minute_counts_with_17_60ths() {
    let (rule, mut state) = (SlidingWindow::per_minute(100), None);
    spend(&rule, &mut state, 30 * SECOND, 61);
    spend(&rule, &mut state, 65 * SECOND, 10);
    // 10 + 61 * 17/60 = 27.28...
    assert_eq!(remaining(&rule, &state, 103 * SECOND), 72);
    // 72 beside 10 + 61 * x pass once x is 18/61, which is 17.7 s before the end.
    let mut full = state.clone();
    spend(&rule, &mut full, 103 * SECOND, 72);
    let more = rule.look(full.as_ref(), at(103 * SECOND)).more_after();
    // 61 * rest / 60 s <= 17, in whole nanoseconds.
    assert_eq!(more, Duration::from_nanos(17 * SECOND - 17 * MINUTE / 61));
}

#[test]
fn a_quarter_into_the_window_the_previous_one_weighs_75_percent() {
    let (rule, mut state) = (SlidingWindow::per_minute(100), None);
    spend(&rule, &mut state, 7 * SECOND, 80);
    assert_eq!(remaining(&rule, &state, MINUTE + 15 * SECOND), 40);
    assert_eq!(remaining(&rule, &state, MINUTE + 30 * SECOND), 60);
    assert_eq!(remaining(&rule, &state, MINUTE + 45 * SECOND), 80);
}

#[test]
fn four_slices_of_a_minute_are_five_counters_of_15_seconds() {
    let (rule, mut state) = (SlidingWindow::per_minute(100).slices(4), None);
    for (slice, units) in [15, 2, 4, 8, 16].into_iter().enumerate() {
        spend(&rule, &mut state, slice as u64 * 15 * SECOND + 5, units);
        if slice == 3 {
            assert_eq!(remaining(&rule, &state, MINUTE - 1), 100 - 29);
        }
    }
    // 5 s into the fifth slice, two thirds of the first are left.
    assert_eq!(remaining(&rule, &state, MINUTE + 5 * SECOND), 100 - 30 - 10);
    assert_eq!(remaining(&rule, &state, MINUTE + 15 * SECOND), 100 - 30);
    assert_eq!(remaining(&rule, &state, MINUTE + 30 * SECOND), 100 - 28);
    assert_eq!(remaining(&rule, &state, 2 * MINUTE + 14 * SECOND), 98);
    assert_eq!(remaining(&rule, &state, 2 * MINUTE + 15 * SECOND), 100);
}

#[test]
fn slices_that_do_not_divide_the_window_begin_at_the_next_nanosecond() {
    let rule = SlidingWindow::per_second(10).slices(7);
    let begins = [
        0,
        142_857_143,
        285_714_286,
        428_571_429,
        571_428_572,
        714_285_715,
        857_142_858,
    ];
    let begin = |k: usize| begins[k % 7] + (k / 7) as u64 * SECOND;
    for k in 0..20 {
        for now in [begin(k), begin(k + 1) - 1] {
            let mut state = None;
            let decision = spend(&rule, &mut state, now, 1);
            // A slice has left one window after its end.
            let end = Duration::from_nanos(begin(k + 8) - now);
            assert_eq!(decision.reset_after(), end, "slice {k} at {now}");
        }
    }
}

#[test]
fn stale_counters_count_nothing() {
    for text in ["100/1m", "100/1m slices=4", "100/1m slices=60"] {
        let (rule, mut state) = (rule(text), None);
        let last = 59 * SECOND + 999_999_999;
        spend(&rule, &mut state, last, 100);
        for later in [2 * MINUTE, 2 * MINUTE + 1, 100 * MINUTE, 1 << 62] {
            assert_eq!(remaining(&rule, &state, later), 100, "{rule} at {later}");
        }
        // The slots of stale counters read as zero after a later write, too.
        spend(&rule, &mut state, 4 * MINUTE, 1);
        assert_eq!(remaining(&rule, &state, 4 * MINUTE), 99);
        assert_eq!(remaining(&rule, &state, 4 * MINUTE + 50 * SECOND), 99);
        assert_eq!(remaining(&rule, &state, 6 * MINUTE), 100);
    }
}

#[test]
fn a_refused_call_passes_in_the_slice_in_which_enough_has_left() {
    let (rule, mut state) = (SlidingWindow::per_minute(100).slices(4), None);
    spend(&rule, &mut state, 0, 30);
    spend(&rule, &mut state, 15 * SECOND, 70);
    let refused = rule.step(&mut state, at(20 * SECOND), Cost::new(65).unwrap());
    // The 30 and half of the 70 have to leave. That is in the middle of the slice that begins at 75
    // s.
    let retry = Some(Duration::from_millis(62_500));
    assert_eq!(refused.decision().retry_after(), retry);
    assert_eq!(
        refused.decision().more_after(),
        Duration::from_millis(40_500)
    );
}

#[test]
fn a_settlement_corrects_the_slice_of_the_call() {
    let (rule, mut state) = (SlidingWindow::per_minute(100).slices(4), None);
    let charge = spend(&rule, &mut state, 0, 20).take_charge().unwrap();
    spend(&rule, &mut state, 16 * SECOND, 10);
    let mut back = state.clone();
    rule.settle(&mut back, &charge, at(20 * SECOND), 5);
    assert_eq!(remaining(&rule, &back, 20 * SECOND), 85);
    rule.settle(&mut state, &charge, at(20 * SECOND), 150);
    assert_eq!(remaining(&rule, &state, 20 * SECOND), 0);
    // From 60 s on it leaves: a tenth of the 150 every one and a half seconds.
    assert_eq!(remaining(&rule, &state, 66 * SECOND), 0);
    assert_eq!(remaining(&rule, &state, 69 * SECOND), 30);

    // Units that have left are neither refunded nor charged again.
    let kept = state.clone();
    rule.settle(&mut state, &charge, at(75 * SECOND), 0);
    rule.settle(&mut state, &charge, at(75 * SECOND), u64::MAX);
    assert_eq!(state, kept);
}

#[test]
fn a_settlement_without_a_state_charges_but_does_not_refund() {
    let rule = SlidingWindow::per_minute(100);
    let charge = spend(&rule, &mut None, 0, 20).take_charge().unwrap();
    let settled = |now, actual| {
        let mut state = None;
        rule.settle(&mut state, &charge, at(now), actual);
        state
    };
    assert_eq!(settled(1, 0), None);
    assert_eq!(settled(1, 20), None);
    assert_eq!(remaining(&rule, &settled(1, 50), 1), 70);
    assert_eq!(remaining(&rule, &settled(90 * SECOND, 50), 90 * SECOND), 85);
    assert_eq!(settled(2 * MINUTE, 50), None);
}

#[test]
fn printed_text_omits_defaults() {
    for (text, printed) in [
        ("sliding-window 100/1m", "sliding-window 100/1m"),
        ("sliding-window 100/60s slices=1", "sliding-window 100/1m"),
        (
            " sliding-window  7/s slices=60 ",
            "sliding-window 7/s slices=60",
        ),
        (
            "sliding-window 1/1000ns slices=60",
            "sliding-window 1/1us slices=60",
        ),
    ] {
        let rule: SlidingWindow = text.parse().unwrap();
        assert_eq!(rule.to_string(), printed);
        assert_eq!(printed.parse::<SlidingWindow>().unwrap(), rule);
        assert_eq!(text.parse::<AnyRule>().unwrap(), rule.into());
    }
    let rule = SlidingWindow::new(Quota::per_hour(5)).slices(12);
    assert_eq!(
        format!("{rule:?}"),
        "SlidingWindow(sliding-window 5/1h slices=12)"
    );
    assert_eq!((rule.quota(), rule.slice_count()), (Quota::per_hour(5), 12));
}

#[test]
fn text_errors_point_at_their_column() {
    for (text, column, part) in [
        ("sliding-window", 15, "expected a quota"),
        ("sliding-windows 1/s", 1, "`sliding-window` was expected"),
        ("sliding-window 100/1x", 21, "unknown unit `x`"),
        (
            "sliding-window 100/1m slice=4",
            23,
            "expected one of `slices=…`",
        ),
        ("sliding-window 100/1m slices=0", 30, "expected 1 to 60"),
        ("sliding-window 100/1m slices=61", 30, "expected 1 to 60"),
        (
            "sliding-window 100/1m slices=99999999999999999999",
            30,
            "a whole number",
        ),
        ("sliding-window 100/1m slices=4.5", 30, "a whole number"),
        ("sliding-window 100/1m slices", 29, "a whole number"),
        ("sliding-window 100/1m slices=4 slices=4", 32, "set twice"),
        ("sliding-window 1/7ns slices=8", 29, "expected at most 7"),
    ] {
        let error = text.parse::<SlidingWindow>().unwrap_err();
        assert_eq!(error.column(), Some(column), "{text}: {error}");
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}

#[test]
#[should_panic(expected = "a window of 0 slices: expected 1 to 60")]
fn building_with_no_slices_panics() {
    let _ = SlidingWindow::per_second(1).slices(0);
}

#[test]
fn a_state_takes_40_bytes_beside_its_counters() {
    assert_eq!(size_of::<SlidingWindowState>(), 40);
    assert_eq!(size_of::<Option<SlidingWindowState>>(), 40);
}
