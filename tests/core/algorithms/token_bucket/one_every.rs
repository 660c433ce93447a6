//! `TokenBucket::one_every`: one token a period, exactly.
//!
//! Invariants:
//!
//! - After a full burst, the k-th further admission of a client that never stops asking comes k
//!   periods later, to the nanosecond.
//! - governor decides the same for the quota that the documentation names.
//! - The text parses back to an equal bucket.
//! - A period that a bucket cannot have is an error, or a panic that has its text.

use std::{num::NonZeroU32, time::Duration};

use governor::{RateLimiter, clock::FakeRelativeClock};
use proptest::prelude::*;
use support::rational::LONGEST;
use tollgate::{AnyRule, Cost, Quota, Timestamp, TokenBucket, algorithm::Algorithm};

/// The shortest period, in nanoseconds: 3·10⁷ tokens a second are 33⅓ ns apart.
const SHORTEST: u64 = 34;

/// Periods of any magnitude whose bucket of 20 tokens fills in time.
fn periods() -> impl Strategy<Value = Duration> {
    let nanos = (0..60_u32, any::<u64>()).prop_map(|(bits, more)| {
        let nanos = (1 << bits) | more & ((1 << bits) - 1);
        nanos.clamp(SHORTEST, LONGEST / 20)
    });
    let written =
        prop::sample::select(vec![1, 2, 60, 1500, 86_400_000]).prop_map(|ms| ms * 1_000_000);
    prop_oneof![nanos, written].prop_map(Duration::from_nanos)
}

/// A client that asks at every nanosecond is admitted at these instants: it is refused just before
/// each, by a wait of a nanosecond.
fn assert_exact(begin: u64, period: u64, burst: u64, mut ask: impl FnMut(u64) -> Result<(), u128>) {
    for _ in 0..burst {
        assert_eq!(ask(begin), Ok(()), "the burst");
    }
    assert_eq!(ask(begin), Err(period.into()));
    for admission in 1..=20 {
        let instant = begin + admission * period;
        assert_eq!(ask(instant - 1), Err(1), "before admission {admission}");
        assert_eq!(ask(instant), Ok(()), "admission {admission}");
        assert_eq!(ask(instant), Err(period.into()), "after {admission}");
    }
}

/// Returns an answer as an admission or a wait in nanoseconds.
fn answer(decision: &tollgate::Decision) -> Result<(), u128> {
    let wait = || decision.retry_after().expect("a wait").as_nanos();
    if decision.is_admitted() {
        Ok(())
    } else {
        Err(wait())
    }
}

proptest! {
    #[test]
    fn admissions_are_exactly_one_period_apart(
        begin in 0..1_u64 << 60, period in periods(), burst in 1..=20_u64,
    ) {
        let rule = TokenBucket::one_every(period).burst(burst);
        let mut state = None;
        assert_exact(begin, period.as_nanos() as u64, burst, |at| {
            let step = rule.step(&mut state, Timestamp::from_nanos(at), Cost::ONE);
            answer(&step.decision())
        });
    }

    /// A store in memory packs the state.
    #[cfg(feature = "test-util")]
    #[test]
    fn they_are_in_memory_too(begin in 0..1_u64 << 60, period in periods(), burst in 1..=20_u64) {
        use tollgate::{Limiter, Policy, store::LocalBuilder, time::ManualClock};

        let clock = ManualClock::new(Timestamp::from_nanos(begin));
        let store = LocalBuilder::new().clock(clock.clone()).build();
        let rule = TokenBucket::one_every(period).burst(burst);
        let limiter = Limiter::new(Policy::new("exact"), rule, store);
        assert_exact(begin, period.as_nanos() as u64, burst, |at| {
            clock.set(Timestamp::from_nanos(at));
            answer(&limiter.check("alice", Cost::ONE).at_once())
        });
    }

    #[test]
    fn it_is_the_quota_of_governor(
        period in periods(), burst in 1..=20_u32,
        pauses in prop::collection::vec((0..8_u32, -2..=2_i64), 1..100),
    ) {
        let quota = governor::Quota::with_period(period).unwrap();
        let quota = quota.allow_burst(NonZeroU32::new(burst).unwrap());
        let clock = FakeRelativeClock::default();
        let theirs = RateLimiter::direct_with_clock(quota, clock.clone());
        let ours = TokenBucket::one_every(period).burst(burst.into());
        let (mut state, mut now) = (None, 0);
        for (quarters, more) in pauses {
            let pause = period / 4 * quarters;
            let pause = (pause.as_nanos() as u64).saturating_add_signed(more);
            // 200 years are what both can count.
            prop_assume!(now + pause < 1 << 62);
            now += pause;
            clock.advance(Duration::from_nanos(pause));
            let decision = ours.step(&mut state, Timestamp::from_nanos(now), Cost::ONE).decision();
            prop_assert_eq!(decision.is_admitted(), theirs.check().is_ok(), "at {}", now);
        }
    }

    #[test]
    fn its_text_parses_back(period in periods(), burst in 1..=20_u64) {
        let rule = TokenBucket::one_every(period).burst(burst);
        let text = rule.to_string();
        prop_assert_eq!(text.parse(), Ok(rule), "{}", text);
        prop_assert_eq!(text.parse(), Ok(AnyRule::from(rule)), "{}", text);
    }
}

#[test]
fn it_is_written_in_the_largest_unit() {
    for (millis, text) in [
        (1_000, "token-bucket 1/s"),
        (2_000, "token-bucket 1/2s"),
        (1_500, "token-bucket 1/1500ms"),
        (60_000, "token-bucket 1/1m"),
        (86_400_000, "token-bucket 1/1d"),
    ] {
        let rule = TokenBucket::one_every(Duration::from_millis(millis));
        assert_eq!(rule.to_string(), text);
        assert_eq!(text.parse(), Ok(rule));
        assert_eq!(rule.capacity(), 1, "{text}");
    }
}

#[test]
fn periods_end_where_buckets_do() {
    const A_CONSTANT: TokenBucket = TokenBucket::one_every(Duration::from_nanos(SHORTEST));
    assert_eq!(A_CONSTANT.quota().period_nanos(), SHORTEST);
    let longest = TokenBucket::one_every(Duration::from_nanos(LONGEST));
    assert_eq!(longest.quota().period_nanos(), LONGEST);
    for (period, reason) in [
        (Duration::ZERO, "the period of the quota is 0: expected"),
        (
            Duration::from_nanos(SHORTEST - 1),
            "above 30000000 units a second: expected",
        ),
        (
            Duration::from_nanos(LONGEST + 1),
            "more than 24 years: expected",
        ),
        (Duration::MAX, "292 years): expected"),
    ] {
        let fallible = Quota::try_new(1, period).and_then(TokenBucket::try_new);
        let error = fallible
            .expect_err("a period that no bucket has")
            .to_string();
        assert!(error.contains(reason), "{period:?}: {error}");
        let panic = std::panic::catch_unwind(|| TokenBucket::one_every(period));
        let panic = panic.expect_err("a period that no bucket has");
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        assert_eq!(text, Some(&*error), "{period:?}");
    }
}
