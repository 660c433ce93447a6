//! Compares the token bucket with an oracle in rational arithmetic, written in the slow obvious
//! way.
//!
//! Invariants, on adversarial timelines (boundaries to the nanosecond, bursts at one instant, idle
//! gaps of centuries, clock steps back, costs above the capacity, rule changes):
//!
//! - The verdict and all numbers equal the oracle's.
//! - A call is refused one nanosecond before `retry_after`, and admitted at it.
//! - A cost of `remaining` is admitted, and one more is not.
//! - A refusal does not change the state.
//! - From `forgettable_at` on, no state gives the same decisions.
//! - A settled charge leaves the state that a call of the actual cost would have left.

use std::time::Duration;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, ToPrimitive, Zero};
use proptest::prelude::*;
use support::rational::{self, FASTEST, LONGEST, can_be, ratio, whole};
use tollgate::{
    Charge, Cost, Decision, Quota, Timestamp, TokenBucket, Verdict,
    algorithm::{Algorithm, Step},
};

use crate::algorithms::{
    answer::{Answer, rounded},
    timeline::{RequestCost, Wait},
};

type TokenBucketState = <TokenBucket as Algorithm>::State;

const DAY: u64 = 86_400_000_000_000;

/// The numbers of a rule.
#[derive(Clone, Copy, Debug)]
struct Setting {
    amount: u64,
    period: u64,
    burst: u64,
    initial: u64,
    kept: u64,
}

impl Setting {
    fn rule(&self) -> TokenBucket {
        TokenBucket::new(Quota::new(self.amount, Duration::from_nanos(self.period)))
            .burst(self.burst)
            .initial(self.initial)
            .keep_free(self.kept)
    }

    /// The rule with other numbers of tokens kept free.
    fn keeping(&self, part: u64) -> Self {
        let kept = [0, 1, self.burst / 3, self.burst - 1][part as usize % 4];
        Self {
            kept: kept.min(self.burst - 1),
            ..*self
        }
    }

    /// The greatest cost that passes.
    fn limit(&self) -> u64 {
        self.burst - self.kept
    }

    fn most(&self) -> u64 {
        self.burst.max(self.initial)
    }

    /// Nanoseconds per token.
    fn interval(&self) -> BigRational {
        rational::interval(self.amount, self.period, self.most())
    }
}

/// A textbook bucket: the filling in nanoseconds, at the instant of the last write.
#[derive(Clone, Default, Debug)]
struct Oracle {
    written: Option<(BigRational, u64)>,
}

impl Oracle {
    fn initial(&self, rule: &Setting) -> BigRational {
        whole(rule.initial) * rule.interval()
    }

    fn full_at(&self, rule: &Setting) -> Option<BigRational> {
        let (credit, at) = self.written.as_ref()?;
        let full = whole(rule.burst) * rule.interval();
        Some(whole(*at) + (full - credit).max(BigRational::zero()))
    }

    fn forgotten(&self, rule: &Setting, now: u64) -> bool {
        rule.initial != rule.burst
            && self
                .full_at(rule)
                .is_some_and(|at| at.ceil() + whole(DAY) <= whole(now))
    }

    /// Returns the tokens, and the instant that they are valid for.
    fn tokens(&self, rule: &Setting, now: u64) -> (BigRational, u64) {
        let known = self.written.as_ref().filter(|_| !self.forgotten(rule, now));
        let Some((credit, at)) = known else {
            return (whole(rule.initial), now);
        };
        let tokens = credit / rule.interval();
        let burst = whole(rule.burst);
        // Time is clamped to the last write.
        let now = now.max(*at);
        if tokens > burst {
            return (tokens.min(whole(rule.burst.max(rule.initial))), now);
        }
        let refilled = (credit + whole(now - at)) / rule.interval();
        (refilled.min(burst), now)
    }

    fn answer(&self, rule: &Setting, now: u64, admitted: bool, cost: u64) -> Answer {
        let (tokens, at) = self.tokens(rule, now);
        let until = |wanted: BigRational| {
            let lacking = (wanted - &tokens).max(BigRational::zero());
            whole(at - now) + lacking * rule.interval()
        };
        let retry = if admitted {
            Some(BigInt::zero())
        } else if cost > rule.limit() {
            None
        } else {
            Some(rounded(until(whole(cost + rule.kept))))
        };
        let reset = if self.written.is_none() || self.forgotten(rule, now) {
            BigInt::zero()
        } else if rule.initial != rule.burst {
            // It was full for part of the day already.
            rounded(self.full_at(rule).unwrap() + whole(DAY) - whole(now))
        } else if tokens >= whole(rule.burst) {
            BigInt::zero()
        } else {
            rounded(until(whole(rule.burst)))
        };
        let remaining = (tokens.floor() - whole(rule.kept)).max(BigRational::zero());
        let remaining = remaining.to_integer().to_u64().unwrap_or(u64::MAX);
        let remaining = remaining.min(rule.limit());
        Answer {
            admitted,
            limit: rule.limit(),
            remaining,
            retry,
            reset,
            more: if remaining == rule.limit() {
                BigInt::zero()
            } else {
                rounded(until(whole(remaining + 1 + rule.kept)))
            },
            ..Answer::default()
        }
    }

    fn step(&mut self, rule: &Setting, now: u64, cost: u64) -> Answer {
        let (tokens, at) = self.tokens(rule, now);
        let admitted = cost <= rule.limit() && tokens >= whole(cost) + whole(rule.kept);
        if admitted {
            self.written = Some(((tokens - whole(cost)) * rule.interval(), at));
        } else if cost <= rule.limit() && rule.initial != rule.burst {
            let unknown = self.written.is_none() || self.forgotten(rule, now);
            if unknown {
                self.written = Some((self.initial(rule), now));
            }
        }
        self.answer(rule, now, admitted, cost)
    }

    fn look(&self, rule: &Setting, now: u64) -> Answer {
        let (tokens, _) = self.tokens(rule, now);
        let admitted = tokens >= BigRational::one() + whole(rule.kept);
        self.answer(rule, now, admitted, 1)
    }
}

fn amounts() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..20_u64,
        2 => prop::sample::select(vec![1, 3, 7, 60, 100, 600, 999_999, 1_000_000, FASTEST - 1, FASTEST]),
        1 => 1..=FASTEST,
    ]
}

fn settings() -> impl Strategy<Value = Setting> {
    let periods = prop_oneof![
        4 => prop::sample::select(vec![1_000_000_000, 10_000_000_000, 60_000_000_000, 3_600_000_000_000]),
        1 => 1..1_000_u64,
        1 => 1..=365 * DAY,
        1 => Just(365 * DAY),
        1 => Just(LONGEST),
    ];
    let bursts = prop_oneof![
        4 => 1..30_u64,
        1 => 1..=Quota::MAX_AMOUNT,
        1 => Just(Quota::MAX_AMOUNT),
    ];
    let initials = prop_oneof![
        4 => Just(None),
        1 => (0..50_u64).prop_map(Some),
        1 => Just(Some(0)),
    ];
    (amounts(), periods, bursts, initials)
        .prop_map(|(amount, period, burst, initial)| Setting {
            amount,
            period,
            burst,
            initial: initial.unwrap_or(burst),
            kept: 0,
        })
        .prop_filter("a bucket that can be", |setting| {
            can_be(setting.amount, setting.period, setting.most())
        })
}

#[derive(Clone, Debug)]
enum Op {
    Spend {
        wait: Wait,
        cost: RequestCost,
    },
    Look(Wait),
    Back(u64),
    Rule(Setting),
    /// A rule of the same bucket, which keeps something else free.
    Keep(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (Wait::any(), RequestCost::any()).prop_map(|(wait, cost)| Op::Spend { wait, cost }),
        2 => Wait::any().prop_map(Op::Look),
        1 => (0..5_000_000_000_u64).prop_map(Op::Back),
        1 => settings().prop_map(Op::Rule),
        3 => (0..4_u64).prop_map(Op::Keep),
    ];
    prop::collection::vec(op, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(if cfg!(debug_assertions) { 300 } else { 20_000 }) as u32))]

    #[test]
    fn equals_the_oracle(first in settings(), start in 0..i64::MAX as u64 / 2, ops in ops(), changing: bool) {
        let mut setting = first;
        let mut rule = setting.rule();
        let mut state: Option<TokenBucketState> = None;
        let mut oracle = Oracle::default();
        let (mut now, mut retry, mut remaining) = (start, 0, 0);
        // Numbers are compared only while one rule is in force, because a fraction that carries
        // over is rounded to the grid of the new rule. `rule_changes_admit_no_extra_units` covers
        // changes.
        for op in ops {
            match op {
                Op::Spend { wait, cost } => {
                    now = wait.after(now, retry);
                    let cost = cost.units(remaining);
                    let at = Timestamp::from_nanos(now);
                    let before = state;
                    let step = rule.step(&mut state, at, Cost::new(cost).unwrap());
                    let decision = step.decision();
                    prop_assert_eq!(Answer::of(&decision), oracle.step(&setting, now, cost));
                    prop_assert_eq!(matches!(step, Step::Kept(_)), before == state);
                    if let (Verdict::Refuse, Some(wait)) = (decision.verdict(), decision.retry_after()) {
                        let due = u128::from(now) + wait.as_nanos();
                        if due <= i64::MAX as u128 {
                            retry = wait.as_nanos() as u64;
                            promise_holds(&rule, state, due as u64, cost)?;
                        }
                    }
                    remaining = decision.remaining().unwrap();
                }
                Op::Look(wait) => {
                    now = wait.after(now, retry);
                    let look = rule.look(state.as_ref(), Timestamp::from_nanos(now));
                    prop_assert_eq!(Answer::of(&look), oracle.look(&setting, now));
                    remaining = look.remaining().unwrap();
                    remaining_is_the_greatest_cost(&rule, state, now, remaining)?;
                }
                Op::Back(nanos) => now = now.saturating_sub(nanos),
                Op::Rule(new) if changing => {
                    setting = new;
                    rule = setting.rule();
                    state = None;
                    oracle = Oracle::default();
                }
                Op::Rule(_) => {}
                Op::Keep(part) => {
                    setting = setting.keeping(part);
                    rule = setting.rule();
                }
            }
            forgetting_changes_no_decision(&rule, state)?;
        }
    }

    #[test]
    fn rule_changes_admit_no_extra_units(
        old in settings(), new in settings(), spent in 1..100_u64, gap in 0..100_000_000_000_u64,
    ) {
        let (start, mut state) = (1_800_000_000_000_000_000, None);
        let spent = Cost::new(spent.min(old.burst)).unwrap();
        old.rule().step(&mut state, Timestamp::from_nanos(start), spent);
        let Some(held) = state else {
            return Ok(());
        };
        let mut oracle = Oracle::default();
        oracle.step(&old, start, spent.get());

        let now = start + gap;
        let ours = new.rule().look(Some(&held), Timestamp::from_nanos(now)).remaining().unwrap();
        // A fraction that carries over is rounded down to the unit of the new rule.
        let most = oracle.look(&new, now).remaining;
        if let Some((credit, _)) = &mut oracle.written {
            *credit -= ratio(1, 3);
        }
        let least = oracle.look(&new, now).remaining;
        prop_assert!((least..=most).contains(&ours), "{} not in {}..={}", ours, least, most);
    }

    #[test]
    fn a_settled_charge_equals_a_call_of_the_actual_cost(
        setting in settings(), before in 1..20_u64, cost in 1..20_u64, actual in 0..20_u64,
        idle in 0..3_000_000_000_u64, gap in 0..30_000_000_000_u64, later in 0..30_000_000_000_u64,
    ) {
        let rule = setting.rule();
        let at = |nanos: u64| Timestamp::from_nanos(1_800_000_000_000_000_000 + nanos);
        let mut state = None;
        rule.step(&mut state, at(0), Cost::new(before).unwrap());
        let mut instead = state;
        let charged = rule.step(&mut state, at(idle), Cost::new(cost).unwrap()).decision();
        let Some(charge) = { charged }.take_charge() else {
            return Ok(());
        };
        let expected = (at(idle), 0, cost, Some(Duration::ZERO));
        prop_assert_eq!((charge.at, charge.class, charge.cost, charge.delay), expected);
        let held = state.unwrap();
        if actual > cost && at(idle + gap) >= rule.forgettable_at(&held) {
            // Like a forgotten key: the debt is charged now.
            let mut forgotten = None;
            rule.settle(&mut state, &charge, at(idle + gap), actual);
            rule.settle(&mut forgotten, &charge, at(idle + gap), actual);
            prop_assert_eq!(state, forgotten);
            return Ok(());
        }
        rule.settle(&mut state, &charge, at(idle + gap), actual);

        match Cost::new(actual) {
            // The refunded call made the key known, so its bucket fills from that time.
            None if instead.is_none() && setting.initial != setting.burst => return Ok(()),
            None => {}
            Some(actual) => {
                let direct = rule.step(&mut instead, at(idle), actual).decision();
                if !direct.is_admitted() {
                    return Ok(());
                }
            }
        }
        let now = at(idle + gap + later);
        let (settled, direct) = (rule.look(state.as_ref(), now), rule.look(instead.as_ref(), now));
        prop_assert_eq!(settled.remaining(), direct.remaining());
        prop_assert_eq!(settled.retry_after(), direct.retry_after());
    }

    #[test]
    fn settling_never_fills_above_the_burst(
        setting in settings(), cost in 1..20_u64, others in prop::collection::vec((0..5_000_000_000_u64, 1..5_u64), 0..10),
        actual in 0..40_u64,
    ) {
        let rule = setting.rule();
        let mut now = 1_800_000_000_000_000_000;
        let mut state = None;
        let first = rule.step(&mut state, Timestamp::from_nanos(now), Cost::new(cost).unwrap());
        for (gap, cost) in others {
            now += gap;
            rule.step(&mut state, Timestamp::from_nanos(now), Cost::new(cost).unwrap());
        }
        if let Some(charge) = first.decision().take_charge() {
            let before = rule.look(state.as_ref(), Timestamp::from_nanos(now)).remaining().unwrap();
            rule.settle(&mut state, &charge, Timestamp::from_nanos(now), actual);
            let after = rule.look(state.as_ref(), Timestamp::from_nanos(now)).remaining().unwrap();
            prop_assert!(after <= setting.limit());
            if actual >= cost {
                prop_assert!(after <= before);
            } else {
                prop_assert!(after <= before + (cost - actual));
            }
        }
    }

    /// Virtual scheduling: one theoretical arrival time, and no tokens.
    #[test]
    fn decides_as_gcra(setting in settings(), calls in prop::collection::vec((0..4_000_000_000_u64, 1..4_u64), 1..80)) {
        let setting = Setting { initial: setting.burst, ..setting };
        let rule = setting.rule();
        let (interval, mut now, mut state) = (setting.interval(), 1_800_000_000_000_000_000_u64, None);
        let mut arrival = BigRational::zero() - whole(u64::MAX);
        for (gap, cost) in calls {
            now += gap;
            let expected = arrival.clone().max(whole(now)) + whole(cost) * &interval;
            let conforms = cost <= setting.burst && &expected - whole(now) <= whole(setting.burst) * &interval;
            if conforms {
                arrival = expected;
            }
            let decision = rule.step(&mut state, Timestamp::from_nanos(now), Cost::new(cost).unwrap());
            prop_assert_eq!(decision.decision().is_admitted(), conforms);
        }
    }

    /// In any time span at most burst + rate · span is admitted.
    #[test]
    fn no_time_span_admits_more_than_burst_and_rate(setting in settings(), gaps in prop::collection::vec(0..2_000_000_000_u64, 1..30)) {
        let setting = Setting { initial: setting.burst, ..setting };
        let rule = setting.rule();
        let (mut now, mut state, mut admitted) = (1_800_000_000_000_000_000_u64, None, Vec::new());
        for gap in gaps {
            now += gap;
            while admitted.len() < 300
                && rule.step(&mut state, Timestamp::from_nanos(now), Cost::ONE).decision().is_admitted()
            {
                admitted.push(now);
            }
        }
        for (index, from) in admitted.iter().enumerate().step_by(7) {
            for (offset, to) in admitted[index..].iter().enumerate().step_by(5) {
                let most = whole(setting.burst) + whole(to - from) / setting.interval();
                prop_assert!(whole(offset as u64 + 1) <= most);
            }
        }
    }

    #[test]
    fn text_parses_back(setting in settings(), keep in 1..2 * DAY) {
        let rule = setting.rule().keep(Duration::from_nanos(keep));
        let parsed: TokenBucket = rule.to_string().parse().unwrap();
        prop_assert_eq!(parsed.to_string(), rule.to_string());
        prop_assert_eq!(parsed.quota(), rule.quota());
        prop_assert_eq!(parsed.capacity(), rule.capacity());
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        if let Err(error) = text.parse::<tollgate::AnyRule>() {
            prop_assert!(error.column().is_some(), "{} has no column", error);
        }
    }
}

fn passes(rule: &TokenBucket, mut state: Option<TokenBucketState>, now: u64, cost: u64) -> bool {
    let (now, cost) = (Timestamp::from_nanos(now), Cost::new(cost).unwrap());
    rule.step(&mut state, now, cost).decision().is_admitted()
}

fn promise_holds(
    rule: &TokenBucket,
    state: Option<TokenBucketState>,
    told_at: u64,
    cost: u64,
) -> Result<(), TestCaseError> {
    prop_assert!(
        !passes(rule, state, told_at - 1, cost),
        "admitted a nanosecond before its time"
    );
    prop_assert!(passes(rule, state, told_at, cost), "refused at its time");
    Ok(())
}

fn remaining_is_the_greatest_cost(
    rule: &TokenBucket,
    state: Option<TokenBucketState>,
    now: u64,
    remaining: u64,
) -> Result<(), TestCaseError> {
    prop_assert!(remaining == 0 || passes(rule, state, now, remaining));
    prop_assert!(!passes(rule, state, now, remaining + 1));
    Ok(())
}

fn forgetting_changes_no_decision(
    rule: &TokenBucket,
    state: Option<TokenBucketState>,
) -> Result<(), TestCaseError> {
    let Some(held) = state else {
        return Ok(());
    };
    let forgettable = rule.forgettable_at(&held);
    for after in [0, 1, 1_000_000_007] {
        let now = forgettable.saturating_add(Duration::from_nanos(after));
        if now == Timestamp::MAX {
            break;
        }
        let (with, without) = (rule.look(Some(&held), now), rule.look(None, now));
        prop_assert_eq!(Answer::of(&with), Answer::of(&without));
    }
    Ok(())
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(1_800_000_000_000_000_000 + nanos)
}

fn units(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

fn step(rule: &TokenBucket, state: &mut Option<TokenBucketState>, now: u64, cost: u64) -> Decision {
    rule.step(state, at(now), units(cost)).decision()
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn half_a_period_refills_half_of_the_bucket() {
    let (rule, mut state) = (TokenBucket::per_minute(100), None);
    assert_eq!(step(&rule, &mut state, 0, 100).remaining(), Some(0));
    let look = |nanos| rule.look(state.as_ref(), at(nanos)).remaining();
    assert_eq!(look(30 * SECOND), Some(50));
    assert_eq!(look(60 * SECOND), Some(100));
    assert_eq!(look(3600 * SECOND), Some(100));
}

#[test]
fn an_initial_fill_above_the_capacity_is_available_once() {
    let rule = TokenBucket::per_minute(100).initial(300);
    let mut state = None;
    for _ in 0..300 {
        assert!(step(&rule, &mut state, 0, 1).is_admitted());
    }
    assert!(!step(&rule, &mut state, 0, 1).is_admitted());
    assert_eq!(
        rule.look(state.as_ref(), at(3600 * SECOND)).remaining(),
        Some(100)
    );

    let mut half = None;
    for _ in 0..100 {
        step(&rule, &mut half, 0, 1);
    }
    let admitted = (0..300).filter(|_| step(&rule, &mut half, 3600 * SECOND, 1).is_admitted());
    assert_eq!(
        admitted.count(),
        200,
        "units above the capacity stay until spent"
    );
}

#[test]
fn a_bucket_that_starts_empty_waits_for_its_first_token() {
    let rule = TokenBucket::per_second(1).burst(5).initial(0);
    let mut state = None;
    let first = step(&rule, &mut state, 0, 1);
    assert_eq!(first.retry_after(), Some(Duration::from_secs(1)));
    assert!(state.is_some(), "the bucket fills from the first call");
    assert!(!step(&rule, &mut state, SECOND - 1, 1).is_admitted());
    assert!(step(&rule, &mut state, SECOND, 1).is_admitted());
    assert_eq!(
        rule.look(state.as_ref(), at(3600 * SECOND)).remaining(),
        Some(5)
    );
    // It is full six seconds after the start. A day later it is like new: empty.
    assert_eq!(
        rule.look(state.as_ref(), at(DAY + 6 * SECOND)).remaining(),
        Some(0)
    );
}

#[test]
fn frequent_calls_lose_no_fractions() {
    for rule in [
        TokenBucket::per_minute(1),
        TokenBucket::per_hour(7).burst(1),
        TokenBucket::per_second(3).burst(1),
    ] {
        let mut state = None;
        assert!(step(&rule, &mut state, 0, 1).is_admitted());
        let period = rule.quota().period_nanos() as u128;
        let (mut now, mut admitted) = (0_u64, 0_u128);
        let end = 20 * period as u64;
        let pause = end / 10_007;
        while now < end {
            now += pause;
            admitted += u128::from(step(&rule, &mut state, now, 1).is_admitted());
        }
        // Each token waits for the next call, so at most one pause is lost per token.
        let most = u128::from(now) * u128::from(rule.quota().amount()) / period;
        let least =
            u128::from(now) / (period / u128::from(rule.quota().amount()) + u128::from(pause) + 1);
        assert!(
            (least..=most).contains(&admitted),
            "{rule}: {admitted} not in {least}..={most}"
        );
    }
}

/// A bucket of 3/s that is drained a hundred thousand times ends on the exact nanosecond.
#[test]
fn an_interval_of_a_third_of_a_second_does_not_drift() {
    let (rule, mut state) = (TokenBucket::per_second(3), None);
    let mut now = 0;
    assert!(step(&rule, &mut state, now, 3).is_admitted());
    let mut fractions = 0_u64;
    for call in 1..=300_000_u64 {
        let refused = step(&rule, &mut state, now, 1);
        now += refused.retry_after().unwrap().as_nanos() as u64;
        assert!(step(&rule, &mut state, now, 1).is_admitted());
        // The client comes at the first whole nanosecond, and the bucket keeps the fraction.
        let exact = (call * SECOND).div_ceil(3);
        fractions += now - exact;
    }
    assert_eq!(fractions, 0);
    assert_eq!(now, 100_000 * SECOND);
}

#[test]
fn two_hundred_a_second_refill_one_every_five_milliseconds() {
    let (rule, mut state) = (TokenBucket::per_second(200).burst(1), None);
    assert!(step(&rule, &mut state, 0, 1).is_admitted());
    assert!(!step(&rule, &mut state, 4_999_999, 1).is_admitted());
    assert!(step(&rule, &mut state, 5_000_000, 1).is_admitted());
}

#[test]
fn a_hundred_a_minute_can_admit_199_in_one_minute() {
    let (rule, mut state) = (TokenBucket::per_minute(100), None);
    let minute = 60 * SECOND;
    let admitted = (0..minute)
        .step_by(SECOND as usize / 10)
        .flat_map(|now| [now; 100])
        .chain([minute - 1; 2])
        .filter(|now| step(&rule, &mut state, *now, 1).is_admitted())
        .count();
    assert_eq!(admitted, 199);
}

#[test]
fn a_cost_above_the_capacity_is_always_refused_and_free() {
    let (rule, mut state) = (TokenBucket::per_second(5), None);
    step(&rule, &mut state, 0, 2);
    let before = state;
    let refused = step(&rule, &mut state, 0, 6);
    assert_eq!(refused.verdict(), Verdict::Refuse);
    assert_eq!(refused.retry_after(), None);
    assert_eq!(refused.remaining(), Some(3));
    assert_eq!(state, before);
}

#[test]
fn refused_calls_do_not_delay_the_next_admission() {
    let (rule, mut state) = (TokenBucket::per_second(1), None);
    step(&rule, &mut state, 0, 1);
    for now in (0..SECOND).step_by(1_000_000) {
        assert!(!step(&rule, &mut state, now, 1).is_admitted());
    }
    assert!(step(&rule, &mut state, SECOND, 1).is_admitted());
}

#[test]
fn a_clock_step_back_of_an_hour_does_not_extend_refusals() {
    let (rule, mut state) = (TokenBucket::per_second(2), None);
    assert!(step(&rule, &mut state, 3600 * SECOND, 1).is_admitted());
    assert!(
        step(&rule, &mut state, 0, 1).is_admitted(),
        "the remaining token stays"
    );
    let refused = step(&rule, &mut state, 0, 1);
    assert_eq!(
        refused.retry_after(),
        Some(Duration::from_millis(3_600_500))
    );
    assert!(step(&rule, &mut state, 3600 * SECOND + SECOND / 2, 1).is_admitted());
}

#[test]
fn extreme_values_neither_overflow_nor_round() {
    let most = Quota::MAX_AMOUNT;
    let slow = TokenBucket::new(Quota::new(1, Duration::from_secs(365 * 86_400))).burst(24);
    let mut state = None;
    let zero = Timestamp::default();
    let all = slow.step(&mut state, zero, units(24)).decision();
    assert!(all.is_admitted());
    assert_eq!(all.remaining(), Some(0));
    let year = 365 * DAY;
    let next = slow.look(state.as_ref(), Timestamp::from_nanos(year - 1));
    assert_eq!(next.retry_after(), Some(Duration::from_nanos(1)));
    let nearly = Timestamp::from_nanos(24 * year - 1);
    assert_eq!(slow.look(state.as_ref(), nearly).remaining(), Some(23));
    let end = Timestamp::from_nanos(i64::MAX as u64);
    assert_eq!(slow.look(state.as_ref(), end).remaining(), Some(24));

    let fast = TokenBucket::per_second(FASTEST).burst(most);
    let mut state = None;
    assert!(
        fast.step(&mut state, end, units(most))
            .decision()
            .is_admitted()
    );
    let refused = fast.step(&mut state, end, units(10)).decision();
    assert_eq!(refused.retry_after(), Some(Duration::from_nanos(334)));
    assert_eq!(
        fast.step(&mut state, end, units(u64::MAX))
            .decision()
            .retry_after(),
        None
    );

    let charge = Charge::new(end, 1).with_delay(None);
    fast.settle(&mut state, &charge, end, u64::MAX);
    assert!(
        !fast.look(state.as_ref(), end).is_admitted(),
        "a forced debt saturates"
    );
}

/// An interval that is not a whole number of ticks is rounded down, by as much as is documented.
#[test]
fn a_rate_that_is_rounded_stays_close_to_the_quota() {
    let rule = TokenBucket::per_second(29_702_971).burst(Quota::MAX_AMOUNT);
    let mut state = None;
    step(&rule, &mut state, 0, Quota::MAX_AMOUNT);
    let refilled = rule
        .look(state.as_ref(), at(100 * SECOND))
        .remaining()
        .unwrap();
    let exact = 2_970_297_100;
    assert!(
        (exact..=exact + exact / 99).contains(&refilled),
        "{refilled}"
    );
}

/// The interval is rounded down, never up, and headers show the quota as written.
#[test]
fn after_exactly_one_period_the_whole_amount_is_restored() {
    for seconds in [1, 7, 60, 3_600, 86_400] {
        for amount in (1..=2_000).chain([9_999, 1_000_003, 29_999_999, 104_857_600]) {
            if amount > seconds * FASTEST {
                continue;
            }
            let quota = Quota::new(amount, Duration::from_secs(seconds));
            let (rule, mut state) = (TokenBucket::new(quota), None);
            assert!(step(&rule, &mut state, 0, amount).is_admitted());
            let (later, mut early) = (seconds * SECOND, state);
            let refilled = step(&rule, &mut state, later, amount);
            assert!(refilled.is_admitted(), "{rule}");
            assert_eq!(
                (refilled.quota(), rule.to_string()),
                (Some(quota), format!("token-bucket {quota}"))
            );
            // It is at most a millionth early, at rates up to 3,000 a second.
            if amount < 3_000 * seconds {
                let early = step(&rule, &mut early, later - later / 1_000_000 - 1, amount);
                assert!(!early.is_admitted(), "{rule}");
            }
        }
    }
}

#[test]
fn an_exhausted_client_stays_exhausted_under_a_new_rule() {
    let (old, mut state) = (TokenBucket::per_minute(10), None);
    for _ in 0..10 {
        assert!(step(&old, &mut state, 0, 1).is_admitted());
    }
    let larger = TokenBucket::per_second(1_000).burst(1_000_000);
    assert!(!step(&larger, &mut state, 0, 1).is_admitted());
    let smaller = TokenBucket::per_hour(1);
    assert!(!step(&smaller, &mut state, 0, 1).is_admitted());

    let mut half = None;
    step(&old, &mut half, 0, 5);
    let roomier = TokenBucket::per_minute(10).burst(100);
    assert_eq!(
        roomier.look(half.as_ref(), at(0)).remaining(),
        Some(5),
        "no fuller"
    );
    let tighter = TokenBucket::per_minute(10).burst(2);
    assert_eq!(
        tighter.look(half.as_ref(), at(0)).remaining(),
        Some(2),
        "cut"
    );
}

#[test]
fn invalid_texts_are_errors_with_a_column_and_a_reason() {
    for (text, column, word) in [
        ("", 1, "no rule"),
        ("leaky", 1, "unknown algorithm `leaky`"),
        ("token-bucket", 13, "ends too early"),
        ("token-bucket 0/1m", 14, "the amount of the quota is 0"),
        ("token-bucket 5/0s", 16, "the period of the quota is 0"),
        ("token-bucket 5/", 16, "no unit"),
        ("token-bucket 0/0s", 14, "is 0"),
        ("token-bucket 5/106752d", 16, "292 years"),
        ("token-bucket 2000/1ns", 14, "2^40 units a second"),
        ("token-bucket 5/10x", 18, "unknown unit `x`"),
        ("token-bucket five/1s", 14, "`five` is not an amount"),
        ("token-bucket +5/1s", 14, "`+5` is not an amount"),
        (
            "token-bucket 5/99999999999999999999s",
            16,
            "is not a period of",
        ),
        ("token-bucket 5/1s burst=0", 25, "burst of 0"),
        ("token-bucket 5/1s burst=x", 25, "no value for `burst`"),
        ("token-bucket 5/1s keep-free=5", 29, "kept free"),
        ("token-bucket 9/1s keep-free=5 burst=5", 29, "kept free"),
        (
            "token-bucket 5/1s keep-free=-1",
            29,
            "no value for `keep-free`",
        ),
        ("token-bucket 5/1s burst=1 burst=2", 27, "set twice"),
        ("token-bucket 5/1s brust=1", 19, "unknown setting `brust`"),
        ("token-bucket 5/1s & token-bucket 5/1", 37, "no unit"),
        ("token-bucket 5/1s &", 20, "no rule"),
        ("token-bucket 1099511627777/1s", 14, "above 2^40"),
        ("token-bucket 30000001/s", 14, "above 30000000 units"),
        ("token-bucket 2/50ns", 14, "above 30000000 units"),
        ("token-bucket 1/8761d", 14, "more than 24 years"),
        ("token-bucket 1/8760d burst=2", 28, "burst of 2"),
        ("token-bucket 1/8760d initial=2", 30, "more than 24 years"),
        ("token-bucket 5/110000d", 16, "292 years"),
        (
            "token-bucket 5/300000d",
            16,
            "not a period of at most 292 years",
        ),
    ] {
        let error = text.parse::<tollgate::AnyRule>().unwrap_err();
        assert_eq!(error.column(), Some(column), "{text}: {error}");
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
    assert!(TokenBucket::per_second(1).try_burst(0).is_err());
    assert!(TokenBucket::per_second(1).try_initial(u64::MAX).is_err());
    for quota in [
        Quota::new(1, Quota::MAX_PERIOD),
        Quota::per_second(FASTEST + 1),
    ] {
        assert!(TokenBucket::try_new(quota).is_err());
        assert!(TokenBucket::try_from(quota).is_err());
    }
}

#[test]
fn quotas_print_what_parses_back() {
    for text in [
        "100/1m", "5/10s", "10/s", "250/1h", "1/90s", "7/1500us", "3/1ns", "1/7d", "2/500ms",
    ] {
        assert_eq!(text.parse::<Quota>().unwrap().to_string(), text);
    }
    assert_eq!("10/m".parse::<Quota>().unwrap(), Quota::per_minute(10));
}

#[test]
#[should_panic(expected = "count in larger units")]
fn a_literal_rate_above_the_highest_panics() {
    let _ = TokenBucket::per_second(FASTEST + 1);
}

#[test]
#[should_panic(expected = "is 0")]
fn a_literal_quota_of_zero_panics() {
    let _ = TokenBucket::per_second(0);
}

#[test]
#[should_panic(expected = "burst of 0")]
fn a_literal_burst_of_zero_panics() {
    let _ = TokenBucket::per_second(1).burst(0);
}

#[test]
fn less_than_the_burst_can_be_kept_free() {
    let bucket = TokenBucket::per_second(10);
    for kept in [10, 11, u64::MAX] {
        assert!(bucket.try_keep_free(kept).is_err());
    }
    assert!(bucket.keep_free(9).try_burst(9).is_err());
    let keeping = bucket.keep_free(4);
    assert_eq!(keeping.burst(20), bucket.burst(20).keep_free(4));
    assert_eq!(keeping.initial(1), bucket.initial(1).keep_free(4));
    assert_eq!((keeping.capacity(), keeping.kept_free()), (10, 4));
    assert_eq!(keeping.keep_free(0), bucket);
    let third = keeping.scaled(1, 3).to_string();
    assert_eq!(third, "token-bucket 10/3s burst=3 keep-free=2");
    assert!(bucket.keep_free(8).try_scaled(1, 5).is_err());
}

/// Corrections know nothing of what is kept free.
#[test]
fn corrections_are_those_of_the_whole_bucket() {
    let bucket = TokenBucket::per_second(10);
    let keeping = bucket.keep_free(4);
    let left = |rule: TokenBucket, state: &Option<TokenBucketState>| {
        rule.look(state.as_ref(), at(0)).remaining().unwrap()
    };
    let mut state = None;
    let charge = step(&keeping, &mut state, 0, 6).take_charge().unwrap();
    keeping.settle(&mut state, &charge, at(0), 9);
    assert_eq!((left(bucket, &state), left(keeping, &state)), (1, 0));
    let refused = step(&keeping, &mut state, 0, 1);
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(400)));
    assert_eq!(refused.reset_after(), Duration::from_millis(900));
    assert!(step(&bucket, &mut state, 0, 1).is_admitted());

    let mut state = None;
    let charge = step(&bucket, &mut state, 0, 10).take_charge().unwrap();
    keeping.settle(&mut state, &charge, at(0), 0);
    assert_eq!((left(bucket, &state), left(keeping, &state)), (10, 6));
}

/// Guards the sign of the state where a debt crosses zero.
#[test]
fn a_forced_debt_is_repaid_over_time() {
    let (rule, mut state) = (TokenBucket::per_second(1).burst(10), None);
    let charge = step(&rule, &mut state, 0, 5).take_charge().unwrap();
    rule.settle(&mut state, &charge, at(0), 25);
    let refused = step(&rule, &mut state, 0, 1);
    assert_eq!(refused.remaining(), Some(0));
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(16)));
    assert!(refused.reset_after() == Duration::from_secs(25));
}

/// A bucket whose initial fill is not its burst is forgotten some time after it was full. Looks do
/// not delay that.
#[test]
fn reset_after_of_a_full_bucket_decreases_with_time() {
    for (initial, wait) in [(5, 601), (0, 601), (20, 600)] {
        let text = format!("token-bucket 10/1s initial={initial} keep=10m");
        let rule: TokenBucket = text.parse().unwrap();
        let second = |second: u64| Timestamp::from_nanos(second * 1_000_000_000);
        let mut state = None;
        rule.step(&mut state, second(0), Cost::ONE);
        let end = rule.forgettable_at(&state.unwrap());
        assert!(end <= second(wait), "{text}: {end:?}");
        for now in [2, 300, 599] {
            let look = rule.look(state.as_ref(), second(now));
            let reset = second(now).saturating_add(look.reset_after());
            assert_eq!(reset, end, "{text} after {now} s");
        }
    }
}
