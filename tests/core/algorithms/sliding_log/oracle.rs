//! Compares the sliding log with an oracle that keeps a list of all units and adds them up.

use num_bigint::BigInt;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use tollgate::{
    Charge, Cost, Timestamp,
    algorithm::{Algorithm, SlidingLog},
};

use crate::algorithms::answer::Answer;

use super::{MINUTE, SECOND, entries, rule};

/// The instants of admitted units, in no order.
#[derive(Default)]
struct Oracle {
    calls: Vec<(u64, BigInt)>,
}

/// The limit and the length.
type Setting = (u64, u64);

impl Oracle {
    /// Time is clamped to the newest call.
    fn at(&self, now: u64) -> u64 {
        self.calls.iter().map(|call| call.0).fold(now, u64::max)
    }

    /// Returns the units of calls less than a window old.
    fn count(&self, length: u64, at: &BigInt) -> BigInt {
        let young = self
            .calls
            .iter()
            .filter(|call| at - call.0 < BigInt::from(length));
        young.map(|call| &call.1).sum()
    }

    fn room(&self, (limit, length): Setting, at: &BigInt) -> BigInt {
        (limit - self.count(length, at)).max(BigInt::zero())
    }

    /// Returns the wait from `now` until there is room for `units`. It ends when some call leaves
    /// the window.
    fn until(&self, setting: Setting, now: u64, units: &BigInt) -> Option<BigInt> {
        let at = BigInt::from(self.at(now));
        let ends = self
            .calls
            .iter()
            .map(|call| BigInt::from(call.0) + setting.1);
        let first = ends
            .filter(|end| *end > at && self.room(setting, end) >= *units)
            .min();
        first.map(|end| end - now)
    }

    fn answer(&self, setting: Setting, now: u64, admitted: bool, cost: u64) -> Answer {
        let (limit, length) = setting;
        let at = BigInt::from(self.at(now));
        let remaining = self.room(setting, &at);
        let newest = self
            .calls
            .iter()
            .map(|call| call.0)
            .max()
            .unwrap_or_default();
        Answer {
            admitted,
            retry: if admitted {
                Some(BigInt::zero())
            } else if cost > limit {
                None
            } else {
                self.until(setting, now, &BigInt::from(cost))
            },
            reset: if self.count(length, &at).is_zero() {
                BigInt::zero()
            } else {
                BigInt::from(newest) + length - now
            },
            more: self
                .until(setting, now, &(&remaining + 1))
                .unwrap_or_default(),
            limit,
            remaining: remaining.to_u64().unwrap(),
            ..Answer::default()
        }
    }

    fn fits(&self, setting: Setting, now: u64, cost: u64) -> bool {
        self.room(setting, &BigInt::from(self.at(now))) >= BigInt::from(cost)
    }

    fn look(&self, setting: Setting, now: u64) -> Answer {
        self.answer(setting, now, self.fits(setting, now, 1), 1)
    }

    fn discard(&mut self, length: u64, at: u64) {
        self.calls.retain(|call| at - call.0 < length);
    }

    fn step(&mut self, setting: Setting, now: u64, cost: u64) -> Answer {
        let admitted = self.fits(setting, now, cost);
        if admitted {
            let at = self.at(now);
            self.discard(setting.1, at);
            self.calls.push((at, BigInt::from(cost)));
        }
        self.answer(setting, now, admitted, cost)
    }

    fn settle(&mut self, (limit, length): Setting, charge: &Charge, now: u64, actual: u64) {
        let (at, charged) = (self.at(now), charge.at.as_nanos());
        if actual == charge.cost || at.saturating_sub(charged) >= length {
            return;
        }
        self.discard(length, at);
        let mut less = BigInt::from(charge.cost) - actual;
        if less > BigInt::zero() {
            for (_, units) in self.calls.iter_mut().filter(|call| call.0 == charged) {
                let taken = less.clone().min(units.clone());
                *units -= &taken;
                less -= taken;
            }
            self.calls.retain(|call| !call.1.is_zero());
            return;
        }
        let full = self.count(length, &BigInt::from(at)) >= BigInt::from(limit);
        let newest = self.calls.iter().map(|call| call.0).max();
        // The instant itself if it is there, or the next one.
        let next = self.calls.iter().map(|call| call.0);
        let next = next.filter(|instant| *instant >= charged).min();
        if next.is_none() && full {
            for call in &mut self.calls {
                if Some(call.0) == newest {
                    call.0 = charged;
                }
            }
        }
        let entered = next.unwrap_or(charged);
        self.calls.push((entered, -less));
    }
}

#[derive(Clone, Debug)]
enum Op {
    Spend(u64),
    /// The remaining units plus this many.
    SpendRest(u64),
    Wait(u64),
    /// The last refusal's wait, or a nanosecond less or more.
    ToRetry(i64),
    ToReset(i64),
    Back(u64),
    /// Settles one of the unsettled calls.
    Settle(prop::sample::Index, u64),
    /// Settles a call that the log never saw, made that long ago.
    SettleLost(u64, u64, u64),
    Change(usize),
}

fn timeline() -> impl Strategy<Value = Vec<Op>> {
    let gap = || {
        prop_oneof![
            4 => 0..SECOND / 3,
            2 => 0..4 * SECOND,
            1 => Just(SECOND),
            1 => Just(10 * SECOND - 1),
            1 => 0..2 * MINUTE,
            1 => 0..400 * 1440 * MINUTE,
        ]
    };
    let op = prop_oneof![
        8 => (1..4_u64).prop_map(Op::Spend),
        1 => prop_oneof![1..200_u64, Just(u64::MAX)].prop_map(Op::Spend),
        2 => (0..2_u64).prop_map(Op::SpendRest),
        6 => gap().prop_map(Op::Wait),
        2 => (-1..=1_i64).prop_map(Op::ToRetry),
        1 => (-1..=1_i64).prop_map(Op::ToReset),
        1 => gap().prop_map(Op::Back),
        3 => (any::<prop::sample::Index>(), prop_oneof![3 => Just(0), 3 => 0..6_u64, 1 => 0..=1_u64 << 41])
            .prop_map(|(call, actual)| Op::Settle(call, actual)),
        1 => (gap(), 1..5_u64, 0..10_u64).prop_map(|(ago, cost, actual)| Op::SettleLost(ago, cost, actual)),
        1 => (0..6_usize).prop_map(Op::Change),
    ];
    prop::collection::vec(op, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(500)))]

    #[test]
    fn equals_the_oracle(
        begin in prop_oneof![Just(0), 0..1_u64 << 62, Just((1 << 63) - 1 - 1440 * MINUTE)],
        first in 0..6_usize,
        ops in timeline(),
    ) {
        let rules = ["3/1s", "7/1s", "100/1m", "5/10s", "1/365d", "20/1s"].map(rule);
        let setting = |rule: &SlidingLog| (rule.quota().amount(), rule.quota().period_nanos());
        let mut rule = rules[first];
        let mut most = setting(&rule).0;
        let (mut oracle, mut state) = (Oracle::default(), None);
        let (mut now, mut retry, mut open) = (begin, 0, Vec::new());
        let later = |now: u64, nanos: u64, more: i64| {
            now.saturating_add(nanos).saturating_add_signed(more).min(i64::MAX as u64)
        };
        for op in ops {
            let at = Timestamp::from_nanos(now);
            let look = rule.look(state.as_ref(), at);
            let mut cost = None;
            match op {
                Op::Spend(units) => cost = Some(units),
                Op::SpendRest(more) => cost = Some((look.remaining().unwrap() + more).max(1)),
                Op::Wait(nanos) => now = later(now, nanos, 0),
                Op::ToRetry(more) => now = later(now, retry, more),
                Op::ToReset(more) => now = later(now, look.reset_after().as_nanos() as u64, more),
                Op::Back(nanos) => now = now.saturating_sub(nanos),
                Op::Settle(which, actual) if !open.is_empty() => {
                    let charge = open.remove(which.index(open.len()));
                    rule.settle(&mut state, &charge, at, actual);
                    oracle.settle(setting(&rule), &charge, now, actual);
                }
                Op::Settle(..) => {}
                Op::SettleLost(ago, cost, actual) => {
                    let charged = Timestamp::from_nanos(now.saturating_sub(ago));
                    let charge = Charge::new(charged, cost).with_delay(None);
                    rule.settle(&mut state, &charge, at, actual);
                    oracle.settle(setting(&rule), &charge, now, actual);
                }
                Op::Change(n) => {
                    rule = rules[n];
                    most = most.max(setting(&rule).0);
                }
            }
            let at = Timestamp::from_nanos(now);
            if let Some(cost) = cost {
                let decision = rule.step(&mut state, at, Cost::new(cost).unwrap()).decision();
                prop_assert_eq!(Answer::of(&decision), oracle.step(setting(&rule), now, cost), "cost {} at {}", cost, now);
                open.extend({ decision }.take_charge());
                retry = decision.retry_after().map_or(0, |wait| wait.as_nanos() as u64);
            }
            let look = Answer::of(&rule.look(state.as_ref(), at));
            prop_assert_eq!(look, oracle.look(setting(&rule), now), "{:?} at {}", state, now);
            prop_assert!(state.as_ref().is_none_or(|log| entries(log) <= most), "{:?}", state);
        }
    }
}
