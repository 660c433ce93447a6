//! The spaced warm-up against an oracle that counts permits and areas as Guava describes them, in
//! rationals.
//!
//! The oracle also counts how far the implementation may be from it: a call and a pause are rounded
//! by a few ticks of 2⁻³² ns, which later ones carry on.

use std::time::Duration;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use support::rational::{ratio, whole};
use tollgate::{
    AnyRule, Charge, Cost, Decision, Quota, Timestamp, Verdict,
    algorithm::{Algorithm, Codec, Step, WarmUpSpaced},
};

use crate::algorithms::laws::{Keeps, beginnings, hold, ops};

type WarmUpSpacedState = <WarmUpSpaced as Algorithm>::State;

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_767_235_685 * SECOND;
/// A call is paid by those behind it.
const KEEPS: Keeps = Keeps { ..Keeps::ALL };

type State = Option<WarmUpSpacedState>;

fn tick() -> BigRational {
    ratio(1, 1_u64 << 32)
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn rule(text: &str) -> WarmUpSpaced {
    format!("warm-up-spaced {text}").parse().unwrap()
}

fn spend(rule: &WarmUpSpaced, state: &mut State, now: u64, cost: u64) -> Decision {
    rule.step(state, at(now), Cost::new(cost).unwrap())
        .decision()
}

/// The wait that an admitted call was told, in nanoseconds.
fn wait(decision: &Decision) -> u64 {
    let charge = { *decision }.take_charge().expect("admitted");
    charge.delay.unwrap().as_nanos() as u64
}

/// The numbers of a rule.
#[derive(Clone, Copy, Debug)]
struct Setting {
    amount: u64,
    period: u64,
    over: u64,
    cold: u64,
    max_wait: u64,
}

impl Setting {
    fn try_rule(&self) -> Result<WarmUpSpaced, tollgate::Error> {
        let quota = Quota::try_new(self.amount, Duration::from_nanos(self.period))?;
        WarmUpSpaced::new(quota)
            .try_over(Duration::from_nanos(self.over))?
            .try_cold_thousandths(self.cold)?
            .try_max_wait(Duration::from_nanos(self.max_wait))
    }

    fn numbers(&self) -> Numbers {
        let stable = ratio(self.period, self.amount);
        let (over, factor) = (whole(self.over), ratio(self.cold, 1000));
        // As times, of which the first is rounded down to a nanosecond, and the second up.
        let threshold = (&over / (&factor - whole(1))).floor();
        let above = (&over * whole(2) / (&factor + whole(1))).ceil();
        let threshold = threshold / &stable;
        let above = above / &stable;
        let maximum = &threshold + &above;
        Numbers {
            slope: (&stable * &factor - &stable) / &above,
            per_permit: over / &maximum,
            max_wait: whole(self.max_wait),
            stable,
            above,
            threshold,
            maximum,
            factor,
        }
    }
}

/// In permits and nanoseconds.
#[derive(Clone, Debug)]
struct Numbers {
    stable: BigRational,
    threshold: BigRational,
    maximum: BigRational,
    /// From the threshold to the maximum.
    above: BigRational,
    slope: BigRational,
    /// The time that an idle key takes for a permit.
    per_permit: BigRational,
    max_wait: BigRational,
    factor: BigRational,
}

impl Numbers {
    /// The area under the curve for the permits from `stored` down.
    fn area(&self, stored: &BigRational, permits: &BigRational) -> BigRational {
        let interval = |stored: &BigRational| {
            let above = (stored - &self.threshold).max(BigRational::zero());
            &self.stable + &self.slope * above
        };
        let lower = stored - permits;
        let knee = lower
            .clone()
            .max(self.threshold.clone())
            .min(stored.clone());
        let trapezoid = |from: &BigRational, to: &BigRational| {
            (interval(from) + interval(to)) / whole(2) * (from - to)
        };
        trapezoid(stored, &knee) + trapezoid(&knee, &lower)
    }
}

#[derive(Clone, Debug)]
struct Oracle {
    written: Option<u64>,
    free: BigRational,
    stored: BigRational,
    /// The greatest distance of the implementation's from these.
    free_off: BigRational,
    stored_off: BigRational,
}

impl Oracle {
    fn new(rule: &Numbers) -> Self {
        Self {
            written: None,
            free: BigRational::zero(),
            stored: rule.maximum.clone(),
            free_off: BigRational::zero(),
            stored_off: BigRational::zero(),
        }
    }

    fn at(&self, now: u64) -> BigRational {
        whole(self.written.map_or(now, |written| written.max(now)))
    }

    fn resync(&self, rule: &Numbers, now: u64) -> Self {
        let mut later = self.clone();
        let now = self.at(now);
        let idle = &now - &self.free;
        // The implementation's may be idle where this one is not quite, or the other way round.
        if idle > -&self.free_off {
            later.stored_off += &self.free_off / &rule.per_permit + tick() / &rule.stable;
        }
        if idle > BigRational::zero() {
            later.stored += &idle / &rule.per_permit;
            if &later.stored - &later.stored_off > rule.maximum {
                later.stored_off = BigRational::zero();
            }
            later.stored = later.stored.min(rule.maximum.clone());
            later.free_off = (&self.free_off - idle).max(BigRational::zero());
            later.free = now;
        }
        later
    }

    fn delay(&self, now: u64) -> BigRational {
        &self.free - self.at(now)
    }

    /// When nobody is waited for and the maximum is stored, and how far off that may be.
    fn reset(&self, rule: &Numbers) -> (BigRational, BigRational) {
        let until = (&rule.maximum - &self.stored) * &rule.per_permit;
        let off = &self.free_off + &self.stored_off * &rule.per_permit + tick() * whole(2);
        (&self.free + until, off)
    }

    fn spend(&mut self, rule: &Numbers, now: u64, cost: u64) {
        *self = self.resync(rule, now);
        self.written = self.at(now).to_integer().to_u64();
        let cost = whole(cost);
        let stored = self.stored.clone().min(cost.clone());
        let fresh = &cost - &stored;
        self.free += rule.area(&self.stored, &stored) + fresh * &rule.stable;
        self.stored -= stored;
        let share = (cost / &rule.above).min(whole(1));
        let steeper = (&rule.factor - whole(1)) * share * &rule.stable;
        self.free_off += steeper * &self.stored_off + tick() * (&rule.factor + whole(3));
        self.stored_off += tick() * whole(2) / &rule.stable;
    }
}

fn settings() -> impl Strategy<Value = Setting> {
    let amounts = prop_oneof![
        4 => 1..20_u64,
        2 => prop::sample::select(vec![60, 200, 999_983, 10_000_000_000]),
        1 => 1..=1_u64 << 40,
    ];
    let periods = prop_oneof![
        6 => Just(SECOND),
        2 => prop::sample::select(vec![7, 60 * SECOND, 3 * SECOND / 10, 3_333_333_333]),
        1 => 1..20 * SECOND,
    ];
    let times = || {
        prop_oneof![
            3 => Just(10 * SECOND),
            3 => (1..20_u64).prop_map(|seconds| seconds * SECOND),
            1 => 1..20 * SECOND,
        ]
    };
    let colds = prop_oneof![
        4 => Just(3000),
        2 => prop::sample::select(vec![1100, 1500, 2000, 2500, 7000, 20_000]),
        1 => 1001..1_000_000_u64,
    ];
    (amounts, periods, times(), colds, times())
        .prop_map(|(amount, period, over, cold, max_wait)| Setting {
            amount,
            period,
            over,
            cold,
            max_wait,
        })
        .prop_filter("a rule that can be", |setting| setting.try_rule().is_ok())
}

#[derive(Clone, Debug)]
enum Op {
    Spend { wait: Wait, cost: RequestCost },
    Look(Wait),
    Back(u64),
}

#[derive(Clone, Debug)]
enum Wait {
    None,
    Nanos(u64),
    /// As long as the last call was told, and a nanosecond less or more.
    Told(i64),
}

#[derive(Clone, Debug)]
enum RequestCost {
    Units(u64),
    /// A part of the capacity.
    Part(u64),
    Any(u64),
}

fn timelines() -> impl Strategy<Value = Vec<Op>> {
    let wait = || {
        prop_oneof![
            4 => Just(Wait::None),
            4 => (0..SECOND).prop_map(Wait::Nanos),
            2 => (0..20 * SECOND).prop_map(Wait::Nanos),
            1 => (0..200 * 365 * 86_400 * SECOND).prop_map(Wait::Nanos),
            4 => (-1..=1_i64).prop_map(Wait::Told),
        ]
    };
    let cost = prop_oneof![
        6 => (1..5_u64).prop_map(RequestCost::Units),
        4 => (1..30_u64).prop_map(RequestCost::Part),
        1 => (1..=u64::MAX).prop_map(RequestCost::Any),
    ];
    let op = prop_oneof![
        12 => (wait(), cost).prop_map(|(wait, cost)| Op::Spend { wait, cost }),
        2 => wait().prop_map(Op::Look),
        1 => (0..5 * SECOND).prop_map(Op::Back),
    ];
    prop::collection::vec(op, 1..60)
}

fn nanos(number: &BigRational) -> BigInt {
    number.ceil().to_integer()
}

/// Compares a decision with the key as it stood for the call, and as it left it.
fn compare(
    decision: &Decision,
    rule: &Numbers,
    [before, after]: [&Oracle; 2],
    now: u64,
    capacity: u64,
    fits: bool,
) -> Result<(), TestCaseError> {
    let stalled = before.at(now) - whole(now);
    let near = |ours: Duration, exact: &BigRational, off: &BigRational| {
        let ours = BigInt::from(ours.as_nanos());
        (nanos(&(exact - off)).max(BigInt::zero())..=nanos(&(exact + off)).max(BigInt::zero()))
            .contains(&ours)
    };
    let exact = before.delay(now);
    let may = fits && &exact - &before.free_off <= rule.max_wait;
    let must = fits && &exact + &before.free_off <= rule.max_wait;
    prop_assert!(may || !decision.is_admitted(), "{decision:?}, {exact}");
    prop_assert!(!must || decision.is_admitted(), "{decision:?}, {exact}");
    match decision.verdict() {
        Verdict::Allow => prop_assert!(near(Duration::ZERO, &exact, &before.free_off)),
        Verdict::Delay(delay) => prop_assert!(
            near(delay, &exact, &before.free_off),
            "{:?} for {}",
            delay,
            exact
        ),
        _ if fits => {
            let beyond = &exact - &rule.max_wait + &stalled;
            prop_assert!(near(
                decision.retry_after().unwrap(),
                &beyond,
                &before.free_off
            ));
        }
        _ => prop_assert_eq!(decision.retry_after(), None),
    }
    let beyond = after.delay(now) - &rule.max_wait;
    if beyond > after.free_off {
        prop_assert_eq!(decision.remaining(), Some(0));
        prop_assert!(near(
            decision.more_after(),
            &(beyond + &stalled),
            &after.free_off
        ));
    } else if beyond <= -&after.free_off {
        prop_assert_eq!(decision.remaining(), Some(capacity));
        prop_assert_eq!(decision.more_after(), Duration::ZERO);
    }
    let (reset, off) = after.reset(rule);
    if after.written.is_none() {
        prop_assert_eq!(decision.reset_after(), Duration::ZERO);
    } else {
        let reset = reset - whole(now);
        prop_assert!(
            near(decision.reset_after(), &reset, &off),
            "{decision:?}, {reset}"
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn equals_the_oracle(setting in settings(), begin in beginnings(), ops in timelines()) {
        let (rule, numbers) = (setting.try_rule().unwrap(), setting.numbers());
        let exact = numbers.maximum.floor().to_integer();
        let capacity = exact.to_u64().unwrap_or(u64::MAX).clamp(1, Quota::MAX_AMOUNT);
        prop_assert_eq!(rule.capacity(), capacity);
        let (mut state, mut oracle) = (None, Oracle::new(&numbers));
        let (mut now, mut told) = (begin.as_nanos(), 0);
        for op in ops {
            let waits = |now: u64, wait: &Wait| {
                let later = match *wait {
                    Wait::None => now,
                    Wait::Nanos(nanos) => now.saturating_add(nanos),
                    Wait::Told(more) => now.saturating_add(told).saturating_add_signed(more),
                };
                later.min(i64::MAX as u64)
            };
            match op {
                Op::Spend { wait, cost } => {
                    now = waits(now, &wait);
                    let cost = match cost {
                        RequestCost::Units(units) | RequestCost::Any(units) => units,
                        RequestCost::Part(part) => (capacity / part).max(1),
                    };
                    let unspent = state;
                    let step = rule.step(&mut state, at(now), Cost::new(cost).unwrap());
                    let decision = step.decision();
                    prop_assert_eq!(matches!(step, Step::Kept(_)), unspent == state);
                    let before = oracle.resync(&numbers, now);
                    let mut after = before.clone();
                    if decision.is_admitted() {
                        after.spend(&numbers, now, cost);
                        oracle = after.clone();
                        told = { decision }.take_charge().unwrap().delay.unwrap().as_nanos() as u64;
                    } else {
                        told = decision.retry_after().map_or(0, |wait| wait.as_nanos().min(1 << 62) as u64);
                    }
                    compare(&decision, &numbers, [&before, &after], now, capacity, cost <= capacity)?;
                }
                Op::Look(wait) => {
                    now = waits(now, &wait);
                    let look = rule.look(state.as_ref(), at(now));
                    let before = oracle.resync(&numbers, now);
                    compare(&look, &numbers, [&before; 2], now, capacity, true)?;
                }
                Op::Back(nanos) => now = now.saturating_sub(nanos),
            }
            if oracle.free_off > whole(1000) {
                // After very many pauses in a row the comparison says nothing any more.
                break;
            }
        }
    }
}

/// A state's numbers as a store keeps them: the next free departure and the warmth, in nanoseconds.
fn read(state: &State) -> [BigRational; 2] {
    let bytes = state.as_ref().unwrap().to_bytes();
    let (mut numbers, mut number, mut shift) = (Vec::new(), 0_u64, 0);
    for byte in &bytes[1..] {
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    let span = |at: usize| whole(numbers[at]) + whole(numbers[at + 1]) * tick();
    [whole(numbers[0]) + span(1), span(3)]
}

proptest! {
    /// Later and colder by a few ticks, never earlier or warmer; and forgotten just when nothing of
    /// it is left.
    #[test]
    fn every_step_is_rounded_in_favour_of_the_limit(
        setting in settings(), calls in prop::collection::vec((1..6_u64, 0..3 * SECOND, any::<bool>()), 1..20),
    ) {
        let rule = Setting { max_wait: 1 << 61, ..setting }.try_rule().unwrap();
        let numbers = setting.numbers();
        let most = &numbers.maximum * &numbers.stable;
        let (mut state, mut now) = (None, BEGIN);
        for (cost, pause, at_once) in calls {
            let cost = cost.min(rule.capacity());
            let mut before = Oracle::new(&numbers);
            if let Some(known) = &state {
                let [free, warmth] = read(&Some(*known));
                if !at_once {
                    now = nanos(&free).to_u64().unwrap() + pause;
                }
                let stored = (&most - warmth) / &numbers.stable;
                before = Oracle { written: Some(BEGIN), free, stored: stored.max(BigRational::zero()), ..before };
            }
            before.spend(&numbers, now, cost);
            spend(&rule, &mut state, now, cost);
            let [free, warmth] = read(&state);
            let later = free - &before.free;
            // A tick of warmth less makes the line higher.
            let allowed = (&numbers.factor * whole(2) + whole(2)) * tick();
            prop_assert!(later >= BigRational::zero() && later <= allowed, "{later}");
            let colder = &most - &before.stored * &numbers.stable - warmth.min(most.clone());
            prop_assert!(colder >= BigRational::zero() && colder <= tick() * whole(3), "{colder}");

            let end = rule.forgettable_at(&state.unwrap());
            let [known, unknown] = [state, None].map(|mut state| {
                rule.step(&mut state, end, Cost::ONE);
                read(&state)
            });
            prop_assert_eq!(known, unknown);
        }
    }
}

/// A call, and the departure that it was promised.
#[derive(Debug)]
struct Promised {
    /// `None` if it was settled.
    charge: Option<Charge>,
    departs: u64,
    /// The number of units that keep their distance behind it.
    keeps: u64,
}

/// Calls at one key, some of which are cancelled or corrected, in any order.
struct Calls {
    rule: WarmUpSpaced,
    stable: BigRational,
    state: State,
    now: u64,
    told: Vec<Promised>,
}

impl Calls {
    fn new(setting: Setting) -> Self {
        Self {
            rule: Setting {
                max_wait: 100 * SECOND,
                ..setting
            }
            .try_rule()
            .unwrap(),
            stable: ratio(setting.period, setting.amount),
            state: None,
            now: BEGIN,
            told: Vec::new(),
        }
    }

    fn call(&mut self, cost: u64) {
        if let Some(charge) = spend(&self.rule, &mut self.state, self.now, cost).take_charge() {
            let departs = self.now + charge.delay.unwrap().as_nanos() as u64;
            self.told.push(Promised {
                charge: Some(charge),
                departs,
                keeps: cost,
            });
        }
    }

    /// Corrects the call that is `behind` ones before the last.
    fn settle(&mut self, behind: usize, cost: u64) -> Result<(), TestCaseError> {
        let Some(index) = self.told.len().checked_sub(1 + behind) else {
            return Ok(());
        };
        let call = &mut self.told[index];
        let Some(charge) = call.charge.take() else {
            return Ok(());
        };
        let (unsettled, actual) = (self.state, cost % (charge.cost + 1));
        self.rule
            .settle(&mut self.state, &charge, at(self.now), actual);
        if self.state == unsettled {
            // Who keeps a charge has not settled it.
            call.charge = (actual == charge.cost).then_some(charge);
            return Ok(());
        }
        prop_assert_eq!(behind, 0, "a call in the middle: {:?}", charge);
        call.keeps = if call.departs <= self.now {
            actual.max(1)
        } else {
            actual
        };
        if call.keeps == 0 {
            self.told.pop();
        }
        Ok(())
    }

    fn check_distances(&self) -> Result<(), TestCaseError> {
        for pair in self.told.windows(2) {
            let distance = whole(pair[1].departs) - whole(pair[0].departs);
            let kept = whole(pair[0].keeps) * &self.stable;
            // Departures are told in whole nanoseconds.
            prop_assert!(distance > kept - whole(1), "{:?}", pair);
        }
        Ok(())
    }
}

/// A call that is given back from a warmth that was cut leaves the key colder than it was. A call
/// in the middle would take just as long as it and the call behind it together, if it came to that
/// key.
#[test]
fn a_colder_key_gives_nothing_back_by_coincidence() {
    let setting = Setting {
        amount: 60,
        period: 60 * SECOND,
        over: 8 * SECOND,
        cold: 3000,
        max_wait: 10 * SECOND,
    };
    let mut calls = Calls::new(setting);
    for cost in [3, 1, 5, 2] {
        calls.call(cost);
    }
    calls.settle(0, 0).unwrap();
    calls.call(1);
    calls.settle(1, 1).unwrap();
    calls.call(1);
    calls.check_distances().unwrap();
}

proptest! {
    #[test]
    fn laws_hold(begin in beginnings(), first in 0..6_usize, ops in ops(10 * SECOND, 8)) {
        let mut rules = [
            "2/s over=4s",
            "200/s cold=2.5 max-wait=1s",
            "1/365d",
            "9999999967/s over=7s",
            "3/s over=333333333ns cold=1.001 max-wait=1h",
            "1099511627776/s over=20000d max-wait=1ns",
        ]
        .map(rule);
        rules.rotate_left(first);
        hold(&rules, KEEPS, begin, &ops);
    }

    /// Calls that are cancelled or corrected, in any order: whatever was told and stands keeps its
    /// distance.
    #[test]
    fn distances_are_kept_whatever_is_given_back(
        setting in settings(), ops in prop::collection::vec((0..4_u8, 0..8_usize, 1..6_u64, 0..3_u64), 1..60),
    ) {
        let mut calls = Calls::new(setting);
        let stable = calls.stable.to_integer().to_u64().unwrap_or(0);
        for (what, which, cost, wait) in ops {
            match what {
                0 => calls.now += (stable * wait / 2).min(10 * SECOND),
                1 | 2 => calls.call(cost),
                // The last ones most of the time.
                _ => calls.settle(which / 2, cost)?,
            }
        }
        calls.call(1);
        calls.check_distances()?;
    }

    /// A refunded call leaves the key as if the call had not been made, or colder.
    #[test]
    fn a_place_given_back_speeds_nobody_up(
        setting in settings(), before in prop::collection::vec((1..6_u64, 0..3_u64), 1..12),
        cost in 1..6_u64, later in 0..=100_u64, after in prop::collection::vec((1..6_u64, 0..5_u64), 1..12),
    ) {
        let rule = Setting { max_wait: 100 * SECOND, ..setting }.try_rule().unwrap();
        let interval = setting.period / setting.amount;
        let (mut state, mut now) = (None, BEGIN);
        for (cost, wait) in before {
            now += interval.min(SECOND) * wait;
            spend(&rule, &mut state, now, cost);
        }
        let mut without = state;
        let Some(charge) = spend(&rule, &mut state, now, cost).take_charge() else {
            return Ok(());
        };
        let delay = charge.delay.unwrap().as_nanos() as u64;
        // At some time before its departure.
        now += (u128::from(delay) * u128::from(later) / 101) as u64;
        let told = state;
        rule.settle(&mut state, &charge, at(now), 0);
        if delay == 0 || setting.amount > setting.period {
            prop_assert!(cost > 1 || state == told, "it has departed");
            return Ok(());
        }
        let [ours, theirs] = [&state, &without].map(|state| rule.look(state.as_ref(), at(now)));
        let same = ours == theirs;
        for (cost, wait) in after {
            now += interval.min(SECOND) * wait;
            let [ours, theirs] = [&mut state, &mut without].map(|state| spend(&rule, state, now, cost));
            if same {
                prop_assert_eq!(ours, theirs);
            } else if wait > 0 || !ours.is_admitted() {
                break;
            } else {
                prop_assert!(self::wait(&ours) >= self::wait(&theirs));
            }
        }
    }
}

/// Guava's own test of it, `RateLimiterTest.testWarmUp`: there 1.38, 1.13, 0.88 and 0.63 s, to
/// hundredths.
#[test]
fn two_waits_of_guavas() {
    let rule = WarmUpSpaced::per_second(2).over(Duration::from_secs(4));
    let mut now = BEGIN;
    let mut state = None;
    let mut eight = |pause: u64| {
        now += pause;
        let mut waits = [0; 8];
        for wait in &mut waits {
            *wait = self::wait(&spend(&rule, &mut state, now, 1));
            now += *wait;
        }
        // Whole milliseconds, all of them.
        waits.map(|wait| (wait / 1_000_000, wait % 1_000_000))
    };
    let cold = [0, 1375, 1125, 875, 625, 500, 500, 500].map(|wait| (wait, 0));
    assert_eq!(eight(0), cold);
    // To repay the last one, and to become cold again.
    assert_eq!(eight(500_000_000 + 4 * SECOND), cold);
    // It would take another two seconds to become cold.
    let warm = [0, 500, 500, 500, 500, 500, 500, 500].map(|wait| (wait, 0));
    assert_eq!(eight(500_000_000 + 2 * SECOND), warm);
}

/// `RateLimiterTest.testWarmUpWithColdFactor`: a permit that is spent from the maximum to the
/// threshold costs the same there. (The threshold itself is another one, and so is how fast it
/// becomes cold.)
#[test]
fn a_cold_factor_of_ten() {
    let rule = rule("5/s over=4s cold=10");
    let (mut state, mut now) = (None, BEGIN);
    let waits = [(); 8].map(|()| {
        let wait = wait(&spend(&rule, &mut state, now, 1));
        now += wait;
        // To hundredths.
        (wait + 5_000_000) / 10_000_000
    });
    assert_eq!(waits, [0, 175, 126, 76, 30, 20, 20, 20]);
}

/// WU-1 and WU-2, in time: what is stored above the threshold takes just the period, and the first
/// second a third.
#[test]
fn two_hundred_a_second_are_warm_after_ten_seconds() {
    let (rule, mut state) = (WarmUpSpaced::per_second(200), None);
    let mut departures = Vec::new();
    for _ in 0..2000 {
        let free = BEGIN + departures.last().copied().unwrap_or(0);
        let delay = wait(&spend(&rule, &mut state, free, 1));
        departures.push(free - BEGIN + delay);
    }
    let within = |from: u64, to: u64| {
        let second = from * SECOND..to * SECOND;
        departures.iter().filter(|at| second.contains(at)).count()
    };
    assert_eq!(within(0, 1), 69);
    assert_eq!(within(0, 10), 1000);
    assert_eq!(departures[1000], 10 * SECOND);
    assert_eq!(within(10, 11), 200);
    assert_eq!(departures[1999], 10 * SECOND + 999 * 5_000_000);
}

#[test]
fn a_call_is_paid_by_those_behind_it() {
    let rule = rule("2/s over=4s max-wait=10s");
    let mut state = None;
    assert_eq!(rule.capacity(), 8);
    let first = spend(&rule, &mut state, BEGIN, 8);
    assert_eq!(first.verdict(), Verdict::Allow);
    assert_eq!(first.remaining(), Some(8));
    // Four above the threshold take 4 s, and four below it 2 s.
    let second = spend(&rule, &mut state, BEGIN, 1);
    assert_eq!(second.verdict(), Verdict::Delay(Duration::from_secs(6)));
    let third = spend(&rule, &mut state, BEGIN, 8);
    assert_eq!(third.verdict(), Verdict::Delay(Duration::from_millis(6500)));
    assert_eq!(third.remaining(), Some(0));
    assert_eq!(third.more_after(), Duration::from_millis(500));
    let before = state;
    let refused = spend(&rule, &mut state, BEGIN, 2);
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(500)));
    assert_eq!(refused.more_after(), Duration::from_millis(500));
    // All that was stored is spent, and the next departure is in 10.5 s.
    assert_eq!(refused.reset_after(), Duration::from_millis(14_500));
    assert_eq!(spend(&rule, &mut state, BEGIN, 9).retry_after(), None);
    assert_eq!(
        spend(&rule, &mut state, BEGIN, u64::MAX).retry_after(),
        None
    );
    assert_eq!(state, before, "a refusal spends nothing");
}

#[test]
fn the_last_place_is_given_back_and_one_in_the_middle_is_not() {
    let rule = rule("2/s over=4s max-wait=1m");
    let calls = |count: usize| {
        let mut state = None;
        let call = |_| {
            let before = state;
            let charge = spend(&rule, &mut state, BEGIN, 1).take_charge().unwrap();
            (before, charge)
        };
        let told: Vec<(State, Charge)> = (0..count).map(call).collect();
        (state, told)
    };
    let look = |state: &State| rule.look(state.as_ref(), at(BEGIN));

    let (mut state, told) = calls(8);
    let untouched = state;
    for (_, charge) in &told[..7] {
        rule.settle(&mut state, charge, at(BEGIN), 0);
        assert_eq!(state, untouched, "a call in the middle");
    }
    // From the last one to the first that waits, each leaves the key as it was before it.
    for (before, charge) in told[1..].iter().rev() {
        rule.settle(&mut state, charge, at(BEGIN), 0);
        assert_eq!(look(&state), look(before));
    }
    let departed = state;
    rule.settle(&mut state, &told[0].1, at(BEGIN), 0);
    assert_eq!(state, departed, "the first one has departed");

    // Nothing is stored any more when the last ones come: those before them leave it colder.
    let (mut state, told) = calls(12);
    let mut back = 0;
    for (before, charge) in told[1..].iter().rev() {
        let kept = state;
        rule.settle(&mut state, charge, at(BEGIN), 0);
        if state == kept {
            break;
        }
        back += 1;
        assert_eq!(look(&state).verdict(), look(before).verdict());
        assert!(look(&state).reset_after() <= look(before).reset_after());
    }
    assert_eq!(back, 4);
}

/// Two calls behind it add up to just what this one would have taken, had it come to a cold key:
/// nothing in the state tells that it is not the last one but that the warmth was cut.
#[test]
fn a_place_is_not_given_back_by_coincidence() {
    // An interval of half a second and half a nanosecond.
    let rule = rule("2/1000000001ns over=4000000004ns max-wait=1m");
    let mut state = None;
    for cost in [8, 1] {
        spend(&rule, &mut state, BEGIN, cost);
    }
    let charge = spend(&rule, &mut state, BEGIN, 8).take_charge().unwrap();
    assert_eq!(charge.delay, Some(Duration::from_nanos(6_500_000_007)));
    let told = spend(&rule, &mut state, BEGIN, 4).take_charge().unwrap();
    let before = state;
    rule.settle(&mut state, &charge, at(BEGIN), 0);
    assert_eq!(state, before);
    rule.settle(&mut state, &told, at(BEGIN), 0);
    assert_ne!(state, before, "the last one");
}

/// A pause before the call behind it makes that one colder than this one was, and the sums agree as
/// above.
#[test]
fn a_place_before_a_pause_is_not_given_back_by_coincidence() {
    let rule = rule("4/s over=10s cold=9 max-wait=1m");
    let pause = 3_370_807_581;
    for pause in pause - 5..pause + 5 {
        let mut state = None;
        for _ in 0..8 {
            spend(&rule, &mut state, BEGIN, 1);
        }
        let charge = spend(&rule, &mut state, BEGIN, 7).take_charge().unwrap();
        let departs = BEGIN + charge.delay.unwrap().as_nanos() as u64;
        let now = departs + 7 * SECOND / 4 + pause;
        assert_eq!(wait(&spend(&rule, &mut state, now, 1)), 0);
        let before = state;
        for actual in 0..7 {
            rule.settle(&mut state, &charge, at(now), actual);
        }
        assert_eq!(state, before, "{pause}");
    }
}

#[test]
fn a_departed_call_keeps_the_distance_of_what_it_cost() {
    let rule = rule("2/s over=4s max-wait=1m");
    let price = |actual: u64| {
        let mut state = None;
        let charge = spend(&rule, &mut state, BEGIN, 6).take_charge().unwrap();
        rule.settle(&mut state, &charge, at(BEGIN + SECOND / 2), actual);
        let mut instead = None;
        spend(&rule, &mut instead, BEGIN, actual.max(1));
        let now = BEGIN + SECOND / 2;
        let [ours, theirs] = [&state, &instead].map(|state| rule.look(state.as_ref(), at(now)));
        assert_eq!(
            (actual <= 6).then_some(ours),
            (actual <= 6).then_some(theirs),
            "{actual}"
        );
        wait(&spend(&rule, &mut state, now, 1)) / 1_000_000
    };
    // Half a second later.
    assert_eq!(price(0), 875, "one unit");
    assert_eq!(price(1), 875);
    assert_eq!(price(2), 2000);
    assert_eq!(price(6), 4500);
    assert_eq!(price(7), 5000, "more is paid at the full rate");
    assert_eq!(price(8), 5500);
}

#[test]
fn more_is_taken_by_force_and_never_beyond_the_end_of_time() {
    let rule = WarmUpSpaced::per_second(2);
    let mut state = None;
    let charge = spend(&rule, &mut state, BEGIN, 1).take_charge().unwrap();
    rule.settle(&mut state, &charge, at(BEGIN + 1), 1_000_001);
    let refused = spend(&rule, &mut state, BEGIN + 1, 1);
    // 1.45 s for the one, 500,000 s for the others, less the 10 s of patience and the nanosecond.
    assert_eq!(
        refused.retry_after(),
        Some(Duration::new(499_991, 449_999_999))
    );
    for _ in 0..3 {
        rule.settle(&mut state, &charge, at(BEGIN + 1), u64::MAX);
    }
    let refused = spend(&rule, &mut state, BEGIN + 1, 1);
    assert!(refused.retry_after() > Some(Duration::from_secs(500 * 365 * 86_400)));

    let mut unknown = None;
    rule.settle(&mut unknown, &charge, at(BEGIN), 3);
    assert_eq!(wait(&spend(&rule, &mut unknown, BEGIN, 1)), SECOND);
    let mut unknown = None;
    rule.settle(&mut unknown, &charge, at(BEGIN), 0);
    assert_eq!(unknown, None);
}

#[test]
fn a_charge_of_several_rules_gives_nothing_back() {
    let rule = WarmUpSpaced::per_second(2);
    let mut state = None;
    spend(&rule, &mut state, BEGIN, 1);
    let charge = spend(&rule, &mut state, BEGIN, 1).take_charge().unwrap();
    let before = state;
    let elsewhere = Some(charge.delay.unwrap() + Duration::from_nanos(1));
    for delay in [None, elsewhere] {
        let charge = Charge::new(charge.at, charge.cost).with_delay(delay);
        rule.settle(&mut state, &charge, at(BEGIN), 0);
        assert_eq!(state, before);
    }
    rule.settle(&mut state, &charge, at(BEGIN), 0);
    assert_ne!(state, before);
}

#[test]
fn time_stands_still_where_the_clock_steps_back() {
    let rule = rule("2/s over=4s max-wait=2s");
    let mut state = None;
    let later = BEGIN + 3600 * SECOND;
    assert_eq!(wait(&spend(&rule, &mut state, later, 1)), 0);
    // As of the last write, and not an hour.
    let behind = spend(&rule, &mut state, BEGIN, 1);
    assert_eq!(
        behind.verdict(),
        Verdict::Delay(Duration::from_millis(1375))
    );
    let refused = spend(&rule, &mut state, BEGIN, 1);
    assert_eq!(
        refused.retry_after(),
        Some(Duration::from_millis(3_600_500))
    );
    assert!(!spend(&rule, &mut state, later + SECOND / 2 - 1, 1).is_admitted());
    assert_eq!(
        wait(&spend(&rule, &mut state, later + SECOND / 2, 1)),
        2 * SECOND
    );
}

/// ALL-7.
#[test]
fn what_was_told_stays_told_under_a_new_rule() {
    let (old, mut state) = (rule("2/s over=4s max-wait=1m"), None);
    for _ in 0..4 {
        spend(&old, &mut state, BEGIN, 1);
    }
    let told = Duration::from_secs(4);
    for text in [
        "1000/s",
        "1/1h max-wait=1m",
        "2/s over=1h",
        "2/s cold=100 over=4s",
    ] {
        let new = rule(text);
        let look = new.look(state.as_ref(), at(BEGIN));
        assert_eq!(look.verdict(), Verdict::Delay(told), "{new}");
    }
    let impatient = rule("2/s over=4s max-wait=1s");
    let look = impatient.look(state.as_ref(), at(BEGIN));
    assert_eq!(look.retry_after(), Some(told - Duration::from_secs(1)));
}

proptest! {
    /// Warmth carries over as time.
    #[test]
    fn a_change_of_the_rule_mints_nothing(
        old in settings(), new in settings(), calls in prop::collection::vec((1..6_u64, 0..3_u64), 0..12), gap in 0..5 * SECOND,
    ) {
        let [old_rule, new_rule] = [old, new].map(|setting| setting.try_rule().unwrap());
        let [numbers, changed] = [old, new].map(|setting| setting.numbers());
        let (mut state, mut oracle, mut now) = (None, Oracle::new(&numbers), BEGIN);
        for (cost, wait) in calls {
            now += (old.period / old.amount).min(SECOND) * wait;
            if spend(&old_rule, &mut state, now, cost).is_admitted() {
                oracle.spend(&numbers, now, cost);
            }
        }
        let time = |permits: &BigRational| permits * &numbers.stable / &changed.stable;
        let warmth = time(&(&numbers.maximum - &oracle.stored));
        oracle.stored = (&changed.maximum - warmth).max(BigRational::zero());
        oracle.stored_off = time(&oracle.stored_off);
        for cost in [1, 2, 1, 1] {
            now += gap / 4;
            let decision = spend(&new_rule, &mut state, now, cost);
            let before = oracle.resync(&changed, now);
            let mut after = before.clone();
            if decision.is_admitted() {
                after.spend(&changed, now, cost);
                oracle = after.clone();
            }
            let capacity = new_rule.capacity();
            compare(&decision, &changed, [&before, &after], now, capacity, cost <= capacity)?;
        }
        // A longer warm-up finds the key colder: whoever is told a delay is told a longer one.
        let longer = Setting { over: old.over * 3, ..old };
        if let Ok(longer) = longer.try_rule() {
            let [before, after] = [old_rule, longer].map(|rule| {
                let mut state = state;
                [1, 1].map(|cost| spend(&rule, &mut state, now, cost))
            });
            prop_assert!(!before[1].is_admitted() || !after[1].is_admitted() || wait(&after[1]) >= wait(&before[1]));
        }
    }

    /// Whatever a store finds under a key, it neither panics nor opens the gate.
    #[test]
    fn any_bytes_are_a_state_or_an_error(
        written: u64, backlog: (u64, u32), warmth: (u64, u32), now: u64, cost: u64, delay: u64, rest: Vec<u8>,
    ) {
        let mut bytes = vec![0x41];
        for mut number in [written, backlog.0, u64::from(backlog.1), warmth.0, u64::from(warmth.1)] {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        prop_assert!(WarmUpSpacedState::from_bytes(&bytes).is_ok());
        let with_rest = [&[0x41], &rest[..]].concat();
        for bytes in [bytes, with_rest] {
            let Ok(read) = WarmUpSpacedState::from_bytes(&bytes) else {
                continue;
            };
            for text in ["2/s over=4s", "1099511627776/s over=20000d cold=1000", "1/106751d cold=1.001 max-wait=26000d"] {
                let (rule, mut state) = (rule(text), Some(read));
                rule.forgettable_at(&read);
                rule.look(state.as_ref(), at(now));
                for delay in [Duration::from_nanos(delay), Duration::MAX] {
                    for actual in [0, 1, cost, written, u64::MAX] {
                        let charge = Charge::new(at(now), cost).with_delay(Some(delay));
                        rule.settle(&mut state, &charge, at(written), actual);
                        rule.look(state.as_ref(), at(now));
                    }
                }
                let decision = spend(&rule, &mut state, now, cost.max(1));
                prop_assert!(decision.remaining() <= decision.limit());
                prop_assert!(!decision.is_admitted() || cost <= rule.capacity());
            }
        }
        prop_assert!(WarmUpSpacedState::from_bytes(&rest).is_err() || rest.first() == Some(&0x41));
    }
}

#[test]
fn an_idle_key_becomes_cold_again_in_its_period() {
    for text in [
        "2/s over=4s",
        "200/s",
        "7/3s over=1h cold=2.5",
        "5/s over=4s cold=10",
    ] {
        let rule = rule(text);
        let (mut state, mut now) = (None, BEGIN);
        // All that is stored, and more.
        for _ in 0..rule.capacity() + 10 {
            now += wait(&spend(&rule, &mut state, now, 1));
        }
        let reset = rule.look(state.as_ref(), at(now)).reset_after();
        let interval =
            Duration::from_nanos(rule.quota().period_nanos().div_ceil(rule.quota().amount()));
        // Exactly, if no fraction is rounded; else up to a nanosecond less.
        let exact = interval + rule.warms_over();
        let whole = rule.cold_thousandths() == 3000;
        let less = exact - reset;
        assert!(
            less <= Duration::from_nanos(u64::from(!whole)),
            "{rule}: {reset:?}"
        );
        let cold = at(now).saturating_add(reset);
        assert_eq!(rule.forgettable_at(&state.unwrap()), cold);
        let two = |mut state: State, now| {
            rule.step(&mut state, now, Cost::ONE);
            wait(&rule.step(&mut state, now, Cost::ONE).decision())
        };
        assert_eq!(two(state, cold), two(None, cold));
        let early = at(cold.as_nanos() - SECOND / 2);
        assert!(two(state, early) < two(None, early));
    }
}

#[test]
fn the_extremes_neither_overflow_nor_panic() {
    let end = (1 << 63) - 1;
    for (text, capacity) in [
        ("1/365d", 1),
        ("1/106751d max-wait=26000d over=26000d", 1),
        ("1099511627776/s over=26000d max-wait=26000d", 1 << 40),
        ("1099511627759/s cold=1000 over=26000d", 1 << 40),
        ("10000000000/s", 100_000_000_000),
        ("1/s over=1ns cold=1000", 1),
    ] {
        let rule = rule(text);
        assert_eq!(rule.capacity(), capacity, "{text}");
        for begin in [0, end] {
            let mut state = None;
            let first = spend(&rule, &mut state, begin, capacity);
            assert_eq!(first.verdict(), Verdict::Allow);
            assert!(!spend(&rule, &mut state, begin, capacity + 1).is_admitted());
            assert!(!spend(&rule, &mut state, u64::MAX, u64::MAX).is_admitted());
            let second = spend(&rule, &mut state, begin, 1);
            let waits = second.retry_after().unwrap() + rule.longest_wait();
            // The cost at the full rate, and up to the period more; that is longer by up to (cold +
            // 1) / 2 ns, as the climb is rounded up.
            let quota = rule.quota();
            let full = u128::from(capacity) * u128::from(quota.period_nanos());
            let full = full / u128::from(quota.amount());
            let most = full + rule.warms_over().as_nanos() + 502;
            let waits = waits.as_nanos();
            assert!(
                second.is_admitted() || (full..=most).contains(&waits),
                "{rule}"
            );
            let owes = |state: &State| rule.look(state.as_ref(), at(begin)).reset_after();
            let before = owes(&state);
            rule.settle(
                &mut state,
                &{ first }.take_charge().unwrap(),
                at(begin),
                u64::MAX,
            );
            assert!(owes(&state) > before, "{rule}");
        }
    }
}

#[test]
fn settings_that_cannot_warm_are_refused() {
    for (text, column, word) in [
        ("warm-up-spaced", 15, "ends too early"),
        ("warm-up-spaced 0/s", 16, "is 0"),
        (
            "warm-up-spaced 2/s cold=1",
            25,
            "a cold factor of 1: expected more than 1",
        ),
        (
            "warm-up-spaced 2/s cold=0.999",
            25,
            "a cold factor of 0.999",
        ),
        ("warm-up-spaced 2/s cold=1001", 25, "a cold factor of 1001"),
        ("warm-up-spaced 2/s cold=x", 25, "no value for `cold`"),
        ("warm-up-spaced 2/s over=0s", 25, "a warm-up over 0s"),
        ("warm-up-spaced 2/s over=27000d", 25, "beyond 73 years"),
        (
            "warm-up-spaced 2/s cold=1.001 over=27d",
            36,
            "beyond 73 years",
        ),
        ("warm-up-spaced 2/s max-wait=0ms", 29, "a max-wait of 0"),
        ("warm-up-spaced 2/s max-wait=27000d", 29, "at most 73 years"),
        ("warm-up-spaced 2/s wait=1s", 20, "unknown setting `wait`"),
        (
            "warm-up-spaced 2/s max-wait=1s max-wait=2s",
            32,
            "set twice",
        ),
    ] {
        let error = text.parse::<AnyRule>().unwrap_err();
        assert_eq!(error.column(), Some(column), "{text}: {error}");
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
    let rule = WarmUpSpaced::per_second(2);
    assert!(
        rule.try_cold(1).is_err()
            && rule.try_cold(1001).is_err()
            && rule.try_cold(u32::MAX).is_err()
    );
    assert!(rule.try_cold_thousandths(1000).is_err() && rule.try_cold_thousandths(1001).is_ok());
    assert!(rule.try_over(Duration::ZERO).is_err() && rule.try_over(Duration::MAX).is_err());
    assert!(
        rule.try_max_wait(Duration::ZERO).is_err() && rule.try_max_wait(Duration::MAX).is_err()
    );
}

#[test]
#[should_panic(expected = "a max-wait of 0")]
fn a_literal_wait_of_nothing_panics() {
    let _ = WarmUpSpaced::per_second(2).max_wait(Duration::ZERO);
}

#[test]
fn rules_print_what_parses_back() {
    for text in [
        "2/s",
        "2/s over=4s",
        "2/s cold=2.5",
        "2/s max-wait=5s",
        "1/10m over=1500ms cold=1.125 max-wait=1ns",
    ] {
        let rule = rule(text);
        assert_eq!(rule.to_string(), format!("warm-up-spaced {text}"));
        assert_eq!(rule.to_string().parse::<WarmUpSpaced>().unwrap(), rule);
        assert_eq!(
            format!("{rule:?}"),
            format!("WarmUpSpaced(warm-up-spaced {text})")
        );
    }
    let defaults = rule("2/s cold=3.0 over=10000ms");
    assert_eq!(defaults, WarmUpSpaced::from(Quota::per_second(2)));
    let kept = rule("2/s max-wait=10s");
    assert_eq!(kept.to_string(), "warm-up-spaced 2/s max-wait=10s");
    let four = Duration::from_secs(4);
    assert_eq!(WarmUpSpaced::per_second(2).over(four), rule("2/s over=4s"));
    let patient = WarmUpSpaced::per_minute(120)
        .max_wait(four)
        .over(Duration::from_secs(8))
        .cold(4);
    assert_eq!(patient, rule("120/1m over=8s cold=4 max-wait=4s"));
    assert_eq!(patient.longest_wait(), four);
    assert_eq!(WarmUpSpaced::per_hour(3600).capacity(), 10);
    assert_eq!(WarmUpSpaced::per_day(86_400).capacity(), 10);
}

#[test]
fn a_state_is_small() {
    assert_eq!(size_of::<Option<WarmUpSpacedState>>(), 32);
}
