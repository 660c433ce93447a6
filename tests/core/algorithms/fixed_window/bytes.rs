//! States as bytes, and rules as text.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    AnyRule, Charge, Cost, Quota, Timestamp,
    algorithm::{Algorithm, Codec, FixedWindow},
};

use super::{MINUTE, at, rules, settings, step};

type AnyState = <AnyRule as Algorithm>::State;
type FixedWindowState = <FixedWindow as Algorithm>::State;

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(
        tag in prop_oneof![9 => Just(0x22), 1 => any::<u8>()],
        numbers in prop::collection::vec(prop_oneof![0..200_u64, any::<u64>(), Just(u64::MAX)], 0..5),
        noise in prop::collection::vec(any::<u8>(), 0..3),
        calls in prop::collection::vec((0..7_usize, any::<u64>(), any::<u64>(), 1..u64::MAX, any::<u64>()), 1..10),
    ) {
        let mut bytes = vec![tag];
        for mut number in numbers {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        bytes.extend(noise);
        let mut rest = &bytes[..];
        let Ok(read) = FixedWindowState::decode(&mut rest) else { return Ok(()) };
        prop_assert_eq!(tag, 0x22);
        prop_assert_eq!(FixedWindowState::from_bytes(&read.to_bytes()).unwrap(), read);
        let mut state = Some(read);
        for (n, now, at, cost, actual) in calls {
            let rule = rules()[n];
            let (now, at) = (Timestamp::from_nanos(now), Timestamp::from_nanos(at));
            rule.step(&mut state, now, Cost::new(cost % 1000 + 1).unwrap());
            rule.settle(&mut state, &Charge::new(at, cost).with_delay(None), now, actual);
            let look = rule.look(state.as_ref(), now);
            prop_assert!(look.remaining() <= look.limit());
            let end = state.map_or(now, |state| rule.forgettable_at(&state));
            let rested = rule.look(state.as_ref(), end);
            prop_assert!(end == Timestamp::MAX || rested.remaining() == rested.limit());
        }
    }

    #[test]
    fn text_parses_back(setting in settings(), spread: bool) {
        let rule = if spread {
            let quota = Quota::new(setting.limit, Duration::from_nanos(setting.length));
            FixedWindow::new(quota).spread()
        } else {
            setting.rule()
        };
        prop_assert_eq!(rule.to_string().parse::<FixedWindow>().unwrap(), rule);
    }
}

#[test]
fn a_key_takes_24_bytes() {
    assert_eq!(size_of::<Option<FixedWindowState>>(), 24);
    let mut state = None;
    step(&FixedWindow::per_minute(10), &mut state, at(12, 0, 0), 1);
    assert!(state.unwrap().to_bytes().len() <= 17);
}

/// The previous version stored the last write instead of the end.
#[test]
fn bytes_of_another_version_are_rejected() {
    let mut state = None;
    step(&FixedWindow::per_minute(10), &mut state, at(12, 0, 0), 1);
    let mut bytes = state.unwrap().to_bytes();
    for (version, is_newer) in [(0x21, false), (0x23, true)] {
        bytes[0] = version;
        let error = FixedWindowState::from_bytes(&bytes).unwrap_err();
        assert_eq!(error.is_newer_state(), is_newer, "{error}");
        let error = AnyState::from_bytes(&bytes).unwrap_err();
        assert_eq!(error.is_newer_state(), is_newer, "{error}");
    }
    bytes[0] = 0x22;
    assert!(AnyState::from_bytes(&bytes).is_ok());
}

#[test]
fn invalid_texts_are_errors_with_a_column_and_a_reason() {
    for (text, column, words) in [
        ("token-bucket 1/s", 1, "`fixed-window` was expected"),
        ("fixed-window", 13, "ends too early"),
        ("fixed-window 100/1x", 19, "unknown unit `x`"),
        ("fixed-window 0/1m", 14, "is 0"),
        (
            "fixed-window 100/1m offset=1m",
            28,
            "less than their length",
        ),
        ("fixed-window 100/1m offset=", 28, "`offset=spread`"),
        ("fixed-window 100/1m offset=early", 28, "`offset=spread`"),
        ("fixed-window 100/1m offset=1s offset=2s", 31, "set twice"),
        ("fixed-window 100/1m from=now", 26, "leave it out"),
        (
            "fixed-window 100/1m offset=10s from=first-call",
            28,
            "take the other one out",
        ),
        (
            "fixed-window 100/1m offset=0s from=first-call",
            28,
            "take the other one out",
        ),
        (
            "fixed-window 100/1m from=first-call offset=spread",
            44,
            "take the other one out",
        ),
        ("fixed-window 100/1m burst=3", 21, "unknown setting `burst`"),
        ("fixed-window 100/1m spread", 21, "unknown setting `spread`"),
    ] {
        let error = text.parse::<FixedWindow>().unwrap_err();
        assert_eq!(error.column(), Some(column), "{text}: {error}");
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
    let minute = FixedWindow::per_minute(1);
    for refused in [
        minute.try_offset(Duration::from_secs(60)),
        minute.try_offset(Duration::MAX),
        minute.from_first_call().try_offset(Duration::ZERO),
        minute.from_first_call().try_spread(),
        minute.spread().try_from_first_call(),
        minute.offset(Duration::from_secs(1)).try_from_first_call(),
    ] {
        assert!(refused.unwrap_err().to_string().contains("expected"));
    }
    assert!(minute.try_offset(Duration::from_nanos(MINUTE - 1)).is_ok());
}

#[test]
#[should_panic(expected = "less than their length")]
fn a_literal_offset_of_a_whole_window_panics() {
    let _ = FixedWindow::per_second(1).offset(Duration::from_secs(1));
}
