//! A pacer with explicit times.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    AnyRule, Quota, Timestamp, TokenBucket, Verdict, algorithm::Algorithm, pace::Pacer,
};

use super::{BASE, MILLI, SECOND, Spaced, at, cost};

/// Returns `true` if the rule itself admits a cost at once. The state of a delayed call is dropped.
fn passes<A: Algorithm>(
    rule: &A,
    state: &mut Option<A::State>,
    now: Timestamp,
    units: u64,
) -> bool {
    let mut after = state.clone();
    let decision = rule.step(&mut after, now, cost(units)).decision();
    let delayed = matches!(decision.verdict(), Verdict::Delay(wait) if !wait.is_zero());
    if !delayed {
        *state = after;
    }
    decision.is_admitted() && !delayed
}

/// Compares a pacer with its rule on a timeline of steps and costs. A cost of 0 stands for one unit
/// by the short form.
fn assert_follows<A: Algorithm>(rule: A, timeline: &[(i64, u64)]) -> Result<(), TestCaseError> {
    let pacer = Pacer::new(rule.clone());
    let (mut state, mut now) = (None, BASE);
    for &(step, units) in timeline {
        now = now.saturating_add_signed(step);
        let now = Timestamp::from_nanos(now);
        let before = pacer.look(now);
        let (said, own) = match units {
            0 => (pacer.can_do_work(now), passes(&rule, &mut state, now, 1)),
            _ => {
                let spent = pacer.spend(now, cost(units));
                prop_assert!(spent.is_none_or(|decision| decision.verdict() == Verdict::Allow));
                (spent.is_some(), passes(&rule, &mut state, now, units))
            }
        };
        prop_assert_eq!(said, own, "{} units at {:?}, {:?}", units, now, before);
        if units == 0 {
            prop_assert_eq!(before.verdict() == Verdict::Allow, said);
            let retry = before.retry_after().unwrap();
            prop_assert_eq!(retry.is_zero(), said);
        }
        let own = rule.look(state.as_ref(), now);
        let look = pacer.look(now);
        prop_assert_eq!(look.remaining(), own.remaining());
        prop_assert_eq!(look.reset_after(), own.reset_after());
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_pacer_decides_like_its_rule(
        timeline in prop::collection::vec(
            (
                prop_oneof![
                    4 => 0..200 * MILLI as i64,
                    2 => Just(0),
                    1 => -100 * MILLI as i64..0,
                    1 => Just(i64::MAX),
                    1 => Just(100 * MILLI as i64),
                ],
                prop_oneof![4 => Just(0), 3 => 1..8_u64, 1 => Just(u64::MAX)],
            ),
            1..40,
        )
    ) {
        let bucket = TokenBucket::per_second(10).burst(5);
        assert_follows(bucket, &timeline)?;
        assert_follows(TokenBucket::per_second(10).initial(0), &timeline)?;
        assert_follows(TokenBucket::new(Quota::new(3, Duration::from_nanos(SECOND))), &timeline)?;
        assert_follows((bucket, TokenBucket::per_minute(30)), &timeline)?;
        assert_follows("token-bucket 7/s & token-bucket 30/1m".parse::<AnyRule>().unwrap(), &timeline)?;
        let spaced = Spaced::new(100 * MILLI, 4);
        // The pacer's arithmetic is for times of this century.
        let timeline: Vec<_> = timeline.into_iter().filter(|(step, _)| *step < i64::MAX).collect();
        assert_follows(spaced.clone(), &timeline)?;
        assert_follows((bucket, spaced.clone()), &timeline)?;
        assert_follows((spaced.clone(), bucket), &timeline)?;
        assert_follows(Spaced { last: true, ..spaced }, &timeline)?;
    }
}

#[test]
fn a_refusal_spends_nothing() {
    let spaced = Spaced::new(10 * MILLI, 100);
    let pacer = Pacer::new((TokenBucket::per_second(1000), spaced));
    let mut done = Vec::new();
    for millis in 0..=35 {
        for _ in 0..100 {
            if pacer.can_do_work(at(millis * MILLI)) {
                done.push(millis);
            }
        }
        assert!(pacer.spend(at(millis * MILLI), cost(2)).is_none());
    }
    assert_eq!(done, [0, 10, 20, 30]);
}

#[test]
fn a_look_returns_the_wait_until_work_can_be_done() {
    for pacer in [
        Pacer::new(AnyRule::from(TokenBucket::per_minute(7).burst(2))),
        Pacer::new(AnyRule::from(TokenBucket::per_second(3).initial(0))),
    ] {
        let mut now = at(0);
        for _ in 0..20 {
            while pacer.can_do_work(now) {}
            let wait = pacer.look(now).retry_after().unwrap();
            let due = now.saturating_add(wait);
            assert!(!pacer.can_do_work(Timestamp::from_nanos(due.as_nanos() - 1)));
            assert!(pacer.can_do_work(due));
            now = due;
        }
    }
    let pacer = Pacer::new(Spaced::new(10, 3));
    assert!(pacer.can_do_work(at(0)));
    let look = pacer.look(at(4));
    assert_eq!(look.verdict(), Verdict::Refuse);
    assert_eq!(look.retry_after(), Some(Duration::from_nanos(6)));
    assert!(!pacer.can_do_work(at(9)) && pacer.can_do_work(at(10)));
}

#[test]
fn clones_share_one_budget() {
    let pacer = Pacer::new(TokenBucket::per_second(2));
    let other = pacer.clone();
    assert!(pacer.can_do_work(at(0)));
    assert!(other.can_do_work(at(0)));
    assert!(!pacer.can_do_work(at(0)) && !other.can_do_work(at(0)));
    assert_eq!(other.rule(), &TokenBucket::per_second(2));
    assert_eq!(
        format!("{other:?}"),
        "Pacer { rule: TokenBucket(token-bucket 2/s), .. }"
    );
}

#[test]
fn extremes_spend_no_more_than_the_rule_allows() {
    let slowest = TokenBucket::new(Quota::new(1, Duration::from_secs(24 * 365 * 86_400)));
    for rule in [slowest, TokenBucket::per_second(30_000_000)] {
        let pacer = Pacer::new(rule);
        let capacity = rule.capacity();
        for now in [0, u64::MAX, 1, BASE, u64::MAX / 2].map(Timestamp::from_nanos) {
            assert!(pacer.spend(now, cost(u64::MAX)).is_none());
            assert!(pacer.spend(now, cost(capacity + 1)).is_none());
        }
        assert!(pacer.spend(Timestamp::MAX, cost(capacity)).is_some());
        // Time is clamped to the last write.
        assert!(!pacer.can_do_work(Timestamp::default()));
        assert!(!pacer.can_do_work(Timestamp::MAX));
    }
}
