//! Shared by the oracles of bucket rules: rational arithmetic, and timelines.

use std::{fmt::Debug, time::Duration};

use num_rational::BigRational;
use proptest::prelude::*;
use support::rational::{self, FASTEST, LONGEST, can_be, ratio, whole};
use tollgate::{Charge, Cost, Quota, Timestamp, TokenBucket, Verdict, algorithm::Algorithm};

use crate::algorithms::{answer::Answer, laws::Op};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const DAY: u64 = 86_400 * SECOND;

/// The numbers of one bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) amount: u64,
    pub(crate) period: u64,
    pub(crate) burst: u64,
    pub(crate) initial: u64,
    pub(crate) keep: u64,
    pub(crate) kept_free: u64,
}

impl Bucket {
    pub(crate) fn quota(&self) -> Quota {
        Quota::new(self.amount, Duration::from_nanos(self.period))
    }

    pub(super) fn rule(&self) -> TokenBucket {
        TokenBucket::new(self.quota())
            .burst(self.burst)
            .initial(self.initial)
            .keep(Duration::from_nanos(self.keep))
            .keep_free(self.kept_free)
    }

    /// Nanoseconds per token of the quota, before rounding.
    pub(crate) fn exact_interval(&self) -> BigRational {
        BigRational::new(self.period.into(), self.amount.into())
    }

    /// Nanoseconds per token.
    pub(crate) fn interval(&self) -> BigRational {
        rational::interval(self.amount, self.period, self.burst.max(self.initial))
    }

    /// The lower bound of the filling: a forced debt saturates at 2^62 ticks, which is 48 years.
    pub(crate) fn longest_debt(&self) -> BigRational {
        ratio(-(1_i64 << 62), 3)
    }

    /// The greatest cost that it pays.
    pub(super) fn limit(&self) -> u64 {
        self.burst - self.kept_free
    }

    pub(super) fn at_rest(&self) -> bool {
        self.initial == self.burst
    }

    /// Nanoseconds of filling in a full bucket.
    pub(super) fn full(&self) -> BigRational {
        whole(self.burst) * self.interval()
    }

    pub(super) fn most(&self) -> BigRational {
        whole(self.burst.max(self.initial)) * self.interval()
    }

    pub(crate) fn can_be(&self) -> bool {
        can_be(self.amount, self.period, self.burst.max(self.initial))
    }
}

/// The expected answers of a rule.
pub(crate) trait Oracle<S: ?Sized> {
    fn step(&mut self, setting: &S, now: u64, cost: u64) -> Answer;
    fn look(&self, setting: &S, now: u64) -> Answer;
    fn settle(&mut self, setting: &S, charge: &Charge, now: u64, actual: u64);
}

/// Runs a timeline on the rules and on their oracle. Switches to another rule where the timeline
/// says so.
pub(crate) fn equals<S, A: Algorithm>(
    settings: &[S],
    select_rule: impl Fn(&S) -> A,
    mut oracle: impl Oracle<S>,
    begin: Timestamp,
    ops: &[Op],
) where
    A::State: Debug,
{
    let mut setting = &settings[0];
    let (mut rule, mut state) = (select_rule(setting), None);
    let mut now = begin.as_nanos();
    let (mut charge, mut retry) = (None, now);
    let later = |now: u64, wait: Duration| {
        let at = u128::from(now) + wait.as_nanos();
        if at < 1 << 63 { at as u64 } else { now }
    };
    for op in ops {
        let at = Timestamp::from_nanos(now);
        let look = rule.look(state.as_ref(), at);
        let mut cost = None;
        match *op {
            Op::Spend(units) => cost = Cost::new(units),
            Op::SpendRest { and_more } => {
                cost = Cost::new(look.remaining().unwrap() + u64::from(and_more));
            }
            Op::Advance(nanos) => now = later(now, Duration::from_nanos(nanos)),
            Op::ToRetry { early } => now = retry.saturating_sub(early.into()),
            Op::ToReset { early } => {
                now = later(now, look.reset_after()).saturating_sub(early.into());
            }
            Op::StepBack(nanos) => now = now.saturating_sub(nanos),
            Op::Settle(actual) => {
                if let Some(charge) = charge.take() {
                    rule.settle(&mut state, &charge, at, actual);
                    oracle.settle(setting, &charge, now, actual);
                }
            }
            Op::Change(n) => {
                setting = &settings[n % settings.len()];
                rule = select_rule(setting);
            }
        }
        if let Some(cost) = cost {
            let decision = rule.step(&mut state, at, cost).decision();
            let expected = oracle.step(setting, now, cost.get());
            assert_eq!(
                Answer::of(&decision),
                expected,
                "{rule:?}, {state:?}, {cost:?} at {now}"
            );
            charge = { decision }.take_charge().or(charge);
            if let (Verdict::Refuse, Some(wait)) = (decision.verdict(), decision.retry_after()) {
                retry = later(now, wait);
            }
        }
        let look = rule.look(state.as_ref(), Timestamp::from_nanos(now));
        assert_eq!(
            Answer::of(&look),
            oracle.look(setting, now),
            "{rule:?}, {state:?} at {now} after {op:?}"
        );
    }
}

/// Buckets whose levels are exact. With `whole_intervals`, only those whose interval is a whole
/// number of nanoseconds.
pub(crate) fn bucket(whole_intervals: bool) -> impl Strategy<Value = Bucket> {
    let amounts = prop_oneof![
        4 => 1..20_u64,
        2 => prop::sample::select(vec![1, 3, 7, 60, 100, 1_000_000, FASTEST - 1, FASTEST]),
        1 => 1..=FASTEST,
    ];
    let periods = prop_oneof![
        4 => prop::sample::select(vec![SECOND, 10 * SECOND, 60 * SECOND, 3600 * SECOND]),
        1 => 1..1_000_u64,
        1 => 1..=365 * DAY,
        1 => Just(365 * DAY),
        1 => Just(LONGEST),
    ];
    let bursts =
        prop_oneof![4 => 1..30_u64, 1 => 1..=Quota::MAX_AMOUNT, 1 => Just(Quota::MAX_AMOUNT)];
    let initials =
        prop_oneof![6 => Just(None), 1 => (0..50_u64).prop_map(Some), 1 => Just(Some(0))];
    let keeps = prop::sample::select(vec![0, SECOND, DAY]);
    let kept = prop_oneof![2 => Just(0), 1 => 0..30_u64];
    (amounts, periods, bursts, initials, keeps, kept)
        .prop_map(move |(amount, period, burst, initial, keep, kept)| Bucket {
            amount,
            period: if whole_intervals {
                (period / amount).max(1).saturating_mul(amount)
            } else {
                period
            },
            burst,
            initial: initial.unwrap_or(burst),
            keep,
            kept_free: kept.min(burst - 1),
        })
        .prop_filter("a bucket that can be", Bucket::can_be)
}

/// Generates the whole nanoseconds of a span in bytes: up to 36 years either way.
pub(crate) fn span() -> impl Strategy<Value = u64> {
    (-(1_i64 << 60)..=1 << 60).prop_map(|nanos| nanos as u64 & !(1 << 63))
}

/// Appends a number in LEB128.
pub(crate) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Runs every operation on a state with any numbers, under each rule. None may panic.
pub(crate) fn bears<A>(rules: &[A], state: &A::State)
where
    A: Algorithm,
{
    for rule in rules {
        for now in [0, 1, 1_800_000_000 * SECOND, i64::MAX as u64, u64::MAX] {
            let now = Timestamp::from_nanos(now);
            let mut state = Some(state.clone());
            let look = rule.look(state.as_ref(), now);
            assert!(look.remaining() <= look.limit());
            for (cost, actual) in [(1, 0), (5, u64::MAX), (u64::MAX, 1), (2, 1 << 40)] {
                let decision = rule.step(&mut state, now, units(cost)).decision();
                assert_eq!(decision.limit(), look.limit());
                for class in [0, 1, 7, 8, u32::MAX] {
                    let (at, delay) = (now, None);
                    let charge = Charge::new(at, cost).with_class(class).with_delay(delay);
                    rule.settle(&mut state, &charge, now, actual);
                    rule.settle(&mut state, &charge, Timestamp::default(), actual);
                }
            }
            if let Some(state) = &state {
                assert!(rule.forgettable_at(state) <= Timestamp::MAX);
            }
        }
    }
}

pub(crate) fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(1_800_000_000 * SECOND + nanos)
}

pub(crate) fn units(units: u64) -> Cost {
    Cost::new(units).unwrap()
}
