//! Shares of a rule: never more than the part, and as close to it as possible.

use std::time::Duration;

use num_rational::BigRational;
use proptest::prelude::*;
use support::rational::{FASTEST, ratio};
use tollgate::{
    AnyRule, Cost, FixedWindow, Quota, Timestamp, TokenBucket,
    algorithm::{Algorithm, FleetRule},
};

/// Returns the tokens per nanosecond.
fn rate(quota: Quota) -> BigRational {
    ratio(
        quota.amount(),
        u64::try_from(quota.period().as_nanos()).unwrap(),
    )
}

fn buckets() -> impl Strategy<Value = TokenBucket> {
    let amount = prop_oneof![1..200_u64, 1..=1_u64 << 40];
    let period = prop_oneof![
        Just(1_000_000_000_u64),
        1..100_000_000_000_u64,
        1_000_000_000..=i64::MAX as u64
    ];
    (
        amount,
        period,
        prop_oneof![1..100_u64, 1..=1_u64 << 40],
        0..100_u64,
        prop_oneof![2 => Just(0), 1 => 0..100_u64],
    )
        .prop_filter_map("cannot be", |(amount, period, burst, initial, kept)| {
            let quota = Quota::try_new(amount, Duration::from_nanos(period)).ok()?;
            let bucket = TokenBucket::try_new(quota).ok()?.try_burst(burst).ok()?;
            let bucket = bucket.keep_free(kept.min(burst - 1));
            if initial % 3 == 0 {
                bucket.try_initial(initial).ok()
            } else {
                Some(bucket)
            }
        })
}

fn numbers() -> impl Strategy<Value = (u64, u64)> {
    let number = || prop_oneof![4 => 1..20_u64, 1 => 1..=u64::MAX];
    (number(), number())
}

fn held(bucket: &TokenBucket) -> u64 {
    bucket.look(None, Timestamp::default()).remaining().unwrap()
}

proptest! {
    #[test]
    fn a_share_never_exceeds_its_part(bucket in buckets(), (numerator, denominator) in numbers()) {
        let share = ratio(numerator, denominator);
        let whole_tokens = |tokens: u64| (ratio(tokens, 1) * &share).floor();
        match bucket.try_scaled(numerator, denominator) {
            Ok(scaled) => {
                prop_assert_eq!(ratio(scaled.capacity(), 1), whole_tokens(bucket.capacity()));
                let exact = rate(bucket.quota()) * &share;
                let rate = rate(scaled.quota());
                prop_assert!(rate <= exact);
                // If the part is not exact, the share is less by at most one part in the amount.
                let next = BigRational::new(
                    (scaled.quota().amount() + 1).into(),
                    scaled.quota().period_nanos().into(),
                );
                let slower = BigRational::new(
                    scaled.quota().amount().into(),
                    (scaled.quota().period_nanos().max(2) - 1).into(),
                );
                prop_assert!(rate == exact || next > exact || slower > exact);
                prop_assert!(held(&scaled) <= held(&bucket) || share > ratio(1, 1));
            }
            Err(error) => {
                let none_left = whole_tokens(bucket.capacity()) < ratio(1, 1);
                let too_fast = rate(bucket.quota()) * &share * ratio(1_000_000_000, 1) > ratio(FASTEST, 1);
                let too_large = whole_tokens(bucket.capacity()) > ratio(1_u64 << 40, 1);
                let too_many = rate(bucket.quota()) * &share * ratio(i64::MAX, 1) < ratio(1, 1);
                // A share is an error only if it is impossible.
                let amount = ratio(bucket.quota().amount(), 1) * &share > ratio(1_u64 << 40, 1);
                let slow = error.to_string().contains("more than 24 years");
                let all_kept = (ratio(bucket.kept_free(), 1) * &share).ceil() >= whole_tokens(bucket.capacity());
                prop_assert!(none_left || all_kept || too_fast || too_large || too_many || amount || slow, "{}", error);
            }
        }
    }

    /// The shares of n nodes sum to at most the whole.
    #[test]
    fn shares_of_all_nodes_sum_to_at_most_the_whole(bucket in buckets(), nodes in 1..50_u64) {
        let Ok(share) = bucket.try_scaled(1, nodes) else { return Ok(()) };
        prop_assert!(share.capacity() * nodes <= bucket.capacity());
        prop_assert!(share.kept_free() * nodes >= bucket.kept_free());
        prop_assert!(rate(share.quota()) * ratio(nodes, 1) <= rate(bucket.quota()));
        prop_assert_eq!(bucket.try_scaled(1, 1).unwrap(), bucket);
    }
}

#[test]
fn shares_print_as_expected() {
    for (whole, share, scaled) in [
        ("90/1m", (1, 3), "30/1m"),
        ("100/1m", (1, 3), "100/3m burst=33"),
        ("1/s burst=10", (1, 2), "1/2s burst=5"),
        ("3/s burst=7", (2, 3), "2/s burst=4"),
        ("10/s initial=5 keep=1h", (1, 2), "5/s initial=2 keep=1h"),
        ("10/s initial=0", (1, 10), "1/s initial=0"),
        ("10/s", (3, 2), "15/s"),
        ("10/s keep-free=3", (1, 2), "5/s keep-free=2"),
    ] {
        let whole: TokenBucket = format!("token-bucket {whole}").parse().unwrap();
        let scaled = format!("token-bucket {scaled}");
        assert_eq!(whole.scaled(share.0, share.1).to_string(), scaled);
        let any = AnyRule::from(whole).node_share(share.0, share.1).unwrap();
        assert_eq!(any.to_string(), scaled);
        let pair = (whole, (whole, whole)).node_share(share.0, share.1);
        assert_eq!(pair.unwrap().1.1.to_string(), scaled);
    }
}

#[test]
fn an_impossible_share_is_an_error_with_a_reason() {
    let bucket = TokenBucket::per_second(2);
    let assert_error = |numerator, denominator, words: &str| {
        let error = bucket.try_scaled(numerator, denominator).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    };
    assert_error(0, 1, "at least 1, as in 1/3");
    assert_error(1, 0, "at least 1, as in 1/3");
    assert_error(1, 3, "of a burst of 2: expected at least one whole unit");
    assert_error(u64::MAX, 1, "expected");
    for other in [
        "leaky-bucket 10/s",
        "token-bucket 10/s & warm-up 9/s over=1s",
    ] {
        let rule: AnyRule = other.parse().unwrap();
        let error = rule.node_share(1, 2).unwrap_err().to_string();
        assert!(error.contains(".rule("), "{error}");
        assert!(error.contains(&other[other.len() - 10..]), "{error}");
    }
    let window = FixedWindow::per_second(2).node_share(1, 3).unwrap_err();
    let expected = "of a limit of 2: expected at least one whole unit";
    assert!(window.to_string().contains(expected), "{window}");
}

/// A share of a window begins when the window does.
#[test]
fn shares_of_windows_differ_in_their_limit_alone() {
    for (whole, share, part) in [
        ("fixed-window 100/1m", (1, 3), "fixed-window 33/1m"),
        (
            "fixed-window 9/1d offset=22h",
            (2, 3),
            "fixed-window 6/1d offset=22h",
        ),
        (
            "fixed-window 9/1d offset=spread",
            (1, 3),
            "fixed-window 3/1d offset=spread",
        ),
        (
            "fixed-window 9/1d from=first-call",
            (1, 9),
            "fixed-window 1/1d from=first-call",
        ),
        (
            "sliding-window 100/1m slices=4",
            (1, 3),
            "sliding-window 33/1m slices=4",
        ),
        ("sliding-log 10/1m", (1, 4), "sliding-log 2/1m"),
        (
            "token-bucket 10/s & fixed-window 100/1h",
            (1, 2),
            "token-bucket 5/s & fixed-window 50/1h",
        ),
    ] {
        let whole: AnyRule = whole.parse().unwrap();
        let expected: AnyRule = part.parse().unwrap();
        assert_eq!(
            whole.node_share(share.0, share.1).unwrap(),
            expected,
            "{whole}"
        );
        assert_eq!(whole.node_share(1, 1).unwrap(), whole);
    }
}

/// A share decides like any bucket with its numbers.
#[test]
fn a_share_is_a_bucket() {
    let third = TokenBucket::per_minute(90).scaled(1, 3);
    assert_eq!(third, TokenBucket::per_minute(30));
    let (mut state, now) = (None, Timestamp::from_nanos(1));
    let empty = third.step(&mut state, now, Cost::new(30).unwrap());
    assert_eq!(empty.decision().remaining(), Some(0));
    let later = now.saturating_add(Duration::from_secs(2));
    assert_eq!(third.look(state.as_ref(), later).remaining(), Some(1));
}
