//! Settlements, after the clock stepped back or the rule changed.

use std::time::Duration;

use tollgate::algorithm::{Algorithm, FixedWindow};

use super::{at, rule, step};

#[test]
fn a_clock_that_steps_back_does_not_reopen_an_earlier_window() {
    let (rule, mut state) = (FixedWindow::per_minute(2), None);
    step(&rule, &mut state, at(12, 0, 30), 1);
    let behind = step(&rule, &mut state, at(11, 59, 30), 1);
    assert_eq!(behind.remaining(), Some(0));
    assert_eq!(behind.reset_after(), Duration::from_secs(90));
    let refused = step(&rule, &mut state, at(11, 59, 30), 1);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(90)));
    // A charge made by the clock that was behind looks like a charge of another window.
    rule.settle(
        &mut state,
        &{ behind }.take_charge().unwrap(),
        at(12, 0, 31),
        0,
    );
    assert_eq!(
        rule.look(state.as_ref(), at(12, 0, 31)).remaining(),
        Some(0)
    );
}

#[test]
fn a_settlement_changes_only_the_window_of_its_charge() {
    let (rule, mut state) = (FixedWindow::per_minute(10), None);
    let early = step(&rule, &mut state, at(12, 0, 0), 4)
        .take_charge()
        .unwrap();
    let left = |state: &Option<_>, now| rule.look(state.as_ref(), now).remaining();

    let mut corrected = state;
    rule.settle(&mut corrected, &early, at(12, 0, 59), 1);
    assert_eq!(left(&corrected, at(12, 0, 59)), Some(9));
    rule.settle(&mut corrected, &early, at(12, 0, 59), 50);
    assert_eq!(left(&corrected, at(12, 0, 59)), Some(0));
    assert_eq!(left(&corrected, at(12, 1, 0)), Some(10));
    rule.settle(&mut corrected, &early, at(12, 0, 59), u64::MAX);
    rule.settle(&mut corrected, &early, at(12, 0, 59), u64::MAX);
    assert_eq!(left(&corrected, at(12, 0, 59)), Some(0));

    let late = step(&rule, &mut state, at(12, 1, 0), 3)
        .take_charge()
        .unwrap();
    for actual in [0, 100] {
        rule.settle(&mut state, &early, at(12, 1, 1), actual);
        assert_eq!(left(&state, at(12, 1, 1)), Some(7));
    }
    rule.settle(&mut state, &late, at(12, 1, 1), 0);
    assert_eq!(rule.forgettable_at(&state.unwrap()), at(12, 1, 0));

    // An unknown key: only additional units are charged, and only while the window lasts.
    let mut forgotten = None;
    rule.settle(&mut forgotten, &late, at(12, 1, 1), 0);
    rule.settle(&mut forgotten, &late, at(12, 2, 0), 5);
    assert_eq!(forgotten, None);
    rule.settle(&mut forgotten, &late, at(12, 1, 59), 5);
    assert_eq!(left(&forgotten, at(12, 1, 59)), Some(8));
    let from_first_call = FixedWindow::per_minute(10).from_first_call();
    let mut forgotten = None;
    from_first_call.settle(&mut forgotten, &late, at(12, 1, 59), 5);
    assert_eq!(forgotten, None);
}

/// The longer window contains the charge, but its count does not.
#[test]
fn a_longer_window_refunds_only_charges_that_it_counts() {
    let (short, long) = (FixedWindow::per_second(10), FixedWindow::per_minute(10));
    let mut state = None;
    let gone = step(&short, &mut state, at(12, 0, 5), 10)
        .take_charge()
        .unwrap();
    let own = step(&short, &mut state, at(12, 0, 7), 4)
        .take_charge()
        .unwrap();
    let left = |state: &Option<_>| long.look(state.as_ref(), at(12, 0, 8)).remaining();
    // Carries the count over into the minute.
    step(&long, &mut state, at(12, 0, 7), 1);
    for actual in [0, 100] {
        long.settle(&mut state, &gone, at(12, 0, 8), actual);
        assert_eq!(left(&state), Some(5));
    }
    long.settle(&mut state, &own, at(12, 0, 8), 1);
    assert_eq!(left(&state), Some(8));
}

/// Once the count carried over, units counted before the new window started stay in it.
#[test]
fn a_shorter_window_does_not_refund_charges_from_before_its_start() {
    let (long, short) = (FixedWindow::per_hour(10), FixedWindow::per_minute(10));
    let mut state = None;
    let first = step(&long, &mut state, at(12, 0, 5), 4)
        .take_charge()
        .unwrap();
    let late = step(&long, &mut state, at(12, 30, 5), 4)
        .take_charge()
        .unwrap();
    let look = |state: &Option<_>| short.look(state.as_ref(), at(12, 30, 6)).remaining();
    // Before the first call under the new rule, the old window is corrected.
    let mut early = state;
    short.settle(&mut early, &first, at(12, 30, 6), 1);
    assert_eq!(look(&early), Some(5));
    step(&short, &mut state, at(12, 30, 6), 1);
    for actual in [1, 9] {
        short.settle(&mut state, &first, at(12, 30, 6), actual);
        assert_eq!(look(&state), Some(1));
    }
    short.settle(&mut state, &late, at(12, 30, 6), 0);
    assert_eq!(look(&state), Some(5));
}

#[test]
fn a_count_of_zero_settles_like_an_unknown_key() {
    for text in ["10/1m", "10/1m from=first-call"] {
        let rule = rule(text);
        let mut empty = None;
        let charge = step(&rule, &mut empty, at(12, 0, 10), 4)
            .take_charge()
            .unwrap();
        rule.settle(&mut empty, &charge, at(12, 0, 20), 0);
        assert!(empty.is_some());
        let mut none = None;
        for state in [&mut empty, &mut none] {
            rule.settle(state, &charge, at(12, 0, 30), 7);
        }
        let [one, other] = [empty, none].map(|state| rule.look(state.as_ref(), at(12, 0, 40)));
        assert_eq!(one, other, "{text}");
    }
}

#[test]
fn after_a_clock_step_back_a_charge_of_another_window_changes_nothing() {
    let (rule, mut state) = (FixedWindow::per_minute(10), None);
    let early = step(&rule, &mut state, at(12, 0, 50), 4)
        .take_charge()
        .unwrap();
    let mut earlier = state;
    let late = step(&rule, &mut state, at(12, 1, 10), 4)
        .take_charge()
        .unwrap();
    // The clock steps back, so the earlier minute continues.
    let now = at(12, 0, 55);
    for actual in [0, 9] {
        rule.settle(&mut earlier, &late, now, actual);
        assert_eq!(rule.look(earlier.as_ref(), now).remaining(), Some(6));
        rule.settle(&mut state, &early, now, actual);
        assert_eq!(rule.look(state.as_ref(), now).remaining(), Some(6));
    }
    rule.settle(&mut state, &late, now, 0);
    rule.settle(&mut state, &early, now, 9);
    assert_eq!(rule.look(state.as_ref(), now).remaining(), Some(10));
}
