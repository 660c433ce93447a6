//! Settlements.

use std::time::Duration;

use tollgate::{
    Charge, Timestamp,
    algorithm::{Algorithm, Codec, SlidingLog},
};

use super::{MINUTE, SECOND, entries, remaining, step};

type SlidingLogState = <SlidingLog as Algorithm>::State;

#[test]
fn a_settlement_corrects_the_instant_that_was_charged() {
    let (rule, mut state) = (SlidingLog::per_minute(10), None);
    let first = step(&rule, &mut state, 0, 4).take_charge().unwrap();
    let second = step(&rule, &mut state, 10 * SECOND, 4)
        .take_charge()
        .unwrap();
    let settled = |charge: &Charge, now: u64, actual: u64| {
        let mut corrected = state.clone();
        rule.settle(&mut corrected, charge, Timestamp::from_nanos(now), actual);
        corrected
    };

    let refunded = settled(&first, 20 * SECOND, 0);
    assert_eq!(entries(refunded.as_ref().unwrap()), 1);
    assert_eq!(remaining(&rule, &refunded, 20 * SECOND), 6);
    let cheaper = settled(&first, 20 * SECOND, 1);
    assert_eq!(remaining(&rule, &cheaper, 20 * SECOND), 5);
    assert_eq!(remaining(&rule, &cheaper, MINUTE), 6);
    let dearer = settled(&second, 20 * SECOND, 9);
    assert_eq!(remaining(&rule, &dearer, 20 * SECOND), 0);
    assert_eq!(remaining(&rule, &dearer, MINUTE), 1);

    // A refund is at most the entry.
    let dear = Charge::new(first.at, 9);
    let mut emptied = state.clone();
    rule.settle(&mut emptied, &dear, Timestamp::from_nanos(20 * SECOND), 0);
    assert_eq!(emptied, refunded);

    // A window later there is nothing to correct.
    for actual in [0, 100] {
        let late = settled(&first, MINUTE, actual);
        assert_eq!(remaining(&rule, &late, MINUTE), 6);
    }
    let mut gone = None;
    rule.settle(&mut gone, &first, Timestamp::from_nanos(MINUTE), 100);
    rule.settle(&mut gone, &second, Timestamp::from_nanos(MINUTE), 0);
    assert_eq!(gone, None);
    rule.settle(&mut gone, &second, Timestamp::from_nanos(MINUTE), 7);
    assert_eq!(remaining(&rule, &gone, MINUTE), 7);
    assert_eq!(remaining(&rule, &gone, 70 * SECOND), 10);

    let mut only = None;
    let call = step(&rule, &mut only, 0, 4).take_charge().unwrap();
    rule.settle(&mut only, &call, Timestamp::from_nanos(1), 0);
    assert_eq!(only, None, "an empty log is no state");
}

#[test]
fn a_forced_count_saturates_and_waits_until_it_is_below_the_limit() {
    let (rule, mut state) = (SlidingLog::per_minute(2), None);
    let first = step(&rule, &mut state, 0, 1).take_charge().unwrap();
    let second = step(&rule, &mut state, 10 * SECOND, 1)
        .take_charge()
        .unwrap();
    let now = Timestamp::from_nanos(20 * SECOND);
    // One unit more than the count can hold.
    rule.settle(&mut state, &second, now, u64::MAX);
    assert_eq!(remaining(&rule, &state, 20 * SECOND), 0);
    for _ in 0..3 {
        rule.settle(&mut state, &second, now, u64::MAX);
        rule.settle(&mut state, &first, now, u64::MAX);
    }
    let look = rule.look(state.as_ref(), now);
    // When the first call has left, there is still no room.
    assert_eq!(look.retry_after(), Some(Duration::from_secs(50)));
    assert_eq!(look.more_after(), Duration::from_secs(50));
    assert_eq!(remaining(&rule, &state, 70 * SECOND - 1), 0);
    // The sum of all units ever admitted exceeds 64 bits now.
    assert!(step(&rule, &mut state, 70 * SECOND, 1).is_admitted());
    let last = step(&rule, &mut state, 71 * SECOND, 1);
    assert_eq!(last.remaining(), Some(0));
    assert_eq!(last.more_after(), Duration::from_secs(59));
    let read = SlidingLogState::from_bytes(&state.as_ref().unwrap().to_bytes());
    assert_eq!(read.ok(), state);
}
