//! The leaky bucket: the laws, its numbers compared with an [`oracle`] in rational arithmetic,
//! cancelled calls compared with a list of [`places`], and its valid settings and bytes.

mod oracle;
mod places;
mod settings;

use std::time::Duration;

use num_rational::BigRational;
use num_traits::ToPrimitive;
use proptest::prelude::*;
use support::rational::interval;
use tollgate::{
    Charge, Cost, Decision, LeakyBucket, Quota, Timestamp, TokenBucket, Verdict,
    algorithm::Algorithm,
};

use crate::algorithms::laws::{Keeps, beginnings, hold, ops};

type LeakyBucketState = <LeakyBucket as Algorithm>::State;

const SECOND: u64 = 1_000_000_000;

fn bucket(text: &str) -> LeakyBucket {
    format!("leaky-bucket {text}").parse().unwrap()
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn step<A: Algorithm>(rule: &A, state: &mut Option<A::State>, now: u64, cost: u64) -> Decision {
    rule.step(state, at(now), Cost::new(cost).unwrap())
        .decision()
}

/// Returns the delay of an admitted call in nanoseconds.
fn delay(decision: &Decision) -> Option<u64> {
    match decision.verdict() {
        Verdict::Allow => Some(0),
        Verdict::Delay(delay) => Some(delay.as_nanos() as u64),
        _ => None,
    }
}

proptest! {
    #[test]
    fn laws_hold(begin in beginnings(), first in 0..8_usize, ops in ops(10 * SECOND, 10)) {
        let mut rules = [
            "10/s",
            "7/1s queue=3",
            "3/1s queue=30",
            "1/365d",
            "30000000/s",
            "5/10s queue=0",
            "10/s queue=20 max-wait=500ms",
            "7/1s max-wait=1s",
        ]
        .map(bucket);
        rules.rotate_left(first);
        hold(&rules, Keeps::ALL, begin, &ops);
    }

    /// A leaky bucket admits like a token bucket that holds one token more than the queue.
    #[test]
    fn admits_like_a_token_bucket(
        amount in 1..2_000_u64,
        period in prop::sample::select(vec![SECOND, 7 * SECOND, 60 * SECOND, 86_400 * SECOND]),
        queue in 0..20_u64,
        calls in prop::collection::vec((0..2 * SECOND, 1..8_u64, 0..4_u64), 1..80),
    ) {
        let quota = Quota::new(amount, Duration::from_nanos(period));
        let leaky = LeakyBucket::new(quota).queue(queue);
        let tokens = TokenBucket::new(quota).burst(queue + 1);
        let (mut now, mut backlog, mut level) = (1_800_000_000 * SECOND, None, None);
        for (gap, cost, often) in calls {
            now = if often == 3 { now - gap / 8 } else { now + gap };
            for _ in 0..=often {
                let (ours, theirs) = (step(&leaky, &mut backlog, now, cost), step(&tokens, &mut level, now, cost));
                let answer = |decision: &Decision| (
                    decision.is_admitted(),
                    decision.limit(),
                    decision.remaining(),
                    decision.retry_after(),
                    decision.reset_after(),
                    decision.more_after(),
                );
                prop_assert_eq!(answer(&ours), answer(&theirs));
            }
        }
    }

    /// Holds for any arrivals, also after idle time.
    #[test]
    fn departures_are_an_interval_apart(
        amount in 1..200_u64,
        queue in 0..20_u64,
        calls in prop::collection::vec((prop_oneof![Just(0), 0..SECOND, 0..100 * SECOND], 1..4_u64), 1..80),
    ) {
        let rule = LeakyBucket::per_second(amount).queue(queue);
        let one = interval(amount, SECOND, queue + 1);
        let interval = |units: u64| {
            let exact = &one * BigRational::from_integer(units.into());
            exact.floor().to_integer().to_u64().unwrap()
        };
        let (mut now, mut state, mut free) = (1_800_000_000 * SECOND, None, 0);
        let mut departed = 0;
        for (gap, cost) in calls {
            now += gap;
            let decision = step(&rule, &mut state, now, cost);
            let Some(delay) = delay(&decision) else { continue };
            prop_assert!(delay <= (queue * SECOND).div_ceil(amount));
            prop_assert!(now + delay >= free, "before its turn");
            prop_assert!(delay == 0 || now + delay <= free + 1, "after its turn");
            free = now + delay + interval(cost);
            departed += 1;
        }
        prop_assert!(departed > 0 || queue < 3);
    }
}

/// The outflow is constant, with no drift in three hundred thousand departures.
#[test]
fn departures_at_three_a_second_do_not_drift() {
    let (rule, mut state) = (LeakyBucket::per_second(3).queue(2), None);
    let mut now = 0;
    for call in 0..300_000_u64 {
        let decision = step(&rule, &mut state, now, 1);
        let departs = now + delay(&decision).unwrap();
        assert_eq!(departs, (call * SECOND).div_ceil(3));
        if decision.remaining() == Some(0) {
            now += decision.more_after().as_nanos() as u64;
        }
    }
}

#[test]
fn a_call_that_would_wait_too_long_is_refused_at_once_for_free() {
    let rule = bucket("10/s queue=50 max-wait=250ms");
    let mut state = None;
    let delays: Vec<_> = (0..3)
        .map(|_| delay(&step(&rule, &mut state, 0, 1)))
        .collect();
    assert_eq!(delays, [Some(0), Some(SECOND / 10), Some(SECOND / 5)]);
    let before = state.clone();
    let refused = step(&rule, &mut state, 0, 1);
    assert_eq!(refused.verdict(), Verdict::Refuse);
    assert_eq!(refused.remaining(), Some(0));
    assert_eq!(refused.limit(), Some(51));
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(50)));
    assert_eq!(state, before);
    let due = step(&rule, &mut state, SECOND / 20, 1);
    assert_eq!(
        due.verdict(),
        Verdict::Delay(Duration::from_millis(250)),
        "as long as it may"
    );
}

#[test]
fn a_call_delays_the_calls_after_it_by_its_cost() {
    let (rule, mut state) = (LeakyBucket::per_second(10).queue(9), None);
    assert_eq!(step(&rule, &mut state, 0, 10).verdict(), Verdict::Allow);
    let refused = step(&rule, &mut state, 0, 1);
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
    assert_eq!(refused.reset_after(), Duration::from_secs(1));
    let next = step(&rule, &mut state, SECOND / 10, 1);
    assert_eq!(next.verdict(), Verdict::Delay(Duration::from_millis(900)));
}

#[test]
fn without_a_queue_a_call_passes_only_when_the_bucket_is_idle() {
    let (rule, mut state) = (LeakyBucket::per_second(10).queue(0), None);
    for call in 0..5 {
        let now = call * SECOND / 10;
        assert_eq!(step(&rule, &mut state, now, 1).verdict(), Verdict::Allow);
        for later in [0, 1, SECOND / 10 - 1] {
            let refused = step(&rule, &mut state, now + later, 1);
            let wait = Duration::from_nanos(SECOND / 10 - later);
            assert_eq!(refused.retry_after(), Some(wait));
        }
    }
    assert_eq!(step(&rule, &mut state, 0, 2).retry_after(), None);
}

#[test]
fn a_look_returns_the_delay_of_one_unit() {
    let (rule, mut state) = (LeakyBucket::per_second(10).queue(1), None);
    assert_eq!(rule.look(None, at(0)).verdict(), Verdict::Allow);
    step(&rule, &mut state, 0, 1);
    let look = rule.look(state.as_ref(), at(0));
    assert_eq!(look.verdict(), Verdict::Delay(Duration::from_millis(100)));
    assert_eq!((look.remaining(), { look }.take_charge()), (Some(1), None));
    step(&rule, &mut state, 0, 1);
    let look = rule.look(state.as_ref(), at(0));
    assert_eq!(look.verdict(), Verdict::Refuse);
    assert_eq!(look.retry_after(), Some(Duration::from_millis(100)));
}

/// The other waits are relative to the clock. A delay is not.
#[test]
fn a_clock_that_steps_back_does_not_lengthen_delays() {
    let (rule, mut state) = (LeakyBucket::per_second(2).queue(2), None);
    assert_eq!(delay(&step(&rule, &mut state, 3600 * SECOND, 1)), Some(0));
    assert_eq!(delay(&step(&rule, &mut state, 0, 1)), Some(SECOND / 2));
    assert_eq!(delay(&step(&rule, &mut state, 0, 1)), Some(SECOND));
    let refused = step(&rule, &mut state, 0, 1);
    let expected = Some(Duration::from_millis(3_600_500));
    assert_eq!(refused.retry_after(), expected);
    assert_eq!(refused.reset_after(), Duration::from_millis(3_601_500));
    assert_eq!(
        delay(&step(&rule, &mut state, 3600 * SECOND + SECOND / 2, 1)),
        Some(SECOND)
    );
}

#[test]
fn extreme_values_neither_overflow_nor_round() {
    let year = 365 * 86_400 * SECOND;
    let most = Quota::MAX_AMOUNT;
    let slow = bucket("1/365d").queue(23);
    let mut state = None;
    assert_eq!(delay(&step(&slow, &mut state, 0, 23)), Some(0));
    let last = step(&slow, &mut state, 0, 1);
    assert_eq!(delay(&last), Some(23 * year));
    assert_eq!(last.remaining(), Some(0));
    assert_eq!(last.more_after(), Duration::from_nanos(year));
    let next = slow.look(state.as_ref(), at(year - 1));
    assert_eq!(next.retry_after(), Some(Duration::from_nanos(1)));
    let nearly = slow.look(state.as_ref(), at(24 * year - 1));
    assert_eq!(nearly.remaining(), Some(23));
    let end = i64::MAX as u64;
    let idle = slow.look(state.as_ref(), at(end));
    assert_eq!(idle.remaining(), Some(24));

    let fast = bucket("30000000/s").queue(most - 1);
    let mut state = None;
    assert_eq!(delay(&step(&fast, &mut state, end, most - 1)), Some(0));
    let last = step(&fast, &mut state, end, 1);
    let interval = interval(30_000_000, SECOND, most);
    let exact = interval * BigRational::from_integer((most - 1).into());
    assert_eq!(delay(&last), exact.ceil().to_integer().to_u64());
    let refused = step(&fast, &mut state, end, 10);
    assert_eq!(refused.retry_after(), Some(Duration::from_nanos(334)));
    assert_eq!(step(&fast, &mut state, end, u64::MAX).retry_after(), None);
    let charge = Charge::new(at(end), 1).with_delay(None);
    for rule in [fast, slow] {
        rule.settle(&mut state, &charge, at(end), u64::MAX);
        let look = rule.look(state.as_ref(), at(end));
        assert_eq!(look.remaining(), Some(0), "a forced charge saturates");
    }
}

/// An interval that is not a whole number of ticks is rounded down, by as much as is documented.
#[test]
fn a_rate_that_is_rounded_stays_close_to_the_quota() {
    let rule = bucket("29702971/s").queue(Quota::MAX_AMOUNT - 1);
    let mut state = None;
    step(&rule, &mut state, 0, Quota::MAX_AMOUNT);
    let drained = rule.look(state.as_ref(), at(100 * SECOND)).remaining();
    let exact = 2_970_297_100;
    assert!((exact..=exact + exact / 99).contains(&drained.unwrap()));
}

#[test]
fn a_backlog_of_decades_is_kept_in_full() {
    let year = 365 * 86_400 * SECOND;
    let interval = interval(7, year, 161);
    let rule = bucket("7/365d queue=160");
    let mut state = None;
    for calls in 0..32_u64 {
        let delay = match step(&rule, &mut state, 0, 5).verdict() {
            Verdict::Delay(delay) => delay.as_nanos(),
            verdict => {
                assert_eq!((calls, verdict), (0, Verdict::Allow));
                0
            }
        };
        let exact = &interval * BigRational::from_integer((5 * calls).into());
        assert_eq!(exact.ceil().to_integer().to_u128(), Some(delay));
    }
}

/// A call keeps the delay that it was given, and no later call departs before it.
#[test]
fn a_new_rule_queues_calls_after_the_backlog() {
    let (old, mut state) = (LeakyBucket::per_second(10), None);
    for _ in 0..11 {
        step(&old, &mut state, 0, 1);
    }
    let faster = LeakyBucket::per_second(1_000);
    let refused = step(&faster, &mut state, 0, 1);
    assert_eq!(
        refused.retry_after(),
        Some(Duration::from_millis(100)),
        "a longer backlog is a full queue"
    );
    let first = step(&faster, &mut state, SECOND / 10, 1);
    assert_eq!(first.verdict(), Verdict::Delay(Duration::from_secs(1)));
    let roomier = LeakyBucket::per_second(1).queue(100);
    let behind = step(&roomier, &mut state, SECOND / 10, 1);
    assert_eq!(
        behind.verdict(),
        Verdict::Delay(Duration::from_millis(1001))
    );
}

#[test]
fn a_state_is_small() {
    assert_eq!(size_of::<Option<LeakyBucketState>>(), 32);
}
