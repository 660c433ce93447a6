//! Valid and invalid leaky buckets, as text and as bytes.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    AnyRule, Charge, LeakyBucket, Quota,
    algorithm::{Algorithm, Codec},
};

use super::{SECOND, at, bucket, step};

type LeakyBucketState = <LeakyBucket as Algorithm>::State;

#[test]
fn text_parses_back_and_leaves_out_defaults() {
    for (text, printed) in [
        ("10/s", "10/s"),
        ("10/s queue=50 max-wait=2s", "10/s queue=50 max-wait=2s"),
        ("10/s max-wait=2000ms queue=10", "10/s max-wait=2s"),
        ("7/90s queue=0", "7/90s queue=0"),
        ("9999/s queue=1099511627776", "9999/s queue=1099511627776"),
        ("10/1000ms max-wait=1ns", "10/s max-wait=1ns"),
    ] {
        let rule = bucket(text);
        assert_eq!(rule.to_string(), format!("leaky-bucket {printed}"));
        assert_eq!(bucket(printed), rule);
        assert_eq!(format!("{rule:?}"), format!("LeakyBucket({rule})"));
        let any: AnyRule = rule.to_string().parse().unwrap();
        assert_eq!(any, AnyRule::LeakyBucket(rule));
    }
}

#[test]
fn invalid_texts_are_errors_with_a_column_and_a_reason() {
    for (text, column, word) in [
        ("leaky-bucket", 13, "ends too early"),
        ("leaky-bucket 0/1m", 14, "is 0"),
        ("leaky-bucket 10/x", 17, "unknown unit `x`"),
        ("leaky-bucket 30000001/s", 14, "above 30000000 units"),
        ("leaky-bucket 1/4381d", 14, "more than 24 years"),
        ("leaky-bucket 10/s queue=x", 25, "no value for `queue`"),
        (
            "leaky-bucket 10/s queue=1099511627777",
            25,
            "at most 2^40 (1099511627776)",
        ),
        (
            "leaky-bucket 1/365d queue=1099511627776",
            27,
            "more than 24 years",
        ),
        (
            "leaky-bucket 10/s queue=1 queue=2",
            27,
            "`queue` is set twice",
        ),
        (
            "leaky-bucket 10/s queue=5 max-wait=0s",
            36,
            "a max-wait of 0: expected a positive wait",
        ),
        (
            "leaky-bucket 10/s max-wait=2",
            28,
            "no value for `max-wait`",
        ),
        (
            "leaky-bucket 10/s max-wait=2s queue=0",
            28,
            "a queue of 0 together with a max-wait",
        ),
        (
            "leaky-bucket 10/s queue=0 max-wait=2s",
            36,
            "a queue of 0 together with a max-wait",
        ),
        (
            "leaky-bucket 10/s burst=1",
            19,
            "unknown setting `burst`: expected one of `queue=…`, `max-wait=…`",
        ),
    ] {
        let error = text.parse::<LeakyBucket>().unwrap_err();
        assert_eq!(error.column(), Some(column), "{text}: {error}");
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
    let error = "leaky 10/s".parse::<LeakyBucket>().unwrap_err();
    assert!(error.to_string().contains("`leaky-bucket` was expected"));
}

#[test]
fn builders_reject_the_same_settings_as_texts_in_either_order() {
    let rule = LeakyBucket::per_second(10);
    let wait = Duration::from_secs(2);
    let zero = |error: tollgate::Error| error.to_string().contains("a queue of 0 together");
    assert!(zero(rule.queue(0).try_max_wait(wait).unwrap_err()));
    assert!(zero(rule.max_wait(wait).try_queue(0).unwrap_err()));
    assert!(rule.try_max_wait(Duration::ZERO).is_err());
    assert!(rule.try_queue(Quota::MAX_AMOUNT + 1).is_err());
    let rule = LeakyBucket::per_second(10_000);
    assert!(rule.try_queue(Quota::MAX_AMOUNT).is_ok());
    assert!(LeakyBucket::try_new(Quota::new(1, Quota::MAX_PERIOD)).is_err());
    let year = Quota::new(1, Duration::from_secs(365 * 86_400));
    assert!(LeakyBucket::new(year).try_queue(23).is_ok());
    assert!(LeakyBucket::new(year).try_queue(24).is_err());
}

#[test]
fn settings_are_returned_as_set() {
    let quota = Quota::per_minute(100);
    let rule = LeakyBucket::try_from(quota).unwrap();
    assert_eq!(rule, LeakyBucket::per_minute(100));
    assert_eq!((rule.quota(), rule.capacity()), (quota, 101));
    assert_eq!(rule.longest_wait(), None);
    let rule = rule.queue(7).max_wait(Duration::MAX);
    assert_eq!(rule.capacity(), 8);
    assert_eq!(rule.longest_wait(), Some(Duration::from_nanos(u64::MAX)));
    assert_eq!(LeakyBucket::per_hour(5), bucket("5/1h"));
    assert_eq!(LeakyBucket::per_day(5), bucket("5/1d"));
}

#[test]
#[should_panic(expected = "at most 2^40")]
fn a_literal_queue_above_the_maximum_panics() {
    let _ = LeakyBucket::per_second(1).queue(u64::MAX);
}

#[test]
#[should_panic(expected = "a max-wait of 0")]
fn a_literal_max_wait_of_zero_panics() {
    let _ = LeakyBucket::per_second(1).max_wait(Duration::ZERO);
}

#[test]
fn a_state_with_freed_positions_survives_encoding() {
    let (rule, mut state) = (LeakyBucket::per_second(7), None);
    let charges: Vec<_> = (0..8)
        .map(|call| step(&rule, &mut state, call, 1).take_charge().unwrap())
        .collect();
    for charge in [&charges[5], &charges[2], &charges[3]] {
        rule.settle(&mut state, charge, at(8), 0);
    }
    let bytes = state.to_bytes();
    let again = Option::<LeakyBucketState>::from_bytes(&bytes).unwrap();
    assert_eq!(again, state);
    assert_eq!(again.to_bytes(), bytes);
    for end in 1..bytes.len() {
        assert!(LeakyBucketState::from_bytes(&bytes[..end]).is_err());
    }
    // The decoded state still has its freed positions.
    for mut state in [state, again] {
        for charge in [&charges[7], &charges[6], &charges[4], &charges[1]] {
            rule.settle(&mut state, charge, at(8), 0);
        }
        let wait = rule.look(state.as_ref(), at(8)).reset_after();
        let interval = SECOND.div_ceil(7);
        assert_eq!(
            wait,
            Duration::from_nanos(interval - 8),
            "the first is left"
        );
    }
}

proptest! {
    /// Any bytes, including those of a valid state with some of them changed.
    #[test]
    fn any_bytes_that_decode_can_be_used(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff), Just(0), Just(1)], 0..80),
        from in prop::sample::select(vec!["7/1s", "1/365d queue=23", "30000000/s", "3/1s queue=5 max-wait=1s"]),
        now: u64, then: u64, cost: u64, actual: u64, waited in prop::option::of(0..u64::MAX),
    ) {
        let bytes = [&[0x19], &bytes[..]].concat();
        let Ok(read) = LeakyBucketState::decode(&mut &bytes[..]) else {
            return Ok(());
        };
        prop_assert_eq!(&LeakyBucketState::from_bytes(&read.to_bytes()).unwrap(), &read);
        let (rule, mut state) = (bucket(from), Some(read));
        let charge = Charge::new(at(then), cost).with_delay(waited.map(Duration::from_nanos));
        rule.settle(&mut state, &charge, at(now), actual);
        let decision = step(&rule, &mut state, now, cost.max(1));
        prop_assert!(decision.remaining() <= decision.limit());
        let look = rule.look(state.as_ref(), at(then));
        prop_assert!(look.remaining() <= look.limit());
        prop_assert!(rule.forgettable_at(&state.unwrap()) >= at(0));
    }
}
