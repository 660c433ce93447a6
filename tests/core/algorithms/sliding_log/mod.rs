//! The sliding log obeys the laws.

mod bytes;
mod oracle;
mod settle;
mod window;

use proptest::prelude::*;
use tollgate::{
    Cost, Decision, Timestamp,
    algorithm::{Algorithm, Codec, SlidingLog},
};

use crate::algorithms::laws::{Keeps, beginnings, hold, ops};

type SlidingLogState = <SlidingLog as Algorithm>::State;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

fn rule(text: &str) -> SlidingLog {
    format!("sliding-log {text}").parse().unwrap()
}

fn rules() -> Vec<SlidingLog> {
    ["100/1m", "7/1s", "3/1s", "1/365d", "10000000000/s", "5/10s"]
        .map(rule)
        .to_vec()
}

proptest! {
    #[test]
    fn laws_hold(begin in beginnings(), first in 0..6_usize, ops in ops(MINUTE, 100)) {
        let mut rules = rules();
        rules.rotate_left(first);
        hold(&rules, Keeps::ALL, begin, &ops);
    }

    /// The costs and the gaps of the timeline, on the scale of the smaller rules.
    #[test]
    fn laws_hold_for_small_logs(begin in beginnings(), first in 0..3_usize, ops in ops(SECOND, 5)) {
        let mut rules = ["7/1s", "3/1s", "5/10s"].map(rule);
        rules.rotate_left(first);
        hold(&rules, Keeps::ALL, begin, &ops);
    }
}

/// Returns the number of entries, which the bytes start with.
fn entries(log: &SlidingLogState) -> u64 {
    let bytes = log.to_bytes();
    let mut count = 0;
    for (n, byte) in bytes[1..].iter().enumerate() {
        count |= u64::from(byte & 0x7f) << (7 * n);
        if *byte < 0x80 {
            break;
        }
    }
    count
}

fn step(rule: &SlidingLog, state: &mut Option<SlidingLogState>, now: u64, cost: u64) -> Decision {
    rule.step(state, Timestamp::from_nanos(now), Cost::new(cost).unwrap())
        .decision()
}

fn remaining(rule: &SlidingLog, state: &Option<SlidingLogState>, now: u64) -> u64 {
    let look = rule.look(state.as_ref(), Timestamp::from_nanos(now));
    look.remaining().unwrap()
}
