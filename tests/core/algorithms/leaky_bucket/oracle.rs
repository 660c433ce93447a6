//! The numbers of every decision in rational arithmetic, in the slow obvious way.

use std::time::Duration;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use tollgate::{
    Cost, LeakyBucket, Quota, Timestamp,
    algorithm::{Algorithm, Step},
};

use support::rational::{self, FASTEST, LONGEST, can_be_queue, ratio, whole};

use crate::algorithms::{
    answer::{Answer, rounded},
    timeline::{RequestCost, Wait},
};

type LeakyBucketState = <LeakyBucket as Algorithm>::State;

const DAY: u64 = 86_400_000_000_000;

/// The numbers of a rule.
#[derive(Clone, Copy, Debug)]
struct Setting {
    amount: u64,
    period: u64,
    queue: u64,
    /// 0 means none.
    max_wait: u64,
}

impl Setting {
    fn rule(&self) -> LeakyBucket {
        let quota = Quota::new(self.amount, Duration::from_nanos(self.period));
        let rule = LeakyBucket::new(quota).queue(self.queue);
        match self.max_wait {
            0 => rule,
            wait => rule.max_wait(Duration::from_nanos(wait)),
        }
    }

    fn interval(&self) -> BigRational {
        rational::interval(self.amount, self.period, self.capacity())
    }

    fn capacity(&self) -> u64 {
        self.queue + 1
    }

    /// Returns by how much a backlog is too long for a cost. At most zero if the cost passes.
    fn excess(&self, backlog: &BigRational, cost: u64) -> BigRational {
        let full = whole(self.capacity()) * self.interval();
        let room = backlog + whole(cost) * self.interval() - full;
        match self.max_wait {
            0 => room,
            wait => room.max(backlog - whole(wait)),
        }
    }
}

/// The time until the next free departure, at the instant of the last write.
#[derive(Clone, Default, Debug)]
struct Oracle(Option<(BigRational, u64)>);

impl Oracle {
    fn backlog(&self, now: u64) -> (BigRational, u64) {
        let Some((backlog, at)) = &self.0 else {
            return (BigRational::zero(), now);
        };
        // Time is clamped to the last write.
        let now = now.max(*at);
        ((backlog - whole(now - at)).max(BigRational::zero()), now)
    }

    fn answer(&self, rule: &Setting, now: u64, delay: Option<BigInt>, cost: u64) -> Answer {
        let (backlog, at) = self.backlog(now);
        let until = |lacking: BigRational| rounded(whole(at - now) + lacking);
        let room = (whole(rule.capacity()) - &backlog / rule.interval()).floor();
        let remaining = if rule.max_wait > 0 && backlog > whole(rule.max_wait) {
            0
        } else {
            room.to_integer().to_u64().unwrap_or(0)
        };
        Answer {
            admitted: delay.is_some(),
            limit: rule.capacity(),
            retry: match &delay {
                Some(_) => Some(BigInt::zero()),
                None if cost > rule.capacity() => None,
                None => Some(until(rule.excess(&backlog, cost))),
            },
            reset: if backlog.is_zero() {
                BigInt::zero()
            } else {
                until(backlog.clone())
            },
            more: if remaining == rule.capacity() {
                BigInt::zero()
            } else {
                until(rule.excess(&backlog, remaining + 1))
            },
            delay: delay.unwrap_or_default(),
            remaining,
            ..Answer::default()
        }
    }

    /// Returns the delay of a cost, if it passes.
    fn delay(&self, rule: &Setting, now: u64, cost: u64) -> Option<BigInt> {
        let (backlog, _) = self.backlog(now);
        let passes = cost <= rule.capacity() && rule.excess(&backlog, cost) <= BigRational::zero();
        passes.then(|| rounded(backlog))
    }

    fn step(&mut self, rule: &Setting, now: u64, cost: u64) -> Answer {
        let delay = self.delay(rule, now, cost);
        if delay.is_some() {
            let (backlog, at) = self.backlog(now);
            self.0 = Some((backlog + whole(cost) * rule.interval(), at));
        }
        self.answer(rule, now, delay, cost)
    }

    fn look(&self, rule: &Setting, now: u64) -> Answer {
        self.answer(rule, now, self.delay(rule, now, 1), 1)
    }
}

fn amounts() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..20_u64,
        2 => prop::sample::select(vec![1, 3, 7, 60, 100, 600, 999_999, 1_000_000, FASTEST - 1, FASTEST]),
        1 => 1..=FASTEST,
    ]
}

/// Generates rules that are exact.
fn settings() -> impl Strategy<Value = Setting> {
    let periods = prop_oneof![
        4 => prop::sample::select(vec![1_000_000_000, 10_000_000_000, 60_000_000_000, 3_600_000_000_000]),
        1 => 1..1_000_u64,
        1 => 1..=365 * DAY,
        1 => Just(365 * DAY),
        1 => Just(LONGEST),
    ];
    let queues = prop_oneof![
        1 => Just(0),
        4 => 1..30_u64,
        1 => 1..=Quota::MAX_AMOUNT,
        1 => Just(Quota::MAX_AMOUNT),
    ];
    let waits = prop_oneof![
        3 => Just(None),
        2 => (1..20_u64, -1..=1_i64).prop_map(Some),
    ];
    (amounts(), periods, queues, waits)
        .prop_map(|(amount, period, queue, wait)| Setting {
            amount,
            period,
            queue,
            // A number of intervals, and a nanosecond less or more.
            max_wait: match wait {
                Some((intervals, more)) if queue > 0 => {
                    let nanos = u128::from(intervals) * u128::from(period) / u128::from(amount);
                    (nanos as u64).saturating_add_signed(more).max(1)
                }
                _ => 0,
            },
        })
        .prop_filter("a queue that can be", |setting| {
            can_be_queue(setting.amount, setting.period, setting.queue)
        })
}

#[derive(Clone, Debug)]
enum Op {
    Spend { wait: Wait, cost: RequestCost },
    Look(Wait),
    Back(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (Wait::any(), RequestCost::any()).prop_map(|(wait, cost)| Op::Spend { wait, cost }),
        2 => Wait::any().prop_map(Op::Look),
        1 => (0..5_000_000_000_u64).prop_map(Op::Back),
    ];
    prop::collection::vec(op, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(if cfg!(debug_assertions) { 300 } else { 20_000 }) as u32))]

    #[test]
    fn equals_the_oracle(setting in settings(), start in 0..i64::MAX as u64 / 2, ops in ops()) {
        let rule = setting.rule();
        let mut state: Option<LeakyBucketState> = None;
        let mut oracle = Oracle::default();
        let (mut now, mut retry, mut remaining) = (start, 0, 0);
        for op in ops {
            let decision = match op {
                Op::Spend { wait, cost } => {
                    now = wait.after(now, retry);
                    let cost = cost.units(remaining);
                    let before = state.clone();
                    let step = rule.step(&mut state, Timestamp::from_nanos(now), Cost::new(cost).unwrap());
                    let decision = step.decision();
                    prop_assert_eq!(Answer::of(&decision), oracle.step(&setting, now, cost));
                    prop_assert_eq!(matches!(step, Step::Kept(_)), before == state);
                    prop_assert_eq!(decision.is_admitted(), before != state);
                    decision
                }
                Op::Look(wait) => {
                    now = wait.after(now, retry);
                    let look = rule.look(state.as_ref(), Timestamp::from_nanos(now));
                    prop_assert_eq!(Answer::of(&look), oracle.look(&setting, now));
                    look
                }
                Op::Back(nanos) => {
                    now = now.saturating_sub(nanos);
                    continue;
                }
            };
            remaining = decision.remaining().unwrap();
            let wait = decision.retry_after().filter(|wait| !wait.is_zero());
            retry = wait.map_or(retry, |wait| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// The backlog carries over as time, rounded up to the unit of the new rule.
    #[test]
    fn rule_changes_never_shorten_the_backlog(
        old in settings(), new in settings(),
        spent in prop::collection::vec(1..10_u64, 1..10), gap in 0..100_000_000_000_u64,
    ) {
        let (start, mut state, mut oracle) = (1_800_000_000_000_000_000, None, Oracle::default());
        for spent in spent {
            let decision = old.rule().step(&mut state, Timestamp::from_nanos(start), Cost::new(spent).unwrap());
            prop_assert_eq!(Answer::of(&decision.decision()), oracle.step(&old, start, spent));
        }
        let now = start + gap;
        let ours = new.rule().look(state.as_ref(), Timestamp::from_nanos(now));
        let least = oracle.look(&new, now);
        if let Some((backlog, _)) = &mut oracle.0 {
            *backlog += ratio(1, 3);
        }
        let exact = oracle.look(&new, now);
        let ours = Answer::of(&ours);
        prop_assert!(ours.remaining <= least.remaining && ours.remaining >= exact.remaining);
        prop_assert!(least.reset <= ours.reset && ours.reset <= exact.reset);
        if ours.admitted && least.admitted && exact.admitted {
            prop_assert!(least.delay <= ours.delay && ours.delay <= exact.delay);
        }
    }
}
