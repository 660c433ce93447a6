//! Both warm-ups at rates and times near the largest that can be counted: `remaining` always equals
//! what is admitted.

use std::{fmt::Debug, time::Duration};

use proptest::prelude::*;
use tollgate::{
    Cost, Quota, Timestamp,
    algorithm::{Algorithm, Codec, WarmUp, WarmUpSpaced},
};

use crate::algorithms::laws::{Keeps, beginnings, hold, ops};

const SECOND: u64 = 1_000_000_000;
/// The parts of a nanosecond that a state distinguishes.
const PARTS: u64 = 1 << 32;

/// Generates quotas whose amount is near 2^32, or any, in periods that reduce to lowest terms or
/// not.
fn quotas() -> impl Strategy<Value = Quota> {
    let amounts = prop_oneof![
        2 => 1..1000_u64,
        3 => PARTS - 1000..=PARTS + 1000,
        2 => (PARTS - 10..=PARTS + 10, 1..=256_u64).prop_map(|(parts, more)| parts * more),
        2 => 1..=Quota::MAX_AMOUNT,
    ];
    let periods = prop_oneof![
        3 => Just(SECOND),
        2 => prop::sample::select(vec![2, 7, 3_906_251, 999_999_937, 60 * SECOND]),
        2 => 1..20 * SECOND,
    ];
    (amounts, periods).prop_filter_map("a quota", |(amount, period)| {
        Quota::try_new(amount, Duration::from_nanos(period)).ok()
    })
}

fn times() -> impl Strategy<Value = Duration> {
    prop_oneof![1..100_u64, 1..20 * SECOND, Just(10 * SECOND)].prop_map(Duration::from_nanos)
}

fn colds() -> impl Strategy<Value = u64> {
    prop_oneof![Just(3000), 1001..50_000_u64]
}

/// Spends a part of the remaining units in each second, and then the rest. Each call must be
/// decided as `remaining` says.
fn assert_remaining_passes<A>(rule: &A, begin: Timestamp)
where
    A: Algorithm<State: Codec + Debug> + Debug,
{
    let (mut state, mut now) = (None, begin);
    for part in (1..20).chain(1..20) {
        let remaining = rule.look(state.as_ref(), now).remaining().unwrap();
        for cost in [remaining / part, remaining - remaining / part] {
            let Some(cost) = Cost::new(cost) else {
                continue;
            };
            let before = rule.look(state.as_ref(), now).remaining().unwrap();
            let decision = rule.step(&mut state, now, cost).decision();
            let after = rule.look(state.as_ref(), now).remaining();
            let fits = before >= cost.get();
            assert_eq!(decision.is_admitted(), fits, "{rule:?}: {decision:?}");
            assert_eq!(decision.remaining(), after, "{rule:?}: {decision:?}");
        }
        now = now.saturating_add(Duration::from_secs(1));
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn remaining_units_pass_at_every_valid_rate(
        quota in quotas(), over in times(), cold in colds(), begin in beginnings(), ops in ops(SECOND, 1000),
    ) {
        if let Ok(rule) = WarmUp::try_with(quota, over, cold) {
            assert_remaining_passes(&rule, begin);
            hold(&[rule], Keeps { never_shrinks: false, ..Keeps::ALL }, begin, &ops);
        }
    }

    #[test]
    fn remaining_units_pass_at_every_spaced_rate(
        quota in quotas(), over in times(), cold in colds(), wait in times(), begin in beginnings(), ops in ops(SECOND, 1000),
    ) {
        let rule = WarmUpSpaced::new(quota).try_over(over).and_then(|rule| rule.try_cold_thousandths(cold));
        if let Ok(rule) = rule.and_then(|rule| rule.try_max_wait(wait)) {
            assert_remaining_passes(&rule, begin);
            hold(&[rule], Keeps::ALL, begin, &ops);
        }
    }

    #[test]
    fn exactly_the_rates_that_cannot_be_counted_are_errors(quota in quotas()) {
        let error = WarmUp::try_new(quota).err().map(|error| error.to_string());
        let counted = quota.amount() / gcd(quota.amount(), quota.period_nanos()) <= PARTS;
        let refused = error.as_ref().is_some_and(|error| error.contains("cannot be counted"));
        let too_slow = error.as_ref().is_some_and(|error| error.contains("never warms"));
        prop_assert_eq!(refused, !counted && !too_slow, "{:?}", error);
    }
}

/// A setting stays as it was set, also if it was set to a default, and in any order.
#[test]
fn each_setting_is_kept_in_any_order() {
    const ORDERS: [[usize; 3]; 6] = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    let (times, colds) = ([4, 10, 30], [2_u32, 3, 10]);
    let waits = times
        .into_iter()
        .flat_map(|over| times.map(|wait| (over, wait)));
    let all = waits.flat_map(|(over, wait)| colds.map(|cold| (over, wait, cold)));
    for (over, wait, cold) in all {
        let [over, wait] = [over, wait].map(Duration::from_secs);
        for (order, set) in ORDERS
            .iter()
            .flat_map(|order| [(order, 1), (order, 2), (order, 3)])
        {
            // The first of these settings.
            let order = &order[..set];
            let (mut spaced, mut plain) = (WarmUpSpaced::per_second(20), WarmUp::per_second(20));
            for setting in order {
                (spaced, plain) = match setting {
                    0 => (spaced.over(over), plain.over(over)),
                    1 => (spaced.cold(cold), plain.cold(cold)),
                    _ => (spaced.max_wait(wait), plain),
                };
            }
            let is_set = |setting| order.contains(&setting);
            let expected_over = if is_set(0) {
                over
            } else {
                Duration::from_secs(10)
            };
            let expected_cold = if is_set(1) {
                1000 * u64::from(cold)
            } else {
                3000
            };
            let expected_wait = if is_set(2) { wait } else { expected_over };
            let of = (
                spaced.warms_over(),
                spaced.cold_thousandths(),
                spaced.longest_wait(),
            );
            assert_eq!(
                of,
                (expected_over, expected_cold, expected_wait),
                "{order:?}"
            );
            let of = (plain.warms_over(), plain.cold_thousandths());
            assert_eq!(of, (expected_over, expected_cold), "{order:?}");
            assert_eq!(spaced.to_string().parse(), Ok(spaced));
        }
    }
}
