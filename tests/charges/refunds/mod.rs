//! Settlements that refund units, with several open charges per key. They never refund units that
//! have refilled already.
//!
//! The law, on every store: an exact meter over the actual costs refuses no admitted call. A refund
//! is exact if the bucket has not filled up and no other write came since.

mod meter;
mod once;
#[cfg(all(target_os = "linux", feature = "redis"))]
mod redis;
mod stores;

use proptest::prelude::*;
#[cfg(all(target_os = "linux", feature = "redis"))]
use support::servers;
use tollgate::{
    AnyRule, Cost, Decision, Quota, Timestamp, TokenBucket,
    algorithm::{Algorithm, Codec},
};

use self::meter::Meter;
use crate::common::memory;

const NOON: u64 = 1_800_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(NOON + nanos)
}

fn units(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

/// An event of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Spend(u64),
    /// Settles one of the open charges.
    Settle(usize, u64),
    /// Lets time pass, in thousandths of the time that the bucket takes to fill.
    Pass(u64),
}

pub(crate) fn ops(length: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (1..60_u64).prop_map(Op::Spend),
        4 => (0..64_usize, 0..70_u64).prop_map(|(call, actual)| {
            // Most calls cost less than was charged, or nothing.
            Op::Settle(call, actual.saturating_sub(30))
        }),
        3 => (0..400_u64).prop_map(Op::Pass),
        1 => Just(Op::Pass(0)),
    ];
    prop::collection::vec(op, 1..length)
}

/// Returns rules of one or several token buckets, and their buckets.
pub(crate) fn rules() -> Vec<(&'static str, Vec<TokenBucket>)> {
    let bucket = |amount, seconds, burst| {
        let period = std::time::Duration::from_secs(seconds);
        TokenBucket::new(Quota::new(amount, period)).burst(burst)
    };
    vec![
        ("token-bucket 100/1m", vec![bucket(100, 60, 100)]),
        ("token-bucket 7/1s burst=100", vec![bucket(7, 1, 100)]),
        ("token-bucket 3/1s burst=61", vec![bucket(3, 1, 61)]),
        (
            "token-bucket 1000000007/60s burst=70",
            vec![bucket(1_000_000_007, 60, 70)],
        ),
        (
            "token-bucket 100/1m & token-bucket 9/1s burst=60",
            vec![bucket(100, 60, 100), bucket(9, 1, 60)],
        ),
        (
            "cascade 1/1s burst=50 > 100/1m",
            vec![bucket(1, 1, 50), bucket(100, 60, 100)],
        ),
        (
            "three-color 1/1s burst=40 peak=2/1s peak-burst=90",
            vec![bucket(1, 1, 40), bucket(2, 1, 90)],
        ),
        (
            "token-bucket 100/1m & fixed-window 99999/1s",
            vec![bucket(100, 60, 100)],
        ),
    ]
}

/// Returns the indices of the buckets that an admission was charged to.
pub(crate) fn charged(text: &str, decision: &Decision, buckets: usize) -> Vec<usize> {
    match (text.split(' ').next(), decision.class()) {
        (Some("cascade"), class) => vec![class.into()],
        // A green request spends both buckets, a yellow one the peak bucket.
        (Some("three-color"), 1) => vec![1],
        _ => (0..buckets).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(2_000) as u32, ..ProptestConfig::default() })]

    #[test]
    fn an_exact_meter_over_actual_costs_refuses_nothing_that_a_rule_admitted(
        which in 0..rules().len(), ops in ops(60),
    ) {
        let (text, buckets) = rules().swap_remove(which);
        let rule: AnyRule = text.parse().unwrap();
        let fills = buckets.iter().map(fills_in).min().unwrap();
        let (mut state, mut now, mut meter) = (None, 0, Meter::new(&buckets));
        let mut open = Vec::new();
        for op in ops {
            match op {
                Op::Pass(part) => now += fills / 1000 * part,
                Op::Spend(cost) => {
                    let mut decision = rule.step(&mut state, at(now), units(cost)).decision();
                    if let Some(charge) = decision.take_charge() {
                        let charged = charged(text, &decision, buckets.len());
                        open.push((meter.admit(&decision, charged, cost), charge));
                    }
                }
                Op::Settle(call, actual) if !open.is_empty() => {
                    let (call, charge) = open.swap_remove(call % open.len());
                    rule.settle(&mut state, &charge, at(now), actual);
                    meter.settle(call, actual);
                }
                Op::Settle(..) => {}
            }
        }
        prop_assert_eq!(meter.refused(), Vec::<String>::new(), "{}", text);
    }
}

/// Returns the time that a bucket takes to fill, in nanoseconds.
pub(crate) fn fills_in(bucket: &TokenBucket) -> u64 {
    let (quota, burst) = (bucket.quota(), bucket.capacity());
    u64::try_from(u128::from(quota.period_nanos()) * u128::from(burst) / u128::from(quota.amount()))
        .unwrap()
}

/// A charge of 50 is refilled after 30 s. A later refund of it must not refund the charges made
/// since.
#[test]
fn refilled_units_are_not_refunded_again() {
    let (rule, mut state) = (TokenBucket::per_minute(100), None);
    let first = rule
        .step(&mut state, at(0), units(50))
        .decision()
        .take_charge()
        .unwrap();
    rule.step(&mut state, at(30 * SECOND), units(10));
    rule.settle(&mut state, &first, at(31 * SECOND), 0);
    // 90 at 30 s, plus the refill of a second: 91.67.
    assert_eq!(
        rule.look(state.as_ref(), at(31 * SECOND)).remaining(),
        Some(91)
    );
}

/// The second charge comes after the first on the time axis, and moves forward when the first is
/// refunded.
#[test]
fn a_refund_moves_later_charges_forward() {
    let (rule, mut state) = (TokenBucket::per_minute(100), None);
    let mut charge = |now, cost| {
        let mut decision = rule.step(&mut state, at(now), units(cost)).decision();
        (decision.take_charge().unwrap(), state)
    };
    let (first, _) = charge(0, 50);
    let (second, mut state) = charge(0, 50);
    rule.settle(&mut state, &first, at(10 * SECOND), 0);
    rule.step(&mut state, at(30 * SECOND), units(10));
    rule.settle(&mut state, &second, at(35 * SECOND), 0);
    // The actual costs leave 98.33. Units of the second charge that refill may have restored are
    // not refunded.
    let remaining = rule
        .look(state.as_ref(), at(35 * SECOND))
        .remaining()
        .unwrap();
    assert!((90..=98).contains(&remaining), "{remaining}");
}

/// Returns the bytes of a state with another sum of refunds. They end with two numbers: that sum,
/// and an instant. Only the last byte of a number is below 128.
fn with_sum(state: &[u8], mut sum: u64) -> Vec<u8> {
    let last_number = |bytes: &[u8]| {
        let others = &bytes[..bytes.len() - 1];
        let end = others.iter().rposition(|byte| *byte < 0x80);
        end.map_or(0, |end| end + 1)
    };
    let until = last_number(state);
    let mut bytes = state[..last_number(&state[..until])].to_vec();
    while sum >= 0x80 {
        bytes.push(sum as u8 | 0x80);
        sum >>= 7;
    }
    bytes.push(sum as u8);
    bytes.extend(&state[until..]);
    bytes
}

/// A key that is never full keeps the sum of all refunds, for years.
#[test]
fn refunds_are_exact_whatever_was_refunded_before() {
    let rule = TokenBucket::per_minute(100);
    let remaining = |sum| {
        let mut state = None;
        let charge = |state: &mut _, cost| {
            let mut decision = rule.step(state, at(0), units(cost)).decision();
            decision.take_charge().unwrap()
        };
        let (first, _) = (charge(&mut state, 30), charge(&mut state, 50));
        rule.settle(&mut state, &first, at(SECOND), 0);
        let mut bytes = Vec::new();
        state.as_ref().unwrap().encode(&mut bytes);
        state = Some(Codec::decode(&mut with_sum(&bytes, sum).as_slice()).unwrap());
        // 25 s of time are refunded in all.
        let mut left = Vec::new();
        for _ in 0..3 {
            let [first, second] = [15, 10].map(|cost| charge(&mut state, cost));
            for charge in [first, second] {
                rule.settle(&mut state, &charge, at(SECOND), 0);
                left.push(rule.look(state.as_ref(), at(SECOND)).remaining());
            }
        }
        left
    };
    let expected = remaining(0);
    for bit in 58..64 {
        for less in [1, 20 * SECOND] {
            let sum = (1 << bit) - less;
            assert_eq!(remaining(sum), expected, "2^{bit} - {less}");
        }
    }
    assert_eq!(remaining(u64::MAX), expected);
}

/// Concurrent requests, each charged an estimate and settled to less. While the bucket is in
/// constant use, refunds are complete.
#[test]
fn open_charges_of_a_busy_key_are_refunded_in_full() {
    let rule = TokenBucket::per_minute(60_000);
    let (mut state, mut now, mut used, mut open) = (None, 0, 0, std::collections::VecDeque::new());
    // Each request takes 10 s and costs 300 of 1000.
    for _ in 0..6_000 {
        now += SECOND / 10;
        while let Some((ends, _)) = open.front() {
            if *ends > now {
                break;
            }
            let (_, charge) = open.pop_front().unwrap();
            rule.settle(&mut state, &charge, at(now), 300);
            used += 300;
        }
        while let Some(charge) = rule
            .step(&mut state, at(now), units(1000))
            .decision()
            .take_charge()
        {
            open.push_back((now + 10 * SECOND, charge));
        }
    }
    // The refill is 1000 a second, and 60,000 were there at the start.
    let available = 60_000 + now / SECOND * 1_000;
    assert!(used * 100 >= available * 85, "{used} of {available}");
}
