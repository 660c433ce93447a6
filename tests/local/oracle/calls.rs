//! Random calls of a store, and the events between them.
#![allow(unreachable_pub, reason = "items of a test module")]

use std::fmt;

use proptest::prelude::*;

use super::plain::Who;

/// Keys under each of two policies.
pub const KEYS: u64 = 12;
/// The largest number of keys at once, for each kind of state.
pub const ALL: usize = 2 * KEYS as usize;
pub const DAY: u64 = 86_400_000_000_000;

#[derive(Clone, Copy)]
pub struct Call {
    pub who: Who,
    /// A number that chooses the rule: most calls are by the key's own.
    pub rule: usize,
    pub cost: u64,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, however the operations around it are printed.
        let Self { who, rule, cost } = self;
        write!(f, "Call {{ who: {who:?}, rule: {rule}, cost: {cost} }}")
    }
}

#[derive(Clone, Debug)]
pub enum Op {
    Spend(Call),
    /// Spends, and if refused again when the answer said.
    SpendInTime(Call),
    Several(Vec<Call>),
    Look(Call),
    Settle {
        call: Call,
        /// By the rule of the charge, or by that of the call.
        late: bool,
        actual: u64,
    },
    Reset(Who),
    Clear,
    Advance(u64),
    StepBack(u64),
}

fn who() -> impl Strategy<Value = Who> {
    (0..2_usize, 0..KEYS)
}

fn call() -> impl Strategy<Value = Call> {
    let rule = prop_oneof![2 => Just(None), 1 => (0..100_usize).prop_map(Some)];
    let cost = prop_oneof![3 => Just(1), 3 => 1..6_u64];
    (who(), rule, cost).prop_map(|(who, rule, cost)| Call {
        who,
        rule: rule.unwrap_or(who.1 as usize),
        cost,
    })
}

fn several() -> impl Strategy<Value = Vec<Call>> {
    let distinct = |mut calls: Vec<Call>| {
        calls.sort_by_key(|call| call.who);
        calls.dedup_by_key(|call| call.who);
        calls
    };
    (prop::collection::vec(call(), 2..5), 0..4_usize).prop_map(move |(calls, first)| {
        let mut calls = distinct(calls);
        let first = first % calls.len();
        calls.rotate_left(first);
        calls
    })
}

pub fn ops(steps: impl Strategy<Value = u64> + 'static) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        20 => call().prop_map(Op::Spend),
        2 => call().prop_map(Op::SpendInTime),
        6 => several().prop_map(Op::Several),
        2 => call().prop_map(Op::Look),
        4 => (call(), any::<bool>(), 0..12_u64)
            .prop_map(|(call, late, actual)| Op::Settle { call, late, actual }),
        1 => who().prop_map(Op::Reset),
        1 => prop_oneof![5 => Just(Op::Advance(1)), 1 => Just(Op::Clear)],
        6 => steps.prop_map(Op::Advance),
        2 => (0..5_000_000_000_u64).prop_map(Op::StepBack),
    ];
    prop::collection::vec(op, 1..200)
}

/// Up to some seconds, and sometimes to half a day.
pub fn steps() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..2_000_000_000_u64, 2 => 0..90_000_000_000_u64, 1 => 0..DAY / 2]
}
