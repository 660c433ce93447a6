//! The arithmetic of turns, compared with big rationals.

use std::time::Duration;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::ToPrimitive;
use proptest::prelude::*;
use tollgate::{
    Quota, Timestamp,
    pace::{RoundRobin, Turn},
};

use super::{BASE, SECOND, at};

/// ⌈(number + sender / senders) · period⌉, saturating.
fn beginning(period: u64, senders: usize, number: u64, sender: usize) -> Timestamp {
    let share = BigRational::new(BigInt::from(sender), BigInt::from(senders));
    let periods = BigRational::from_integer(BigInt::from(number)) + share;
    let nanos = (periods * BigInt::from(period)).ceil().to_integer();
    Timestamp::from_nanos(nanos.to_u64().unwrap_or(u64::MAX))
}

fn turn_of(period: u64, senders: usize, number: u64, sender: usize) -> Turn {
    Turn {
        sender,
        begins: beginning(period, senders, number, sender),
        ends: beginning(period, senders, number, sender + 1),
        missed: 0,
    }
}

fn schedule(period: u64, senders: usize) -> RoundRobin {
    RoundRobin::new(Duration::from_nanos(period), senders)
}

fn periods() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(SECOND),
        2 => 1..=1000_u64,
        2 => 1..=1_000_000_007_u64,
        1 => 1..=i64::MAX as u64,
        1 => Just(i64::MAX as u64),
    ]
}

proptest! {
    #[test]
    fn turns_begin_at_the_exact_boundaries(
        period in periods(),
        share in 0..=u64::MAX,
        now in prop_oneof![0..1000_u64, BASE..BASE + 10 * SECOND, 0..=u64::MAX],
        few in any::<bool>(),
    ) {
        let most = if few { period.min(200) } else { period };
        let senders = (share % most + 1) as usize;
        let schedule = schedule(period, senders);
        let now = Timestamp::from_nanos(now);
        let turn = schedule.turn(now);
        let number = now.as_nanos() / period;
        prop_assert_eq!(turn, turn_of(period, senders, number, turn.sender));
        prop_assert!(turn.begins <= now && (now < turn.ends || now == Timestamp::MAX));

        for sender in [0, turn.sender.saturating_sub(1), turn.sender, turn.sender + 1, senders - 1] {
            if sender >= senders {
                prop_assert_eq!(schedule.next(now, sender), None);
                continue;
            }
            // The turn in this period, and the next one that starts after now.
            let this = turn_of(period, senders, number, sender);
            let next = if this.begins > now { this } else { turn_of(period, senders, number + 1, sender) };
            prop_assert_eq!(schedule.next(now, sender), Some(next));
        }
    }

    #[test]
    fn each_sender_has_one_turn_in_each_period(period in periods(), share in 0..200_u64) {
        let senders = (share % period + 1) as usize;
        let schedule = schedule(period, senders);
        let begin = BASE / period * period;
        let mut now = Timestamp::from_nanos(begin);
        let (shortest, mut longest) = (period / senders as u64, 0);
        for sender in 0..senders {
            let turn = schedule.turn(now);
            prop_assert_eq!((turn.sender, turn.begins), (sender, now));
            let length = turn.ends.saturating_since(turn.begins).as_nanos() as u64;
            prop_assert!(length >= shortest);
            longest = longest.max(length);
            // The last nanosecond is still part of the turn.
            prop_assert_eq!(schedule.turn(Timestamp::from_nanos(turn.ends.as_nanos() - 1)), turn);
            now = turn.ends;
        }
        prop_assert_eq!(now, Timestamp::from_nanos(begin + period));
        prop_assert_eq!(longest, period.div_ceil(senders as u64));
    }
}

#[test]
fn three_senders_share_a_second_that_three_does_not_divide() {
    let schedule = schedule(SECOND, 3);
    let bounds = [0, 333_333_334, 666_666_667, SECOND];
    for (sender, bound) in bounds.windows(2).enumerate() {
        let turn = Turn {
            sender,
            begins: at(bound[0]),
            ends: at(bound[1]),
            missed: 0,
        };
        assert_eq!(schedule.turn(at(bound[0])), turn);
        assert_eq!(schedule.turn(at(bound[1] - 1)), turn);
    }
    // At its start a turn is the current one, and the next is a period later.
    assert_eq!(schedule.next(at(0), 0).unwrap().begins, at(SECOND));
    assert_eq!(schedule.next(at(0), 1).unwrap().begins, at(333_333_334));
    assert_eq!(schedule.next(at(0), 3), None);
    assert_eq!(schedule.next(at(0), usize::MAX), None);
    assert_eq!(
        (schedule.period(), schedule.senders()),
        (Duration::from_secs(1), 3)
    );
}

#[test]
fn as_many_senders_as_nanoseconds_have_one_nanosecond_each() {
    let longest = Quota::MAX_PERIOD;
    let schedule = RoundRobin::new(longest, i64::MAX as usize);
    for nanos in [0, 1, BASE, i64::MAX as u64 - 1] {
        let turn = schedule.turn(Timestamp::from_nanos(nanos));
        assert_eq!(turn.sender as u64, nanos);
        assert_eq!(turn.begins.as_nanos(), nanos);
        assert_eq!(turn.ends.as_nanos(), nanos + 1);
    }
    assert_eq!(
        schedule.turn(Timestamp::from_nanos(i64::MAX as u64)).sender,
        0
    );
    let last = schedule
        .next(Timestamp::MAX, i64::MAX as usize - 1)
        .unwrap();
    assert_eq!((last.begins, last.ends), (Timestamp::MAX, Timestamp::MAX));
}

#[test]
fn invalid_schedules_are_errors() {
    let error = |period, senders| {
        RoundRobin::try_new(period, senders)
            .unwrap_err()
            .to_string()
    };
    let second = Duration::from_secs(1);
    let period = "the period of a round robin is 0 or above 2^63 - 1 ns (292 years): expected one between; \
                  a second suits most senders";
    assert_eq!(error(Duration::ZERO, 1), period);
    assert_eq!(
        error(Quota::MAX_PERIOD + Duration::from_nanos(1), 1),
        period
    );
    assert_eq!(error(Duration::MAX, 1), period);
    assert_eq!(
        error(second, 0),
        "0 senders in a period of 1s: expected at least 1, and at most one for each nanosecond; \
         wait for a sender, or choose a longer period"
    );
    assert!(error(second, 1_000_000_001).starts_with("1000000001 senders in a period"));
    assert!(error(second, usize::MAX).starts_with("18446744073709551615 senders"));
    assert!(RoundRobin::try_new(second, 1_000_000_000).is_ok());
}

#[test]
#[should_panic(expected = "0 senders in a period of 1s")]
fn the_plain_form_panics_with_the_same_text() {
    let _ = RoundRobin::new(Duration::from_secs(1), 0);
}
