//! States as bytes, and rules as text.

use proptest::prelude::*;
use tollgate::{
    Charge, Cost, Quota, Timestamp,
    algorithm::{Algorithm, Codec, SlidingLog},
};

use super::{rule, rules};

type SlidingLogState = <SlidingLog as Algorithm>::State;

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(
        tag in prop_oneof![9 => Just(0x31), 1 => any::<u8>()],
        numbers in prop::collection::vec(prop_oneof![1..200_u64, any::<u64>(), 0..2_u64, Just(u64::MAX)], 0..9),
        counted: bool,
        noise in prop::collection::vec(any::<u8>(), 0..3),
        calls in prop::collection::vec((0..6_usize, any::<u64>(), any::<u64>(), 1..u64::MAX, any::<u64>()), 1..10),
    ) {
        let mut bytes = vec![tag];
        // In half of the cases the count is correct.
        let count = counted.then_some(numbers.len() as u64 / 2);
        for mut number in count.into_iter().chain(numbers) {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        bytes.extend(noise);
        let mut rest = &bytes[..];
        let Ok(read) = SlidingLogState::decode(&mut rest) else { return Ok(()) };
        prop_assert_eq!(tag, 0x31);
        prop_assert_eq!(&SlidingLogState::from_bytes(&read.to_bytes()).unwrap(), &read);
        let mut state = Some(read);
        for (n, now, at, cost, actual) in calls {
            let rule = rules()[n];
            let (now, at) = (Timestamp::from_nanos(now), Timestamp::from_nanos(at));
            rule.step(&mut state, now, Cost::new(cost % 1000 + 1).unwrap());
            rule.settle(&mut state, &Charge::new(at, cost).with_delay(None), now, actual);
            let look = rule.look(state.as_ref(), now);
            prop_assert!(look.remaining() <= look.limit());
            let end = state.as_ref().map_or(now, |log| rule.forgettable_at(log));
            let rested = rule.look(state.as_ref(), end);
            prop_assert!(end == Timestamp::MAX || rested.remaining() == rested.limit());
        }
    }
}

#[test]
fn a_key_takes_40_bytes_and_its_entries() {
    assert_eq!(size_of::<Option<SlidingLogState>>(), 40);
}

#[test]
fn bytes_that_are_not_a_log_are_rejected() {
    let good = [0x31, 2, 5, 1, 3, 2];
    let log = SlidingLogState::from_bytes(&good).unwrap();
    assert_eq!(
        format!("{log:?}"),
        "SlidingLogState{Timestamp(0.000000005): 1, Timestamp(0.000000008): 2}"
    );
    assert_eq!(log.to_bytes(), good);
    let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let too_many = [&[0x31, 2, 5, 1, 3], &longest[..]].concat();
    let too_late = [&[0x31, 2, 1, 1], &longest[..], &[1]].concat();
    let no_instant = [&[0x31, 1], &longest[..], &[1]].concat();
    let many_entries = [&[0x31], &longest[..], &[5, 1]].concat();
    for bytes in [
        &[0x31, 0][..],
        &[0x31, 1, 5, 0],
        &[0x31, 2, 5, 1, 0, 2],
        &[0x31, 2, 5, 1],
        &[0x31, 1, 5, 1, 0],
        &[0x21, 1, 5, 1],
        &[],
        &too_many,
        &too_late,
        &no_instant,
        &many_entries,
    ] {
        assert!(SlidingLogState::from_bytes(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn text_is_the_quota() {
    for text in [
        "sliding-log 100/1m",
        "sliding-log 1/365d",
        "sliding-log 10/s",
    ] {
        assert_eq!(text.parse::<SlidingLog>().unwrap().to_string(), text);
    }
    assert_eq!(rule("100/60s"), SlidingLog::new(Quota::per_minute(100)));
    for (text, column, words) in [
        ("fixed-window 1/s", 1, "`sliding-log` was expected"),
        ("sliding-log", 12, "ends too early"),
        ("sliding-log 100", 16, "no `/`"),
        ("sliding-log 100/1x", 18, "unknown unit `x`"),
        ("sliding-log 0/1m", 13, "is 0"),
        ("sliding-log 100/1m burst=3", 20, "`burst=3` after the end"),
        ("sliding-log 100/1m  100/1h", 21, "take it out"),
    ] {
        let error = text.parse::<SlidingLog>().unwrap_err();
        assert_eq!(error.column(), Some(column), "{text}: {error}");
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
}
