//! The start and the end of windows.

use std::time::Duration;

use support::Random;
use tollgate::{
    AnyRule, Cost, Quota, Timestamp,
    algorithm::{Algorithm, FixedWindow, Step},
};

use super::{DAY, HOUR, MINUTE, SECOND, at, rule, step};

#[test]
fn a_time_belongs_to_the_calendar_window_around_it() {
    let (rule, mut state) = (FixedWindow::per_minute(100), None);
    let first = step(&rule, &mut state, at(12, 0, 3), 40);
    assert_eq!(first.reset_after(), Duration::from_secs(57));
    assert_eq!(first.more_after(), Duration::from_secs(57));
    let look = |now| rule.look(state.as_ref(), now).remaining();
    assert_eq!(look(at(12, 0, 59)), Some(60));
    assert_eq!(look(at(12, 1, 0)), Some(100));
}

#[test]
fn up_to_twice_the_limit_passes_around_a_window_boundary() {
    let (rule, mut state) = (FixedWindow::per_minute(100), None);
    for (now, wait) in [(at(7, 9, 59), 1), (at(7, 10, 0), 60)] {
        for _ in 0..100 {
            assert!(step(&rule, &mut state, now, 1).is_admitted());
        }
        let refused = step(&rule, &mut state, now, 1);
        assert!(!refused.is_admitted());
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(wait)));
    }
}

#[test]
fn an_offset_moves_the_windows() {
    let (rule, mut state) = (rule("100/1m offset=10s"), None);
    assert_eq!(
        rule,
        FixedWindow::per_minute(100).offset(Duration::from_secs(10))
    );
    assert_eq!(rule.fixed_offset(), Some(Duration::from_secs(10)));
    assert!(step(&rule, &mut state, at(12, 0, 9), 100).is_admitted());
    let refused = step(&rule, &mut state, at(12, 0, 9), 1);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    assert!(step(&rule, &mut state, at(12, 0, 10), 100).is_admitted());
    assert!(!step(&rule, &mut state, at(12, 1, 9), 1).is_admitted());

    // The window at the epoch starts before the epoch.
    let (epoch, mut state) = (Timestamp::default(), None);
    let first = step(&rule, &mut state, epoch, 100);
    assert_eq!(first.reset_after(), Duration::from_secs(10));
}

/// Both 1970-01-05 and 2024-01-01 were Mondays.
#[test]
fn weeks_begin_on_mondays_with_an_offset_of_four_days() {
    let (week, mut state) = (rule("1/7d offset=4d"), None);
    let monday = Timestamp::from_nanos(1_704_067_200 * SECOND);
    let sunday = Timestamp::from_nanos(1_704_067_199 * SECOND);
    assert!(step(&week, &mut state, sunday, 1).is_admitted());
    assert!(!step(&week, &mut state, sunday, 1).is_admitted());
    let first = step(&week, &mut state, monday, 1);
    assert_eq!(first.reset_after(), Duration::from_secs(7 * 86_400));
}

#[test]
fn a_spread_rule_gives_each_key_its_windows() {
    let spread = FixedWindow::per_minute(100).spread();
    assert!(spread.is_spread());
    let offset = |digest: u64| spread.for_key(&|| digest).unwrap().fixed_offset().unwrap();
    assert_eq!(offset(0), Duration::ZERO);
    assert_eq!(offset(1 << 63), Duration::from_secs(30));
    // The offset is a multiple of a microsecond if the period is.
    assert_eq!(
        offset(0x0123_4567_89ab_cdef),
        Duration::from_micros(266_666)
    );
    assert_eq!(offset(u64::MAX), Duration::from_nanos(MINUTE - 1000));
    let odd = Quota::try_new(100, Duration::from_nanos(60_000_000_001)).unwrap();
    let odd = FixedWindow::new(odd).spread().for_key(&|| u64::MAX);
    let last = Duration::from_nanos(60_000_000_000);
    assert_eq!(odd.unwrap().fixed_offset(), Some(last));

    let (mut one, mut other) = (None, None);
    let [first, second] = [1 << 62, 1 << 63].map(|digest| spread.for_key(&|| digest).unwrap());
    let first = step(&first, &mut one, at(12, 0, 0), 1);
    assert_eq!(first.reset_after(), Duration::from_secs(15));
    let second = step(&second, &mut other, at(12, 0, 0), 1);
    assert_eq!(second.reset_after(), Duration::from_secs(30));

    // Without a key, windows are those of the calendar.
    let alone = step(&spread, &mut None, at(12, 0, 1), 1);
    assert_eq!(alone.reset_after(), Duration::from_secs(59));
    for text in ["100/1m", "100/1m offset=10s", "100/1m from=first-call"] {
        assert_eq!(rule(text).for_key(&|| panic!("no digest is needed")), None);
    }
    let several: AnyRule = "token-bucket 10/s & fixed-window 100/1m offset=spread"
        .parse()
        .unwrap();
    let drawn = several.for_key(&|| 1 << 63).unwrap();
    assert_eq!(
        drawn.to_string(),
        "token-bucket 10/s & fixed-window 100/1m offset=30s"
    );
}

#[test]
fn offsets_are_spread_evenly() {
    let spread = FixedWindow::per_hour(10).spread();
    let mut buckets = [0_u32; 16];
    let mut random = Random::new(0);
    for _ in 0..16_000 {
        let digest = random.next_u64();
        let offset = spread.for_key(&|| digest).unwrap().fixed_offset().unwrap();
        assert!(offset < Duration::from_nanos(HOUR));
        buckets[(offset.as_nanos() as u64 / (HOUR / 16)) as usize] += 1;
    }
    // The bound is five standard deviations of 31.
    assert!(
        buckets.iter().all(|keys| (845..=1155).contains(keys)),
        "{buckets:?}"
    );
}

#[test]
fn a_window_from_the_first_call_starts_with_that_call() {
    let (rule, mut state) = (FixedWindow::per_minute(2).from_first_call(), None);
    assert!(rule.is_from_first_call());
    let first = step(&rule, &mut state, at(12, 0, 40), 1);
    assert_eq!(first.reset_after(), Duration::from_secs(60));
    assert!(step(&rule, &mut state, at(12, 1, 39), 1).is_admitted());
    let refused = step(&rule, &mut state, at(12, 1, 39), 1);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    // It ends at 12:01:40. The next window starts with the next call.
    let next = step(&rule, &mut state, at(12, 5, 7), 1);
    assert_eq!(next.reset_after(), Duration::from_secs(60));
    assert_eq!(rule.look(state.as_ref(), at(12, 6, 6)).remaining(), Some(1));
    assert_eq!(rule.look(state.as_ref(), at(12, 6, 7)).remaining(), Some(2));
}

#[test]
fn a_window_that_ends_after_the_largest_timestamp_never_ends() {
    let centuries = FixedWindow::new(Quota::new(1, Quota::MAX_PERIOD)).from_first_call();
    let (mut state, end) = (None, Timestamp::from_nanos(u64::MAX - 2));
    assert!(step(&centuries, &mut state, end, 1).is_admitted());
    assert_eq!(centuries.forgettable_at(&state.unwrap()), Timestamp::MAX);
    let refused = step(&centuries, &mut state, Timestamp::MAX, 1);
    assert_eq!(refused.retry_after(), Some(Duration::from_nanos(1)));
    let behind = step(&centuries, &mut state, Timestamp::default(), 1);
    let all_time = Timestamp::MAX.saturating_since(Timestamp::default());
    assert_eq!(behind.retry_after(), Some(all_time));

    // The last window of the calendar does not end either, from its first instant to the last.
    let days = rule("2/1d");
    for from in [Timestamp::MAX, Timestamp::from_nanos(u64::MAX / DAY * DAY)] {
        let mut state = None;
        for (now, admits) in [
            (from, true),
            (Timestamp::MAX, true),
            (Timestamp::MAX, false),
            (from, false),
        ] {
            assert_eq!(step(&days, &mut state, now, 1).is_admitted(), admits);
        }
        // Its count does not carry over at each call.
        let refused = days.step(&mut state, Timestamp::MAX, Cost::ONE);
        assert!(matches!(refused, Step::Kept(_)));
    }
}
