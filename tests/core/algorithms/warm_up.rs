//! Compares the warm-up with an oracle that goes through every second in rational arithmetic, token
//! by token.

use std::time::Duration;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use support::rational::{ratio, whole};
use tollgate::{
    AnyRule, Charge, Cost, Decision, Quota, Timestamp, Verdict,
    algorithm::{Algorithm, Codec, Step, WarmUp},
};

use crate::algorithms::{
    answer::Answer,
    laws::{Keeps, beginnings, hold, ops},
};

type WarmUpState = <WarmUp as Algorithm>::State;

const SECOND: u64 = 1_000_000_000;
/// The start of a second in 2026.
const BEGIN: u64 = 1_767_235_685 * SECOND;
/// The remaining units shrink while the key is idle, because it cools.
const KEEPS: Keeps = Keeps {
    never_shrinks: false,
    ..Keeps::ALL
};

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn rule(text: &str) -> WarmUp {
    text.parse().unwrap()
}

fn spend(rule: &WarmUp, state: &mut Option<WarmUpState>, now: u64, cost: u64) -> Decision {
    rule.step(state, at(now), Cost::new(cost).unwrap())
        .decision()
}

/// The numbers of a rule.
#[derive(Clone, Copy, Debug)]
struct Setting {
    amount: u64,
    period: u64,
    over: u64,
    cold: u64,
}

impl Setting {
    fn try_rule(&self) -> Result<WarmUp, tollgate::Error> {
        let quota = Quota::try_new(self.amount, Duration::from_nanos(self.period))?;
        WarmUp::try_with(quota, Duration::from_nanos(self.over), self.cold)
    }

    fn numbers(&self) -> Numbers {
        let count = ratio(self.amount, self.period) * whole(SECOND);
        let (over, factor) = (whole(self.over), ratio(self.cold, 1000));
        // Two times, the first rounded down to a nanosecond, the second rounded up.
        let threshold = (&over / (&factor - whole(1))).floor();
        let above = (over * whole(2) / (&factor + whole(1))).ceil();
        let threshold = threshold * &count / whole(SECOND);
        let maximum = &threshold + above * &count / whole(SECOND);
        let stable = count.recip();
        Numbers {
            divided: (&count / &factor).floor(),
            slope: (&stable * factor - stable) / (&maximum - &threshold),
            count,
            threshold,
            maximum,
        }
    }
}

/// In tokens and seconds.
#[derive(Clone, Debug)]
struct Numbers {
    count: BigRational,
    /// The count divided by the cold factor.
    divided: BigRational,
    threshold: BigRational,
    maximum: BigRational,
    slope: BigRational,
}

#[derive(Clone, Debug)]
struct Second {
    number: u64,
    stored: BigRational,
    passed: u64,
}

impl Second {
    fn rate(&self, rule: &Numbers) -> u64 {
        let rate = if self.stored > rule.threshold {
            let above = &self.stored - &rule.threshold;
            (&rule.slope * above + rule.count.recip()).recip()
        } else {
            rule.count.clone()
        };
        rate.floor().to_integer().to_u64().unwrap()
    }

    fn remaining(&self, rule: &Numbers) -> u64 {
        self.rate(rule).saturating_sub(self.passed)
    }

    fn is_cold(&self, rule: &Numbers) -> bool {
        self.passed == 0 && self.stored == rule.maximum
    }

    fn next(&self, rule: &Numbers) -> Self {
        let mut stored = self.stored.clone();
        if stored <= rule.threshold || whole(self.passed) < rule.divided {
            stored = (stored + &rule.count).min(rule.maximum.clone());
        }
        Self {
            number: self.number + 1,
            stored: (stored - whole(self.passed)).max(BigRational::zero()),
            passed: 0,
        }
    }
}

#[derive(Clone, Default, Debug)]
struct Oracle {
    last: Option<Second>,
}

impl Oracle {
    fn second(&self, rule: &Numbers, now: u64) -> Second {
        let this = now / SECOND;
        let mut second = self.last.clone().unwrap_or(Second {
            number: this,
            stored: rule.maximum.clone(),
            passed: 0,
        });
        while second.number < this {
            if second.is_cold(rule) {
                second.number = this;
            } else {
                second = second.next(rule);
            }
        }
        second
    }

    /// Returns the first second for which `holds` is true, from the next one to the second after
    /// the key is cold.
    fn when(rule: &Numbers, from: &Second, holds: impl Fn(&Second) -> bool) -> Option<u64> {
        let mut second = from.next(rule);
        loop {
            if holds(&second) {
                return Some(second.number);
            }
            if second.is_cold(rule) {
                return None;
            }
            second = second.next(rule);
        }
    }

    fn answer(rule: &Numbers, second: &Second, now: u64, admitted: bool, asked: u64) -> Answer {
        let wait = |number: u64| BigInt::from((number * SECOND).saturating_sub(now));
        let remaining = second.remaining(rule);
        let retry = Self::when(rule, second, |later| later.remaining(rule) >= asked).map(wait);
        let more = Self::when(rule, second, |later| later.remaining(rule) > remaining).map(wait);
        let cold = if second.is_cold(rule) {
            Some(second.number)
        } else {
            Self::when(rule, second, |later| later.is_cold(rule))
        };
        Answer {
            admitted,
            limit: rule.count.to_u64().unwrap(),
            remaining,
            retry: if admitted {
                Some(BigInt::default())
            } else {
                retry
            },
            reset: cold.map(wait).unwrap_or_default(),
            more: more.unwrap_or_default(),
            ..Answer::default()
        }
    }

    fn step(&mut self, rule: &Numbers, now: u64, cost: u64) -> Answer {
        let mut second = self.second(rule, now);
        let admitted = second.remaining(rule) >= cost;
        if admitted {
            second.passed += cost;
            self.last = Some(second.clone());
        }
        Self::answer(rule, &second, now, admitted, cost)
    }

    fn look(&self, rule: &Numbers, now: u64) -> Answer {
        let second = self.second(rule, now);
        Self::answer(rule, &second, now, second.remaining(rule) > 0, 1)
    }

    fn settle(&mut self, charged_at: u64, cost: u64, actual: u64) {
        let Some(last) = &mut self.last else {
            return;
        };
        if last.number == charged_at / SECOND {
            last.passed = last.passed.saturating_sub(cost).saturating_add(actual);
        }
    }
}

fn settings() -> impl Strategy<Value = Setting> {
    let amounts = prop_oneof![
        4 => 1..60_u64,
        2 => prop::sample::select(vec![200, 1000, 999_983, 10_000_000_000]),
        1 => 1..=1_u64 << 32,
    ];
    let periods = prop_oneof![
        6 => Just(SECOND),
        2 => prop::sample::select(vec![7, 60 * SECOND, 3 * SECOND / 10, 3_333_333_333]),
        1 => 1..20 * SECOND,
    ];
    let overs = prop_oneof![
        3 => Just(10 * SECOND),
        3 => (1..20_u64).prop_map(|seconds| seconds * SECOND),
        1 => 1..20 * SECOND,
    ];
    let colds = prop_oneof![
        4 => Just(3000),
        2 => prop::sample::select(vec![1100, 1500, 2000, 2500, 7000, 20_000]),
        1 => 1001..50_000_u64,
    ];
    (amounts, periods, overs, colds)
        .prop_map(|(amount, period, over, cold)| Setting {
            amount,
            period,
            over,
            cold,
        })
        .prop_filter("a valid rule", |setting| {
            // Keeps the oracle fast, because it goes through every second until the key is cold.
            setting.over / (setting.cold - 1000) < SECOND / 5 && setting.try_rule().is_ok()
        })
}

#[derive(Clone, Debug)]
enum Op {
    Spend { wait: Wait, cost: RequestCost },
    Look(Wait),
    Back(u64),
    Settle(RequestCost),
}

#[derive(Clone, Debug)]
enum Wait {
    None,
    Nanos(u64),
    /// To the start of a second, or a nanosecond less or more.
    Seconds(u64, i64),
}

#[derive(Clone, Debug)]
enum RequestCost {
    Units(u64),
    /// The last remaining units plus this many.
    Remaining(u64),
    /// A part of the last remaining units.
    Part(u64),
}

fn timelines() -> impl Strategy<Value = Vec<Op>> {
    let wait = || {
        prop_oneof![
            3 => Just(Wait::None),
            3 => (0..SECOND).prop_map(Wait::Nanos),
            4 => (0..2_u64, -1..=1_i64).prop_map(|(seconds, more)| Wait::Seconds(seconds, more)),
            1 => (0..30_u64, -1..=1_i64).prop_map(|(seconds, more)| Wait::Seconds(seconds, more)),
            1 => (0..200 * 365 * 86_400 * SECOND).prop_map(Wait::Nanos),
        ]
    };
    let cost = || {
        prop_oneof![
            2 => (0..5_u64).prop_map(RequestCost::Units),
            6 => (0..2_u64).prop_map(RequestCost::Remaining),
            3 => (1..20_u64).prop_map(RequestCost::Part),
            1 => (1..=u64::MAX).prop_map(RequestCost::Units),
        ]
    };
    let op = prop_oneof![
        12 => (wait(), cost()).prop_map(|(wait, cost)| Op::Spend { wait, cost }),
        2 => wait().prop_map(Op::Look),
        1 => (0..5 * SECOND).prop_map(Op::Back),
        1 => cost().prop_map(Op::Settle),
    ];
    prop::collection::vec(op, 1..80)
}

proptest! {
    #[test]
    fn equals_the_oracle(setting in settings(), begin in beginnings(), ops in timelines()) {
        let (rule, setting) = (setting.try_rule().unwrap(), setting.numbers());
        let (mut state, mut oracle) = (None, Oracle::default());
        let (mut now, mut remaining) = (begin.as_nanos(), 0);
        let mut charge: Option<Charge> = None;
        for op in ops {
            let waits = |now: u64, wait: &Wait| {
                let later = match *wait {
                    Wait::None => now,
                    Wait::Nanos(nanos) => now.saturating_add(nanos),
                    Wait::Seconds(seconds, more) => {
                        ((now / SECOND + seconds) * SECOND).saturating_add_signed(more).max(now)
                    }
                };
                later.min(i64::MAX as u64)
            };
            let units = |cost: &RequestCost| match *cost {
                RequestCost::Units(units) => units,
                RequestCost::Remaining(more) => remaining + more,
                RequestCost::Part(part) => remaining / part,
            };
            match op {
                Op::Spend { wait, cost } => {
                    now = waits(now, &wait);
                    let cost = units(&cost).max(1);
                    let unspent = state;
                    let step = rule.step(&mut state, at(now), Cost::new(cost).unwrap());
                    let decision = step.decision();
                    prop_assert_eq!(Answer::of(&decision), oracle.step(&setting, now, cost));
                    prop_assert_eq!(matches!(step, Step::Kept(_)), unspent == state);
                    charge = { decision }.take_charge().or(charge);
                    remaining = decision.remaining().unwrap();
                }
                Op::Look(wait) => {
                    now = waits(now, &wait);
                    let look = rule.look(state.as_ref(), at(now));
                    prop_assert_eq!(Answer::of(&look), oracle.look(&setting, now));
                    remaining = look.remaining().unwrap();
                }
                Op::Back(nanos) => now = now.saturating_sub(nanos),
                Op::Settle(actual) => {
                    if let Some(charge) = charge.take() {
                        let actual = units(&actual);
                        rule.settle(&mut state, &charge, at(now), actual);
                        oracle.settle(charge.at.as_nanos(), charge.cost, actual);
                        prop_assert_eq!(Answer::of(&rule.look(state.as_ref(), at(now))), oracle.look(&setting, now));
                    }
                }
            }
        }
    }

    #[test]
    fn laws_hold(begin in beginnings(), first in 0..6_usize, ops in ops(SECOND, 200)) {
        let mut rules = [
            "200/s",
            "200/s over=2s cold=1.5",
            "100/3s over=1m cold=30",
            "4294967291/s",
            "100000/1m over=1h",
            "3/s",
        ]
        .map(|text| rule(&format!("warm-up {text}")));
        rules.rotate_left(first);
        hold(&rules, KEEPS, begin, &ops);
    }

    /// Any bytes found under a key neither panic nor admit without a limit.
    #[test]
    fn any_bytes_are_a_state_or_an_error(
        second in 0..=u64::MAX / SECOND, passed: u64, nanos: u64, part: u32, now: u64, cost: u64, rest: Vec<u8>,
    ) {
        let mut bytes = vec![0x39];
        for mut number in [second, passed, nanos, u64::from(part)] {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        let charge = Charge::new(at(now), cost).with_delay(Some(Duration::MAX));
        prop_assert!(WarmUpState::from_bytes(&bytes).is_ok());
        let with_rest = [&[0x39], &rest[..]].concat();
        for bytes in [bytes, with_rest] {
            let Ok(read) = WarmUpState::from_bytes(&bytes) else {
                continue;
            };
            for text in ["warm-up 200/s", "warm-up 1099511627776/s over=20000d cold=1000", "warm-up 4294967296/3906251ns cold=1.001"] {
                let (rule, mut state) = (rule(text), Some(read));
                rule.forgettable_at(&read);
                rule.look(state.as_ref(), at(now));
                rule.settle(&mut state, &charge, at(now), passed);
                let decision = spend(&rule, &mut state, now, cost.max(1));
                prop_assert!(decision.remaining() <= decision.limit());
                prop_assert!(!decision.is_admitted() || cost <= rule.capacity());
                rule.settle(&mut state, &charge, at(now), u64::MAX);
                rule.look(state.as_ref(), at(now));
            }
        }
        prop_assert!(WarmUpState::from_bytes(&rest).is_err() || rest.first() == Some(&0x39));
    }

    /// An amount above 2^32 that shares a factor of 512 with the nanoseconds of a second is exact.
    #[test]
    fn a_large_amount_that_can_be_reduced_warms_exactly(
        amount in 1_u64 << 24..=1 << 31, parts in prop::collection::vec(0..4_u64, 1..40),
    ) {
        let setting = Setting { amount: 512 * amount, period: SECOND, over: 10 * SECOND, cold: 3000 };
        let (rule, mut state, mut oracle) = (setting.try_rule().unwrap(), None, Oracle::default());
        let setting = setting.numbers();
        for (second, part) in parts.into_iter().enumerate() {
            let now = BEGIN + second as u64 * SECOND;
            let look = rule.look(state.as_ref(), at(now)).remaining().unwrap();
            let exact = oracle.look(&setting, now).remaining;
            prop_assert_eq!(look, exact);
            let cost = (exact / 4 * part).max(1);
            spend(&rule, &mut state, now, cost);
            oracle.step(&setting, now, cost);
        }
    }

    /// Warmth carries over as time, and the calls of the last second as calls.
    #[test]
    fn a_rule_change_admits_no_extra_units(
        old in settings(), new in settings(), seconds in prop::collection::vec(prop_oneof![3 => Just(4), 1 => 0..=4_u64], 0..30),
        gap in prop_oneof![0..3 * SECOND, 0..20 * SECOND],
    ) {
        let (rule, changed) = (old.try_rule().unwrap(), new.try_rule().unwrap());
        let longer = Setting { over: old.over * 3, ..old };
        let (old, new) = (old.numbers(), new.numbers());
        let (mut state, mut oracle, mut now) = (None, Oracle::default(), BEGIN);
        for part in seconds {
            let rest = rule.look(state.as_ref(), at(now)).remaining().unwrap();
            if let Some(cost) = Cost::new(rest / 4 * part) {
                rule.step(&mut state, at(now), cost);
                oracle.step(&old, now, cost.get());
            }
            now += SECOND;
        }
        if let Some(last) = oracle.last.clone() {
            let warmth = (&old.maximum - &last.stored) / &old.count;
            // Fractions are rounded to 2^-32 ns, and then down to the parts of a call that a
            // nanosecond brings.
            let tick = ratio(1, SECOND) / whole(1_u64 << 32);
            let least = &warmth - ratio(1, SECOND);
            let under = |warmth: BigRational| {
                let stored = &new.maximum - warmth.max(BigRational::zero()) * &new.count;
                let last = Second { stored: stored.max(BigRational::zero()), ..last.clone() };
                Oracle { last: Some(last) }.look(&new, now + gap).remaining
            };
            let look = changed.look(state.as_ref(), at(now + gap)).remaining().unwrap();
            // The bounds are not in this order: the warmest key cools while a colder one does not.
            let bounds = [least, warmth.clone(), warmth + tick].map(under);
            let (least, most) = (bounds.iter().min().unwrap(), bounds.iter().max().unwrap());
            prop_assert!((least..=most).contains(&&look), "{} not in {}..={}", look, least, most);
        }
        // In that second a longer warm-up treats the key as colder.
        if let (Some(last), Ok(longer)) = (oracle.last, longer.try_rule()) {
            let now = at(last.number * SECOND);
            let [before, after] = [rule, longer].map(|rule| rule.look(state.as_ref(), now).remaining());
            prop_assert!(after <= before, "{:?} after {:?}", after, before);
        }
    }
}

#[test]
fn an_exhausted_second_stays_exhausted_under_a_new_rule() {
    let (old, mut state) = (WarmUp::per_second(200), None);
    assert!(spend(&old, &mut state, BEGIN, 66).is_admitted());
    for text in ["100/s", "198/s", "60/s over=1s", "300/s cold=30 over=1h"] {
        let new = rule(&format!("warm-up {text}"));
        assert!(
            !spend(&new, &mut state, BEGIN + SECOND - 1, 1).is_admitted(),
            "{new}"
        );
    }
    let faster = WarmUp::per_second(300);
    let look = faster.look(state.as_ref(), at(BEGIN));
    assert_eq!(
        look.remaining(),
        Some(100 - 66),
        "a higher limit, equally cold"
    );
}

/// Under full load, the exact number of each second equals that of a plain simulation.
#[test]
fn two_hundred_a_second_starts_at_66_and_is_warm_after_about_ten_seconds() {
    let setting = Setting {
        amount: 200,
        period: SECOND,
        over: 10 * SECOND,
        cold: 3000,
    };
    let numbers = setting.numbers();
    assert_eq!(numbers.threshold, whole(1000));
    assert_eq!(numbers.maximum, whole(2000));
    assert_eq!(numbers.slope, ratio(1, 100_000));

    let (rule, mut state) = (WarmUp::per_second(200), None);
    // A plain simulation with the numbers above.
    let mut stored = whole(2000);
    let mut numbers = Vec::new();
    for second in 0..20 {
        let mut passed = 0;
        for call in 0..400 {
            // Calls are spread over the second.
            let now = BEGIN + second * SECOND + call * (SECOND / 400);
            passed += u64::from(spend(&rule, &mut state, now, 1).is_admitted());
        }
        let above = (&stored - whole(1000)).max(BigRational::zero());
        let rate = (ratio(1, 200) + ratio(1, 100_000) * above).recip();
        assert_eq!(passed, rate.floor().to_integer().to_u64().unwrap());
        let made = if stored <= whole(1000) || passed < 66 {
            whole(200)
        } else {
            BigRational::zero()
        };
        stored = ((stored + made).min(whole(2000)) - whole(passed)).max(BigRational::zero());
        numbers.push(passed);
    }
    assert_eq!(
        numbers[..12],
        [66, 69, 73, 77, 82, 88, 95, 105, 118, 137, 169, 200]
    );
    assert!(numbers[12..].iter().all(|passed| *passed == 200));
}

/// The trap: a warm-up that never warms, because a second at the cold rate adds more tokens than it
/// takes.
#[test]
fn a_key_warms_at_66_a_second_and_not_at_65() {
    let rule = WarmUp::per_second(200);
    // 65 tokens return before the next 65 are taken.
    for (each, after) in [(66, 200), (65, 69)] {
        let mut state = None;
        for second in 0..40 {
            assert!(spend(&rule, &mut state, BEGIN + second * SECOND, each).is_admitted());
        }
        let look = rule.look(state.as_ref(), at(BEGIN + 40 * SECOND));
        assert_eq!(look.remaining(), Some(after), "{each} a second");
    }
}

#[test]
fn every_rule_that_can_be_built_warms_under_full_load() {
    for text in [
        "3/s",
        "10/3s",
        "200/s",
        "1000/7s over=1s",
        "4/s cold=1.001",
        "1000/s cold=1000 over=1h",
        "10000000000/s over=1m cold=50",
    ] {
        let rule = rule(&format!("warm-up {text}"));
        let mut state = None;
        let seconds = rule.warms_over().as_secs() * 2 + 10;
        let mut best = 0;
        for second in 0..seconds {
            let now = BEGIN + second * SECOND;
            let rest = rule.look(state.as_ref(), at(now)).remaining().unwrap();
            assert!(spend(&rule, &mut state, now, rest).is_admitted());
            best = best.max(rest);
        }
        assert_eq!(best, rule.capacity(), "{rule}");
    }
}

#[test]
fn an_idle_key_becomes_cold_again() {
    let (rule, mut state) = (WarmUp::per_second(200), None);
    for second in 0..30 {
        let now = BEGIN + second * SECOND;
        while spend(&rule, &mut state, now, 1).is_admitted() {}
    }
    let warm = BEGIN + 29 * SECOND;
    let look = |seconds| rule.look(state.as_ref(), at(warm + seconds * SECOND));
    assert_eq!(look(1).remaining(), Some(200));
    let remaining: Vec<_> = (0..20).map(|n| look(n).remaining().unwrap()).collect();
    assert!(remaining[1..].is_sorted_by(|a, b| a >= b), "{remaining:?}");
    assert_eq!(remaining[19], 66);
    let reset = look(0).reset_after();
    let (early, due) = (reset.as_secs() - 1, reset.as_secs());
    assert!(look(early).reset_after() > Duration::ZERO && look(due).reset_after().is_zero());
    assert!(rule.forgettable_at(&state.unwrap()) == at(warm).saturating_add(reset));
}

/// A cost that neither this second nor the next has room for is refused for good, because the key
/// only cools.
#[test]
fn a_cost_above_the_cold_rate_waits_for_the_next_second_or_never_passes() {
    let (rule, mut state) = (WarmUp::per_second(200), None);
    let cold = spend(&rule, &mut state, BEGIN, 67);
    assert_eq!(
        (cold.verdict(), cold.retry_after()),
        (Verdict::Refuse, None)
    );
    assert_eq!((cold.remaining(), cold.limit()), (Some(66), Some(200)));

    assert!(spend(&rule, &mut state, BEGIN + 1, 66).is_admitted());
    let more = spend(&rule, &mut state, BEGIN + SECOND / 4, 69);
    assert_eq!(more.retry_after(), Some(Duration::from_millis(750)));
    assert_eq!(more.more_after(), Duration::from_millis(750));
    assert_eq!(spend(&rule, &mut state, BEGIN + 1, 70).retry_after(), None);
    assert_eq!(spend(&rule, &mut state, BEGIN + 1, 201).retry_after(), None);
    assert_eq!(
        spend(&rule, &mut state, BEGIN + 1, u64::MAX).retry_after(),
        None
    );
}

#[test]
fn looks_and_refusals_change_nothing() {
    let rule = WarmUp::per_second(200);
    let mut state = None;
    assert!(spend(&rule, &mut state, BEGIN, 66).is_admitted());
    let mut asked = state;
    for second in 0..6 {
        let now = BEGIN + second * SECOND;
        assert!(!spend(&rule, &mut asked, now, 201).is_admitted());
        rule.look(asked.as_ref(), at(now));
    }
    assert_eq!(asked, state);
    let later = BEGIN + 6 * SECOND;
    assert_eq!(
        rule.look(asked.as_ref(), at(later)),
        rule.look(state.as_ref(), at(later))
    );
}

#[test]
fn a_charge_is_settled_only_within_its_second() {
    let (rule, mut state) = (WarmUp::per_second(200), None);
    let first = spend(&rule, &mut state, BEGIN, 60).take_charge().unwrap();
    rule.settle(&mut state, &first, at(BEGIN + 5), 10);
    let look = |state: &Option<WarmUpState>, now| rule.look(state.as_ref(), at(now)).remaining();
    assert_eq!(look(&state, BEGIN), Some(56));

    let second = spend(&rule, &mut state, BEGIN, 1).take_charge().unwrap();
    rule.settle(&mut state, &second, at(BEGIN), 500);
    assert_eq!(look(&state, BEGIN), Some(0), "a forced charge");
    assert_eq!(look(&state, BEGIN + SECOND), Some(101), "1490 are stored");

    // No write since. The second ends for the key with the next write.
    let third = spend(&rule, &mut state, BEGIN + SECOND, 101)
        .take_charge()
        .unwrap();
    let before = state;
    rule.settle(&mut state, &first, at(BEGIN + SECOND), 0);
    rule.settle(&mut state, &first, at(BEGIN + SECOND), 1000);
    assert_eq!(state, before);
    rule.settle(&mut state, &third, at(BEGIN + SECOND), 0);
    assert_eq!(look(&state, BEGIN + SECOND), Some(101));
    rule.settle(&mut state, &third, at(BEGIN + SECOND), u64::MAX);
    rule.settle(&mut state, &third, at(BEGIN + SECOND), u64::MAX);
    assert_eq!(look(&state, BEGIN + SECOND), Some(0), "saturates");

    let mut unknown = None;
    rule.settle(&mut unknown, &third, at(BEGIN), 1000);
    assert_eq!(unknown, None);
}

#[test]
fn a_clock_that_steps_back_changes_nothing() {
    let (rule, mut state) = (WarmUp::per_second(200), None);
    let later = BEGIN + 3600 * SECOND;
    assert!(spend(&rule, &mut state, later, 66).is_admitted());
    let refused = spend(&rule, &mut state, BEGIN, 1);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(3601)));
    assert_eq!(refused.reset_after(), Duration::from_secs(3602));
    assert!(!spend(&rule, &mut state, later + SECOND - 1, 1).is_admitted());
    assert!(spend(&rule, &mut state, later + SECOND, 69).is_admitted());
}

#[test]
fn extreme_values_neither_overflow_nor_panic() {
    for text in [
        "warm-up 1099511627776/s cold=1000 over=20000d",
        "warm-up 1099511627776/s cold=1.001 over=26d",
        "warm-up 4294967296/3906251ns over=26000d",
        "warm-up 4294967291/1000000001ns over=26000d",
        "warm-up 10000000000/s",
    ] {
        let rule = rule(text);
        let most = Quota::MAX_AMOUNT;
        for begin in [0, (1 << 63) - 1] {
            let mut state = None;
            let look = rule.look(None, at(begin));
            let rest = look.remaining().unwrap();
            let exact =
                whole(rule.quota().amount()) * whole(SECOND) / whole(rule.quota().period_nanos());
            let cold = (exact * ratio(1000, rule.cold_thousandths())).floor();
            assert_eq!(BigRational::from_integer(rest.into()), cold, "{rule}");
            let charge = spend(&rule, &mut state, begin, rest).take_charge().unwrap();
            assert!(!spend(&rule, &mut state, begin, 1).is_admitted());
            assert!(!spend(&rule, &mut state, u64::MAX, most + 1).is_admitted());
            assert!(!spend(&rule, &mut state, u64::MAX, u64::MAX).is_admitted());
            rule.settle(&mut state, &charge, at(begin), u64::MAX);
            let warm = rule.look(state.as_ref(), at(begin + SECOND));
            assert!(warm.remaining() >= look.remaining() && warm.remaining() <= warm.limit());
            let old = rule.look(state.as_ref(), Timestamp::MAX);
            assert!(old.is_admitted());
        }
    }
}

#[test]
fn a_thousand_years_are_one_step() {
    let rule = rule("warm-up 10/3s over=1000d cold=2");
    let mut state = None;
    for second in 0..100 {
        let now = BEGIN + second * SECOND;
        let rest = rule.look(state.as_ref(), at(now)).remaining().unwrap();
        spend(&rule, &mut state, now, rest);
    }
    let last = BEGIN + 99 * SECOND;
    let reset = rule.look(state.as_ref(), at(last)).reset_after();
    assert!(reset > Duration::from_secs(20));
    assert!(
        rule.look(state.as_ref(), at(u64::MAX))
            .reset_after()
            .is_zero()
    );
}

#[test]
fn settings_that_cannot_warm_are_errors() {
    for (text, column, word) in [
        ("warm-up", 8, "ends too early"),
        ("warm-up 0/s", 9, "is 0"),
        (
            "warm-up 200/s cold=1",
            20,
            "a cold factor of 1: expected more than 1",
        ),
        ("warm-up 200/s cold=0", 20, "a cold factor of 0"),
        ("warm-up 200/s cold=0.5", 20, "a cold factor of 0.5"),
        ("warm-up 200/s cold=1000.5", 20, "a cold factor of 1000.5"),
        ("warm-up 200/s cold=2.0005", 20, "at most three decimals"),
        ("warm-up 200/s cold=-3", 20, "no value for `cold`"),
        ("warm-up 200/s over=0s", 20, "a warm-up over 0s"),
        ("warm-up 200/s over=ten", 20, "no value for `over`"),
        (
            "warm-up 200/s over=1us",
            20,
            "less than one call lies between",
        ),
        ("warm-up 200/s over=27000d", 20, "beyond 73 years"),
        ("warm-up 200/s cold=1.001 over=27d", 31, "beyond 73 years"),
        ("  warm-up  2/s", 12, "less than one call a second"),
        ("warm-up 179/1m", 9, "at least 3 a second"),
        ("warm-up 200/s cold=200.001", 9, "at least 200.001 a second"),
        ("warm-up 200/s warm=3", 15, "unknown setting `warm`"),
        ("warm-up 200/s over=5s over=6s", 23, "set twice"),
        (
            "warm-up 4294967297/s",
            9,
            "is 4294967297 for 1000000000 ns when it is reduced",
        ),
        (
            "token-bucket 5/s & warm-up 2/s",
            28,
            "less than one call a second",
        ),
    ] {
        let error = text.parse::<AnyRule>().unwrap_err();
        assert_eq!(error.column(), Some(column), "{text}: {error}");
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
    assert!(WarmUp::try_new(Quota::per_second(2)).is_err());
    assert!(WarmUp::try_from(Quota::per_minute(179)).is_err());
    let rule = WarmUp::per_second(5);
    assert!(rule.try_cold(1).is_err() && rule.try_cold(6).is_err());
    assert!(rule.try_over(Duration::ZERO).is_err() && rule.try_over(Duration::MAX).is_err());
    assert!(WarmUp::try_with(Quota::per_second(2), Duration::from_secs(10), 2000).is_ok());
    assert!(WarmUp::try_with(Quota::per_second(2), Duration::from_secs(10), u64::MAX).is_err());
}

#[test]
#[should_panic(expected = "`warm-up-spaced`, which has no seconds")]
fn a_literal_rate_that_never_warms_panics() {
    let _ = WarmUp::per_second(2);
}

#[test]
fn rules_print_what_parses_back() {
    for text in [
        "warm-up 200/s",
        "warm-up 200/s over=1m",
        "warm-up 200/s cold=2.5",
        "warm-up 6000/1m over=1500ms cold=1.125",
        "warm-up 2/s cold=1.05",
    ] {
        let rule = rule(text);
        assert_eq!(rule.to_string(), text);
        assert_eq!(rule.to_string().parse::<WarmUp>().unwrap(), rule);
        assert_eq!(format!("{rule:?}"), format!("WarmUp({text})"));
    }
    let defaults = rule("warm-up 200/s cold=3.000 over=10000ms");
    assert_eq!(defaults, WarmUp::per_second(200));
    assert_eq!(
        rule("warm-up 6000/1m over=5s cold=4"),
        WarmUp::per_minute(6000)
            .over(Duration::from_secs(5))
            .cold(4)
    );
    assert_eq!(WarmUp::per_hour(720_000).capacity(), 200);
    assert_eq!(WarmUp::per_day(17_280_000).capacity(), 200);
}

#[test]
fn a_state_is_small() {
    assert_eq!(size_of::<Option<WarmUpState>>(), 28);
}
