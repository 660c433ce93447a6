//! The fixed window obeys the laws.

mod bytes;
mod calendar;
mod change;
mod oracle;
mod settle;

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    Cost, Decision, Quota, Timestamp,
    algorithm::{Algorithm, FixedWindow},
};

use crate::algorithms::laws::{Keeps, beginnings, hold, ops};

type FixedWindowState = <FixedWindow as Algorithm>::State;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn rule(text: &str) -> FixedWindow {
    format!("fixed-window {text}").parse().unwrap()
}

fn rules() -> Vec<FixedWindow> {
    [
        "100/1m",
        "7/1s offset=300ms",
        "3/1s from=first-call",
        "1/365d",
        "10000000000/s offset=spread",
        "5/10s offset=9999999999ns",
        "50/7h from=first-call",
    ]
    .map(rule)
    .to_vec()
}

/// The settings of a rule.
#[derive(Clone, Copy, Debug)]
struct Setting {
    limit: u64,
    length: u64,
    /// `None` means from the first call.
    offset: Option<u64>,
}

impl Setting {
    fn is_possible(&self) -> bool {
        Quota::try_new(self.limit, Duration::from_nanos(self.length)).is_ok()
    }

    fn rule(&self) -> FixedWindow {
        let rule = FixedWindow::new(Quota::new(self.limit, Duration::from_nanos(self.length)));
        match self.offset {
            Some(offset) => rule.offset(Duration::from_nanos(offset)),
            None => rule.from_first_call(),
        }
    }
}

fn settings() -> impl Strategy<Value = Setting> {
    let lengths = prop_oneof![
        2 => prop::sample::select(vec![SECOND, 10 * SECOND, MINUTE, 365 * DAY, i64::MAX as u64]),
        1 => 1..100_u64,
        1 => 1..365 * DAY,
    ];
    let limits =
        prop_oneof![4 => 1..10_u64, 1 => Just(100), 1 => Just(10_000_000_000), 1 => Just(1 << 40)];
    (
        limits,
        lengths,
        prop_oneof![1 => Just(None), 1 => Just(Some(0)), 2 => any::<u64>().prop_map(Some)],
    )
        .prop_map(|(limit, length, offset)| Setting {
            limit,
            length,
            offset: offset.map(|offset| offset % length),
        })
        .prop_filter("a valid quota", Setting::is_possible)
}

fn instants() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 1 => 0..MINUTE, 3 => 0..1_u64 << 62, 1 => Just((1 << 63) - 1 - DAY)]
}

proptest! {
    #[test]
    fn laws_hold(begin in beginnings(), first in 0..7_usize, ops in ops(MINUTE, 100)) {
        let mut rules = rules();
        rules.rotate_left(first);
        let keeps = Keeps { carries_over: true, ..Keeps::ALL };
        hold(&rules, keeps, begin, &ops);
    }
}

fn at(hours: u64, minutes: u64, seconds: u64) -> Timestamp {
    let day = 20_000 * DAY;
    Timestamp::from_nanos(day + hours * HOUR + minutes * MINUTE + seconds * SECOND)
}

fn step(
    rule: &FixedWindow,
    state: &mut Option<FixedWindowState>,
    now: Timestamp,
    cost: u64,
) -> Decision {
    rule.step(state, now, Cost::new(cost).unwrap()).decision()
}
