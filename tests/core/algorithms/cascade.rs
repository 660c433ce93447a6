//! The cascade obeys the laws, and equals a list of buckets in rational arithmetic.

pub(crate) mod common;
mod oracle;

use std::time::Duration;

use num_rational::BigRational;
use num_traits::ToPrimitive;
use proptest::prelude::*;
use support::rational::whole;
use tollgate::{
    AnyRule, Cascade, Charge, Cost, Decision, Quota, TokenBucket, Verdict,
    algorithm::{Algorithm, Codec, Step},
};

use self::{
    common::{Bucket, DAY, SECOND, at, bears, bucket, equals, put_number, span, units},
    oracle::{Fillings, buckets, cascade},
};
use crate::algorithms::{
    answer::Answer,
    laws::{Keeps, beginnings, hold, ops},
};

type AnyState = <AnyRule as Algorithm>::State;
type CascadeState = <Cascade as Algorithm>::State;

/// Includes costs that some buckets can never pay.
const AT_REST: [&str; 8] = [
    "cascade 100/1m > 7/1s burst=3",
    "cascade 3/1s burst=30 > 1/365d > 5/10s burst=1",
    "cascade 5/10s",
    "cascade 30000000/s > 1/s burst=100",
    "cascade 7/1s burst=2 > 3/1s burst=50 > 1/60s burst=5 > 100/1m",
    "cascade 60/1m burst=100 > 60/1m burst=100",
    "cascade 1/365d > 9/1h > 9/1h > 9/1h > 9/1h > 9/1h > 9/1h > 2/1s burst=80",
    "cascade 60/1m burst=100 keep-free=40 > 7/1s keep-free=2",
];

fn parsed(texts: &[&str]) -> Vec<Cascade> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

proptest! {
    #[test]
    fn laws_hold(begin in beginnings(), first in 0..AT_REST.len(), ops in ops(60 * SECOND, 100)) {
        let mut rules = parsed(&AT_REST);
        rules.rotate_left(first);
        hold(&rules, Keeps::ALL, begin, &ops);
    }

    #[test]
    fn laws_hold_with_other_initial_fills(begin in beginnings(), first in 0..4_usize, ops in ops(10 * SECOND, 8)) {
        let mut rules = parsed(&[
            "cascade 5/10s keep-free=2 initial=0 > 8/20s",
            "cascade 5/10s > 3/10s burst=8 initial=12 keep=1h",
            "cascade 5/10s initial=9 > 7/1s burst=3 initial=0 keep=0s > 1/1m initial=2",
            "cascade 8/10s initial=0",
        ]);
        rules.rotate_left(first);
        hold(&rules, Keeps { starts_at_rest: false, never_shrinks: false, ..Keeps::ALL }, begin, &ops);
    }

    #[test]
    fn equals_the_oracle(list in buckets(false), begin in beginnings(), ops in ops(10 * SECOND, 20)) {
        equals(&[list], |list| cascade(list), Fillings::default(), begin, &ops);
    }

    /// Whole intervals only: a fraction of a nanosecond would be rounded when the state carries
    /// over.
    #[test]
    fn equals_the_oracle_while_rules_change(
        lists in prop::collection::vec(buckets(true), 2..4), begin in beginnings(), ops in ops(10 * SECOND, 20),
    ) {
        equals(&lists, |list| cascade(list), Fillings::default(), begin, &ops);
    }

    /// A settlement corrects the bucket that paid, as if the call had had the actual cost. No other
    /// bucket changes.
    #[test]
    fn a_settled_charge_equals_a_call_of_the_actual_cost(
        list in buckets(false), before in prop::collection::vec(1..20_u64, 0..5), cost in 1..20_u64, actual in 0..20_u64,
        share in 0..1000_u64,
    ) {
        let at_rest = |bucket: Bucket| Bucket { initial: bucket.burst, ..bucket };
        let list: Vec<_> = list.into_iter().map(at_rest).collect();
        let (rule, mut state) = (cascade(&list), None);
        for cost in before {
            rule.step(&mut state, at(0), units(cost));
        }
        let mut instead = state.clone();
        let charged = rule.step(&mut state, at(SECOND), units(cost)).decision();
        let Some(charge) = { charged }.take_charge() else {
            return Ok(());
        };
        prop_assert_eq!(charge.class, u32::from(charged.class()));
        // A time before the bucket is full again.
        let refill = whole(cost) * list[charge.class as usize].interval();
        let gap = (refill * whole(share) / whole(1000)).to_integer().to_u64().unwrap();
        let now = at(SECOND.saturating_add(gap).min(1 << 62));
        rule.settle(&mut state, &charge, now, actual);
        if let Some(actual) = Cost::new(actual) {
            let direct = rule.step(&mut instead, at(SECOND), actual).decision();
            if { direct }.take_charge().map(|charge| charge.class) != Some(charge.class) {
                return Ok(());
            }
        }
        prop_assert_eq!(Answer::of(&rule.look(state.as_ref(), now)), Answer::of(&rule.look(instead.as_ref(), now)));
    }

    #[test]
    fn two_cascades_each_settle_their_own_bucket(
        a in buckets(true), b in buckets(true), c in bucket(true), calls in prop::collection::vec((0..SECOND, 1..9_u64, 0..12_u64), 1..20),
    ) {
        let (a, b, c) = (cascade(&a), cascade(&b), c.rule());
        let pair = (a.clone(), (c, b.clone()));
        let text = format!("{a} & {c} & {b}");
        let any: AnyRule = text.parse().unwrap();
        prop_assert_eq!(any.to_string(), text);
        prop_assert_eq!(any.class_bits(), a.class_bits() + b.class_bits());
        let (mut in_pair, mut in_any) = (None, None);
        let (mut alone_a, mut alone_b, mut alone_c) = (None, None, None);
        let mut now = 0;
        for (gap, cost, actual) in calls {
            now += gap;
            let decision = pair.step(&mut in_pair, at(now), units(cost)).decision();
            let other = any.step(&mut in_any, at(now), units(cost)).decision();
            prop_assert_eq!({ decision }.take_charge(), { other }.take_charge());
            let Some(charge) = { decision }.take_charge() else {
                // A refusal may start buckets that do not start at rest.
                (alone_a, alone_b, alone_c) = parts(&in_pair);
                continue;
            };
            let step_a = a.step(&mut alone_a, at(now), units(cost)).decision();
            let step_b = b.step(&mut alone_b, at(now), units(cost)).decision();
            let step_c = c.step(&mut alone_c, at(now), units(cost)).decision();
            prop_assert_eq!(decision.class(), step_a.class().max(step_b.class()));
            a.settle(&mut alone_a, &{ step_a }.take_charge().unwrap(), at(now), actual);
            b.settle(&mut alone_b, &{ step_b }.take_charge().unwrap(), at(now), actual);
            c.settle(&mut alone_c, &{ step_c }.take_charge().unwrap(), at(now), actual);
            pair.settle(&mut in_pair, &charge, at(now), actual);
            any.settle(&mut in_any, &charge, at(now), actual);
            prop_assert_eq!(parts(&in_pair), (alone_a.clone(), alone_b.clone(), alone_c));
            let alone = [alone_a.to_bytes(), alone_c.to_bytes(), alone_b.to_bytes()].concat();
            prop_assert!(in_any.to_bytes().ends_with(&alone));
        }
    }

    #[test]
    fn the_quota_is_the_sum_of_the_rates(list in buckets(false)) {
        let rate = |quota: Quota| BigRational::new(quota.amount().into(), quota.period_nanos().into());
        let rates: Vec<_> = list.iter().map(|bucket| rate(bucket.quota())).collect();
        let (sum, quota) = (rates.iter().sum::<BigRational>(), cascade(&list).quota());
        let nanos = sum.denom().to_u64();
        let fits = nanos.zip(sum.numer().to_u64()).is_some_and(|(nanos, amount)| {
            Quota::try_new(amount, Duration::from_nanos(nanos)).is_ok()
        });
        prop_assert_eq!(rate(quota), if fits { sum } else { rates.into_iter().max().unwrap() });
    }

    #[test]
    fn text_parses_back(list in buckets(false)) {
        let rule = cascade(&list);
        let parsed: Cascade = rule.to_string().parse().unwrap();
        prop_assert_eq!(parsed.to_string(), rule.to_string());
        prop_assert_eq!(parsed.quota(), rule.quota());
        prop_assert_eq!(parsed.capacity(), rule.capacity());
        prop_assert_eq!(parsed.buckets().len(), list.len());
    }

    #[test]
    fn no_text_panics(text in "cascade [0-9a-z/= >]{0,40}") {
        if let Err(error) = text.parse::<Cascade>() {
            let column = error.column().unwrap();
            prop_assert!((1..=text.len() + 1).contains(&column), "{}: {}", text, error);
        }
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, first in 0..AT_REST.len()) {
        decoded_state_decides(&bytes, first);
        decoded_state_decides(&[&[0x49][..], &bytes].concat(), first);
    }

    /// States with arbitrary numbers.
    #[test]
    fn no_state_panics(states in prop::collection::vec((any::<u64>(), span(), any::<u32>()), 1..=8), first in 0..AT_REST.len()) {
        let mut bytes = vec![0x49, states.len() as u8];
        for (written_at, whole, fraction) in states {
            bytes.push(0x11);
            put_number(&mut bytes, written_at >> 1);
            put_number(&mut bytes, whole);
            put_number(&mut bytes, fraction.into());
        }
        prop_assert!(decoded_state_decides(&bytes, first));
    }
}

fn parts(
    pair: &Option<<(Cascade, (TokenBucket, Cascade)) as Algorithm>::State>,
) -> (
    Option<CascadeState>,
    Option<CascadeState>,
    Option<<TokenBucket as Algorithm>::State>,
) {
    let Some((a, rest)) = pair else {
        return (None, None, None);
    };
    let (c, b) = rest.clone().unwrap_or_default();
    (a.clone(), b, c)
}

/// Runs every operation on the bytes, if they are a state.
fn decoded_state_decides(bytes: &[u8], first: usize) -> bool {
    let Ok(state) = CascadeState::from_bytes(bytes) else {
        return false;
    };
    assert_eq!(
        CascadeState::from_bytes(&state.to_bytes()),
        Ok(state.clone())
    );
    let mut texts = AT_REST.to_vec();
    texts.push("cascade 5/10s initial=0 > 8/20s initial=30 keep=200000d");
    texts.rotate_left(first);
    bears(&parsed(&texts), &state);
    true
}

fn step<A: Algorithm>(rule: &A, state: &mut Option<A::State>, now: u64, cost: u64) -> Decision {
    rule.step(state, at(now), units(cost)).decision()
}

/// The first bucket that can pay is charged. A large cost skips small buckets.
#[test]
fn the_first_bucket_that_can_pay_is_charged() {
    let rule = Cascade::new(TokenBucket::per_second(2)).then(TokenBucket::per_second(1).burst(5));
    let mut state = None;
    let mut classes = Vec::new();
    for cost in [1, 4, 1, 1] {
        let decision = step(&rule, &mut state, 0, cost);
        classes.push((decision.class(), { decision }.take_charge().unwrap().class));
    }
    assert_eq!(classes, [(0, 0), (1, 1), (0, 0), (1, 1)]);
    let refused = step(&rule, &mut state, 0, 1);
    assert_eq!(refused.verdict(), Verdict::Refuse);
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(500)));
    // The first bucket has two tokens sooner. Only the second can hold three.
    let refused = step(&rule, &mut state, 0, 2);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    let refused = step(&rule, &mut state, 0, 3);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(3)));
    assert_eq!(refused.reset_after(), Duration::from_secs(5));
    assert_eq!(
        (refused.limit(), refused.quota()),
        (Some(5), Some(Quota::per_second(3)))
    );
    assert_eq!(step(&rule, &mut state, 0, 6).retry_after(), None);
}

#[test]
fn a_cost_is_never_split_between_buckets() {
    let bucket = TokenBucket::per_second(3);
    let (rule, mut state) = (Cascade::new(bucket).then(bucket), None);
    assert_eq!(rule.look(state.as_ref(), at(0)).remaining(), Some(3));
    assert!(!step(&rule, &mut state, 0, 4).is_admitted());
    assert!(step(&rule, &mut state, 0, 3).is_admitted());
    assert!(step(&rule, &mut state, 0, 3).is_admitted());
}

#[test]
fn one_bucket_alone_is_a_token_bucket() {
    for text in [
        "100/1m burst=150",
        "7/1s burst=3",
        "5/10s initial=0",
        "5/10s initial=12 keep=1h",
    ] {
        let (bucket, rule): (TokenBucket, Cascade) = (
            format!("token-bucket {text}").parse().unwrap(),
            format!("cascade {text}").parse().unwrap(),
        );
        assert_eq!(
            (rule.quota(), rule.capacity()),
            (bucket.quota(), bucket.capacity())
        );
        assert_eq!(rule, bucket.into());
        assert_eq!(rule.class_bits(), 0);
        let (mut alone, mut state) = (None, None);
        for (now, cost) in [
            (0, 1),
            (0, 3),
            (3, 2),
            (1, 1),
            (9, 200),
            (DAY, 3),
            (2 * DAY, 1),
            (9, 1),
        ] {
            assert_eq!(
                step(&bucket, &mut alone, now, cost),
                step(&rule, &mut state, now, cost)
            );
            assert_eq!(
                bucket.look(alone.as_ref(), at(now)),
                rule.look(state.as_ref(), at(now))
            );
        }
    }
}

#[test]
fn all_buckets_begin_when_the_key_is_first_seen() {
    let rule: Cascade = "cascade 1/s > 1/s burst=5 initial=0".parse().unwrap();
    let mut state = None;
    assert_eq!(step(&rule, &mut state, 0, 1).class(), 0);
    // Not at the first admitted call, three seconds later.
    assert_eq!(step(&rule, &mut state, 3 * SECOND, 1).class(), 0);
    assert_eq!(step(&rule, &mut state, 3 * SECOND, 3).class(), 1);
    assert!(!step(&rule, &mut state, 3 * SECOND, 1).is_admitted());

    let mut refused = None;
    let first = rule.step(&mut refused, at(0), units(2));
    assert!(matches!(first, Step::Wrote(_)), "{first:?}");
    assert_eq!(first.decision().retry_after(), Some(Duration::from_secs(2)));
    assert!(step(&rule, &mut refused, 2 * SECOND, 2).is_admitted());

    let mut too_much = None;
    assert!(!step(&rule, &mut too_much, 0, 6).is_admitted());
    assert_eq!(
        too_much, None,
        "a cost that can never pass leaves the state unchanged"
    );
}

#[test]
fn the_initial_fill_is_not_repeated_while_the_key_is_in_use() {
    let rule: Cascade = "cascade 1/s > 1/s initial=9 keep=1m".parse().unwrap();
    let mut state = None;
    for now in 0..1000 {
        assert!(step(&rule, &mut state, now * SECOND, 1).is_admitted());
    }
    assert_eq!(
        step(&rule, &mut state, 1000 * SECOND, 9).retry_after(),
        None
    );
    let classes = [(); 12].map(|()| {
        step(&rule, &mut state, 1000 * SECOND, 1)
            .take_charge()
            .map(|charge| charge.class)
    });
    let spent: Vec<u32> = classes.into_iter().flatten().collect();
    assert_eq!(
        spent,
        [0, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        "the initial fill, once"
    );
}

#[test]
fn an_exhausted_client_stays_exhausted_when_buckets_are_added() {
    let one: Cascade = "cascade 1/s burst=3".parse().unwrap();
    let two: Cascade = "cascade 1/s burst=3 > 2/s burst=20".parse().unwrap();
    let mut state = None;
    assert!(step(&one, &mut state, 0, 3).is_admitted());
    assert!(
        !step(&two, &mut state, 0, 1).is_admitted(),
        "an added bucket starts empty"
    );
    assert_eq!(
        two.look(state.as_ref(), at(10 * SECOND)).remaining(),
        Some(20)
    );
    assert_eq!(
        two.look(state.as_ref(), at(4 * SECOND)).remaining(),
        Some(8)
    );
    assert_eq!(two.forgettable_at(state.as_ref().unwrap()), at(10 * SECOND));

    assert_eq!(step(&two, &mut state, 4 * SECOND, 4).class(), 1);
    assert_eq!(step(&one, &mut state, 4 * SECOND, 3).class(), 0);
    assert_eq!(
        two.look(state.as_ref(), at(4 * SECOND)).remaining(),
        Some(0),
        "a removed bucket that is added again starts empty"
    );
}

#[test]
fn a_clock_that_steps_back_refills_no_bucket() {
    let rule: Cascade = "cascade 1/s burst=2 > 1/s burst=10".parse().unwrap();
    let mut state = None;
    assert_eq!(step(&rule, &mut state, 0, 10).class(), 1);
    assert_eq!(step(&rule, &mut state, 4 * SECOND, 2).class(), 0);
    // The clock steps back four seconds. The second bucket has its level at the last write to the
    // first.
    let refused = step(&rule, &mut state, 0, 5);
    assert_eq!(refused.remaining(), Some(4));
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(5)));
    assert_eq!(refused.more_after(), Duration::from_secs(5));
    assert_eq!(refused.reset_after(), Duration::from_secs(10));
}

#[test]
fn settling_a_charge_of_an_unknown_class_changes_nothing() {
    let rule: Cascade = "cascade 1/s burst=2 > 1/s burst=10".parse().unwrap();
    let mut state = None;
    step(&rule, &mut state, 0, 2);
    let before = state.clone();
    let (at, delay) = (at(0), None);
    for class in [2, 7, 8, u32::MAX] {
        rule.settle(
            &mut state,
            &Charge::new(at, 1).with_class(class).with_delay(delay),
            at,
            0,
        );
        assert_eq!(state, before);
    }
}

#[test]
fn class_bits_depend_on_the_number_of_buckets() {
    let bucket = TokenBucket::per_second(1);
    let bits = (1..=8).scan(Cascade::new(bucket), |rule, _| {
        let bits = rule.class_bits();
        *rule = rule.clone().try_then(bucket).unwrap_or(rule.clone());
        Some(bits)
    });
    assert_eq!(bits.collect::<Vec<_>>(), [0, 1, 2, 2, 3, 3, 3, 3]);
}

#[test]
fn quotas_add_up() {
    for (text, sum) in [
        ("100/1m", "100/1m"),
        ("10/s > 5/s", "15/s"),
        ("100/1m > 1/s", "160/1m"),
        ("1/7d > 1/1d > 1/1d", "15/7d"),
        ("1/s > 30000000/s", "30000001/s"),
        // The sum is no quota, so the fastest rate is reported.
        (
            "1/600000000000000003ns > 1/500000000000000009ns",
            "1/500000000000000009ns",
        ),
        // The sum uses a period shorter than the common one.
        (
            "1/700000000s > 1/600000000s > 1/500000000s > 1/21s",
            "333333369/7000000000s",
        ),
    ] {
        let rule: Cascade = format!("cascade {text}").parse().unwrap();
        assert_eq!(
            rule.quota().to_string(),
            sum.parse::<Quota>().unwrap().to_string(),
            "{text}"
        );
    }
}

#[test]
fn invalid_texts_are_errors_with_a_column_and_a_reason() {
    for (text, column, word) in [
        ("cascade", 8, "ends too early"),
        ("cascade > 5/s", 8, "ends too early"),
        ("cascade 5/s >", 14, "no bucket behind `>`"),
        ("cascade 5/s > > 5/s", 14, "no bucket behind `>`"),
        ("cascade 5/s > burst=3", 22, "no `/` in the quota"),
        ("cascade 0/s > 5/s", 9, "is 0"),
        ("cascade 5/s > 0/s", 15, "is 0"),
        ("cascade 5/s >5/x", 16, "unknown unit `x`"),
        ("cascade 5/s burst=2 > 5/s burst=0", 33, "burst of 0"),
        (
            "cascade 5/s > 5/s brust=1 > 5/s",
            19,
            "unknown setting `brust`",
        ),
        ("cascade 5/s > token-bucket 5/s", 27, "no `/` in the quota"),
        ("cascades 5/s", 1, "unknown algorithm `cascades`"),
        (
            "cascade 1/s > 1/s > 1/s > 1/s > 1/s > 1/s > 1/s > 1/s >  1/s",
            58,
            "more than 8 buckets",
        ),
        (
            "token-bucket 5/s & cascade 5/s > 5/y",
            36,
            "unknown unit `y`",
        ),
    ] {
        let error = text.parse::<AnyRule>().unwrap_err();
        assert!(error.to_string().contains(word), "{text}: {error}");
        assert_eq!(error.column(), Some(column), "{text}: {error}");
    }
    let eight = parsed(&[AT_REST[6]]).remove(0);
    let error = eight.try_then(TokenBucket::per_second(1)).unwrap_err();
    assert!(error.to_string().contains("at most 8"), "{error}");
    let text = "cascade 10/s>5/s burst=20 initial=30 keep=1h"
        .parse::<Cascade>()
        .unwrap();
    assert_eq!(
        text.to_string(),
        "cascade 10/s > 5/s burst=20 initial=30 keep=1h"
    );
    assert_eq!(
        format!("{text:?}"),
        "Cascade(cascade 10/s > 5/s burst=20 initial=30 keep=1h)"
    );
}

#[test]
#[should_panic(expected = "more than 8 buckets")]
fn a_literal_of_nine_buckets_panics() {
    let _ = parsed(&[AT_REST[6]])
        .remove(0)
        .then(TokenBucket::per_second(1));
}

#[test]
fn states_are_small() {
    assert!(size_of::<CascadeState>() <= 48);
    assert!(size_of::<AnyState>() <= 56);
}

#[test]
fn damaged_bytes_are_refused() {
    let (rule, mut state) = (parsed(&[AT_REST[1]]).remove(0), None);
    step(&rule, &mut state, 0, 1);
    let bytes = state.unwrap().to_bytes();
    assert_eq!(bytes[..2], [0x49, 3]);
    for wrong in [0, 2, 4, 9, 0x80] {
        let mut bytes = bytes.clone();
        bytes[1] = wrong;
        assert!(CascadeState::from_bytes(&bytes).is_err(), "{wrong}");
    }
    for end in 0..bytes.len() {
        assert!(CascadeState::from_bytes(&bytes[..end]).is_err(), "{end}");
    }
}
