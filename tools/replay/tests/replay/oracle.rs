//! Random lines, compared with token buckets in rational arithmetic, in the slow obvious way.

use std::collections::HashMap;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use support::rational::{interval, whole};

use crate::program::under;

/// `amount` tokens per `period` nanoseconds, at most `burst`.
#[derive(Clone, Copy, Debug)]
struct Rule {
    amount: u64,
    period: u64,
    burst: u64,
}

impl Rule {
    fn text(&self) -> String {
        format!(
            "token-bucket {}/{}ns burst={}",
            self.amount, self.period, self.burst
        )
    }

    /// Returns the nanoseconds in which this many tokens refill.
    fn price(&self, tokens: impl Into<BigInt>) -> BigRational {
        whole(tokens) * interval(self.amount, self.period, self.burst)
    }

    fn full(&self) -> BigRational {
        self.price(self.burst)
    }
}

/// The filling of a key in nanoseconds, with its instant. The last charge: its instant, its cost,
/// and the instant at which the bucket would be full again after it, rounded down.
#[derive(Clone, Default)]
struct Bucket {
    held: Option<(BigRational, u64)>,
    charge: Option<(u64, u64, BigRational)>,
}

impl Bucket {
    /// Returns the filling and its instant. Time is clamped to the last write.
    fn level(&self, rule: &Rule, now: u64) -> (BigRational, u64) {
        match &self.held {
            None => (rule.full(), now),
            Some((held, since)) => {
                let at = now.max(*since);
                let held = held + whole(at - since);
                (held.min(rule.full()), at)
            }
        }
    }

    /// Returns `remaining`, and a function for the wait until a filling is reached.
    fn numbers(&self, rule: &Rule, now: u64) -> (u64, impl Fn(BigRational) -> BigInt + use<>) {
        let (level, at) = self.level(rule, now);
        let tokens = (&level / rule.price(1)).floor().to_integer();
        let wait = move |target: BigRational| {
            let lacking = target - &level;
            if lacking <= BigRational::zero() {
                BigInt::zero()
            } else {
                (whole(at - now) + lacking).ceil().to_integer()
            }
        };
        (tokens.to_u64().expect("at most the burst"), wait)
    }

    /// Returns the fields of the answer after the key.
    fn answer(&mut self, rule: &Rule, now: u64, cost: u64, op: Op) -> String {
        if op == Op::Refund {
            return self.refund(rule, now);
        }
        let (level, at) = self.level(rule, now);
        let passes = cost <= rule.burst && level >= rule.price(cost);
        let (_, wait) = self.numbers(rule, now);
        let retry = match passes {
            true => "0".to_owned(),
            false if cost > rule.burst => String::new(),
            false => wait(rule.price(cost)).to_string(),
        };
        if passes && op == Op::Spend {
            let left = level - rule.price(cost);
            let full_at = whole(at) + (rule.full() - &left).floor();
            self.held = Some((left, at));
            self.charge = Some((now, cost, full_at));
        }
        let (remaining, wait) = self.numbers(rule, now);
        let reset = wait(rule.full());
        let verdict = if passes { "allow,0" } else { "deny," };
        format!("{verdict},{remaining},{retry},{reset},")
    }

    fn refund(&mut self, rule: &Rule, now: u64) -> String {
        let charge = self.charge.take();
        if let (Some((charged_at, cost, end)), Some((held, since))) =
            (charge.clone(), self.held.clone())
        {
            let mut back = rule.price(cost);
            let full_at = whole(since) + (rule.full() - &held).max(BigRational::zero());
            // It is the last charge, unless another rule was used since.
            let is_last = full_at < &end + rule.price(1).min(whole(1_000));
            if charged_at != since && !is_last {
                let end = end.max(whole(charged_at) + back.floor());
                back = back.min((end - whole(since)).max(BigRational::zero()));
            }
            // As if it had never been charged: refill above the burst is lost when it comes. A full
            // bucket is unchanged.
            if whole(now) < full_at {
                let new = (&held + back).min(rule.full());
                self.held = Some((new.max(held), since));
            }
        }
        let (remaining, wait) = self.numbers(rule, now);
        let verdict = if charge.is_some() { "allow,0" } else { "deny," };
        format!("{verdict},{remaining},,{},", wait(rule.full()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Spend,
    Look,
    Refund,
}

#[derive(Clone, Debug)]
enum Line {
    Call {
        forward: i64,
        key: u8,
        cost: u64,
        op: Op,
    },
    Rule(Rule),
}

/// Generates rules whose interval is a whole number of nanoseconds, so that states carry over
/// exactly.
fn whole_rules() -> impl Strategy<Value = Rule> {
    (1..1000_u64, 1..200_000_000_u64, 1..12_u64).prop_map(|(amount, interval, burst)| Rule {
        amount,
        period: amount * interval,
        burst,
    })
}

fn any_rules() -> impl Strategy<Value = Rule> {
    let rules = (1..1000_u64, 1_000_000..2_000_000_000_u64, 1..12_u64);
    prop_oneof![
        rules.prop_map(|(amount, period, burst)| Rule {
            amount,
            period,
            burst
        }),
        whole_rules(),
    ]
}

fn calls() -> impl Strategy<Value = Line> {
    let forward = prop_oneof![
        3 => Just(0),
        5 => 0..200_000_000_i64,
        1 => 0..100_000_000_000_i64,
        2 => -3_000_000_000..0_i64,
    ];
    let cost = prop_oneof![8 => 1..4_u64, 2 => 1..14_u64, 1 => Just(u64::MAX)];
    let op = prop_oneof![6 => Just(Op::Spend), 2 => Just(Op::Look), 2 => Just(Op::Refund)];
    (forward, 0..4_u8, cost, op).prop_map(|(forward, key, cost, op)| Line::Call {
        forward,
        key,
        cost,
        op,
    })
}

fn check(first: Rule, start: u64, lines: &[Line]) -> Result<(), TestCaseError> {
    let (mut now, mut rule) = (start, first);
    let mut buckets: HashMap<u8, Bucket> = HashMap::new();
    let (mut input, mut expected) = (String::new(), Vec::new());
    for line in lines {
        match *line {
            Line::Rule(next) => {
                rule = next;
                input += &format!("{now},,0,rule,{}\n", rule.text());
            }
            Line::Call {
                forward,
                key,
                cost,
                op,
            } => {
                now = now.saturating_add_signed(forward).min(i64::MAX as u64);
                let word = match op {
                    Op::Spend => "",
                    Op::Look => "look",
                    Op::Refund => "refund",
                };
                input += &format!("{now},k{key},{cost},{word}\n");
                let answer = buckets.entry(key).or_default().answer(&rule, now, cost, op);
                expected.push(format!("{now},k{key},{answer}"));
            }
        }
    }
    let end = under(&first.text(), &input);
    prop_assert_eq!((end.code, &*end.errors), (Some(0), ""));
    let answers = end.lines();
    for (answer, expected) in answers.iter().zip(&expected) {
        prop_assert_eq!(answer, expected, "{}\n{}", first.text(), input);
    }
    prop_assert_eq!(answers.len(), expected.len());
    Ok(())
}

fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1_700_000_000_000_000_000),
        Just(i64::MAX as u64 - 1_000_000_000),
        0..=i64::MAX as u64,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn answers_equal_the_oracle(
        rule in any_rules(), start in starts(), lines in prop::collection::vec(calls(), 1..250),
    ) {
        check(rule, start, &lines)?;
    }

    #[test]
    fn answers_equal_the_oracle_when_rules_change(
        rule in whole_rules(),
        start in starts(),
        lines in prop::collection::vec(
            prop_oneof![9 => calls(), 1 => whole_rules().prop_map(Line::Rule)],
            1..250,
        ),
    ) {
        check(rule, start, &lines)?;
    }
}
