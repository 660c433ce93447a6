//! The fixed window equals an oracle that remembers all calls, and divides big integers.

use std::time::Duration;

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::Zero;
use proptest::prelude::*;
use tollgate::{
    Charge, Cost, Decision, Quota, Timestamp,
    algorithm::{Algorithm, FixedWindow},
};

use super::{DAY, MINUTE, instants, settings};

/// A call that passed.
struct Call {
    /// When it was asked for, by the clock.
    asked: u64,
    /// When it was counted: time stands still at the last write.
    at: u64,
    /// The start of its window.
    start: BigInt,
    cost: u64,
    units: u64,
}

/// All calls that ever passed under one rule.
struct Oracle {
    limit: u64,
    length: u64,
    /// `None` is from the first call.
    offset: Option<u64>,
    calls: Vec<Call>,
}

#[derive(Debug, PartialEq)]
struct Answer {
    admitted: bool,
    remaining: BigInt,
    retry: Option<BigInt>,
    reset: BigInt,
    more: BigInt,
}

impl Oracle {
    fn at(&self, now: u64) -> u64 {
        self.calls.last().map_or(now, |last| last.at.max(now))
    }

    fn count(&self, start: &BigInt) -> BigInt {
        let same = self.calls.iter().filter(|call| call.start == *start);
        same.map(|call| BigInt::from(call.units)).sum()
    }

    fn start(&self, at: u64) -> BigInt {
        let (at, length) = (BigInt::from(at), BigInt::from(self.length));
        if let Some(offset) = self.offset {
            let index = (&at - offset).div_floor(&length);
            return index * length + offset;
        }
        let last = self.calls.last().map(|call| call.start.clone());
        last.filter(|start| at < start + &length && !self.count(start).is_zero())
            .unwrap_or(at)
    }

    fn answer(&self, now: u64, admitted: bool, cost: u64) -> Answer {
        let start = self.start(self.at(now));
        let count = self.count(&start);
        let ends_in = start + self.length - now;
        let some = |wait: &BigInt| {
            if count.is_zero() {
                BigInt::zero()
            } else {
                wait.clone()
            }
        };
        Answer {
            admitted,
            remaining: (BigInt::from(self.limit) - &count).max(BigInt::zero()),
            retry: if admitted {
                Some(BigInt::zero())
            } else {
                (cost <= self.limit).then(|| ends_in.clone())
            },
            reset: some(&ends_in),
            more: some(&ends_in),
        }
    }

    fn fits(&self, now: u64, cost: u64) -> bool {
        let count = self.count(&self.start(self.at(now)));
        count + cost <= BigInt::from(self.limit)
    }

    fn look(&self, now: u64) -> Answer {
        self.answer(now, self.fits(now, 1), 1)
    }

    fn step(&mut self, now: u64, cost: u64) -> Answer {
        let admitted = self.fits(now, cost);
        if admitted {
            let at = self.at(now);
            let start = self.start(at);
            self.calls.push(Call {
                asked: now,
                at,
                start,
                cost,
                units: cost,
            });
        }
        self.answer(now, admitted, cost)
    }

    /// A call that was asked for before the window in which it was counted stays as it is.
    fn settle(&mut self, call: usize, actual: u64) {
        let call = &mut self.calls[call];
        if BigInt::from(call.asked) >= call.start {
            call.units = actual;
        }
    }
}

fn nanos(wait: Duration) -> BigInt {
    BigInt::from(wait.as_nanos())
}

fn answer_of(decision: &Decision) -> Answer {
    Answer {
        admitted: decision.is_admitted(),
        remaining: BigInt::from(decision.remaining().unwrap()),
        retry: decision.retry_after().map(nanos),
        reset: nanos(decision.reset_after()),
        more: nanos(decision.more_after()),
    }
}

#[derive(Clone, Debug)]
enum Op {
    Spend(u64),
    /// What remains, and so much more.
    SpendRest(u64),
    Wait(u64),
    /// To the end of the window, and a nanosecond before or after.
    ToEnd(i64),
    Back(u64),
    /// Corrects one of the calls that are not corrected yet.
    Settle(prop::sample::Index, u64),
}

fn timeline(limit: u64, length: u64) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => (1..=limit / 3 + 1).prop_map(Op::Spend),
        1 => Just(Op::Spend(u64::MAX)),
        2 => (0..2_u64).prop_map(Op::SpendRest),
        2 => (0..=length / 3).prop_map(Op::Wait),
        1 => (0..=length).prop_map(|more| Op::Wait(more.saturating_mul(3))),
        2 => (-1..=1_i64).prop_map(Op::ToEnd),
        1 => prop_oneof![0..=length / 3, Just(1), 0..=length].prop_map(Op::Back),
        3 => (any::<prop::sample::Index>(), prop_oneof![3 => Just(0), 3 => 0..=limit, 1 => 0..=1_u64 << 41])
            .prop_map(|(call, actual)| Op::Settle(call, actual)),
    ];
    prop::collection::vec(op, 1..60)
}

proptest! {
    #[test]
    fn equals_the_oracle(
        ((limit, length, offset), ops) in settings()
            .prop_flat_map(|setting| (Just(setting), timeline(setting.0, setting.1))),
        begin in instants(),
    ) {
        let rule = FixedWindow::new(Quota::new(limit, Duration::from_nanos(length)));
        let rule = match offset {
            Some(offset) => rule.offset(Duration::from_nanos(offset)),
            None => rule.from_first_call(),
        };
        let mut oracle = Oracle { limit, length, offset, calls: Vec::new() };
        let mut state = None;
        let (mut now, mut open) = (begin, Vec::new());
        let later = |now: u64, nanos: u64| now.saturating_add(nanos).min(i64::MAX as u64);
        for op in ops {
            let at = Timestamp::from_nanos(now);
            let remaining = rule.look(state.as_ref(), at).remaining().unwrap();
            let cost = match op {
                Op::Spend(cost) => Some(cost),
                Op::SpendRest(more) => Some((remaining + more).max(1)),
                _ => None,
            };
            match op {
                Op::Wait(nanos) => now = later(now, nanos),
                Op::ToEnd(more) => {
                    let wait = rule.look(state.as_ref(), at).reset_after().as_nanos() as u64;
                    now = later(now, wait).saturating_add_signed(more).min(i64::MAX as u64);
                }
                Op::Back(nanos) => now = now.saturating_sub(nanos),
                Op::Settle(which, actual) if !open.is_empty() => {
                    let call: usize = open.remove(which.index(open.len()));
                    let Call { asked, cost, .. } = oracle.calls[call];
                    let charge = Charge { at: Timestamp::from_nanos(asked), class: 0, cost, delay: None };
                    rule.settle(&mut state, &charge, at, actual);
                    oracle.settle(call, actual);
                }
                _ => {}
            }
            let at = Timestamp::from_nanos(now);
            if let Some(cost) = cost {
                let decision = rule.step(&mut state, at, Cost::new(cost).unwrap()).decision();
                prop_assert_eq!(answer_of(&decision), oracle.step(now, cost), "cost {} at {}", cost, now);
                open.extend(decision.is_admitted().then(|| oracle.calls.len() - 1));
            }
            prop_assert_eq!(answer_of(&rule.look(state.as_ref(), at)), oracle.look(now), "{:?} at {}", state, now);
        }
    }

    /// What another rule counts of a call that one rule let pass: all of it, while the window that it lies in by
    /// the other rule goes on.
    #[test]
    fn a_count_meets_the_new_limit_in_the_new_window(
        (old, new) in (settings(), settings()),
        begin in instants(),
        cost in 1..10_u64,
        wait in prop_oneof![0..2 * MINUTE, 0..400 * DAY],
    ) {
        let made = |(limit, length, offset): (u64, u64, Option<u64>)| {
            let rule = FixedWindow::new(Quota::new(limit, Duration::from_nanos(length)));
            match offset {
                Some(offset) => rule.offset(Duration::from_nanos(offset)),
                None => rule.from_first_call(),
            }
        };
        let (spent_at, now) = (begin, begin.saturating_add(wait).min(i64::MAX as u64));
        let mut state = None;
        let spend = Cost::new(cost.min(old.0)).unwrap();
        prop_assert!(made(old).step(&mut state, Timestamp::from_nanos(spent_at), spend).decision().is_admitted());
        // From the first call, the windows go on from where the one that counted began.
        let start_of = |(_, length, offset): (u64, u64, Option<u64>)| {
            offset.map(|offset| (BigInt::from(spent_at) - offset).div_floor(&BigInt::from(length)) * length + offset)
        };
        let old_start = start_of(old).map_or(BigInt::from(spent_at), |start| start.max(BigInt::zero()));
        let anchor = new.2.map_or(old_start, BigInt::from);
        let window = |at: u64| (BigInt::from(at) - &anchor).div_floor(&BigInt::from(new.1));
        let counted = if window(spent_at) == window(now) { spend.get() } else { 0 };
        let look = made(new).look(state.as_ref(), Timestamp::from_nanos(now));
        prop_assert_eq!(look.remaining(), Some(new.0.saturating_sub(counted)));
        let end = (window(spent_at) + 1) * new.1 + &anchor;
        let wait = if counted == 0 { BigInt::zero() } else { end - now };
        prop_assert_eq!(nanos(look.reset_after()), wait);
    }
}
