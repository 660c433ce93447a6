//! The calls that count, and the time for which they count.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    Charge, Timestamp,
    algorithm::{Algorithm, SlidingLog},
};

use super::{MINUTE, SECOND, entries, remaining, rule, step};

proptest! {
    /// Holds for any calls and any position of the window.
    #[test]
    fn never_more_than_the_limit_in_any_window(gaps in prop::collection::vec(0..SECOND / 2, 1..60)) {
        let (rule, mut state) = (SlidingLog::per_second(5), None);
        let (mut now, mut admitted) = (7 * MINUTE, Vec::new());
        for gap in gaps {
            now += gap;
            let before = admitted.iter().filter(|at| now - **at < SECOND).count();
            let passes = step(&rule, &mut state, now, 1).is_admitted();
            prop_assert_eq!(passes, before < 5, "refused exactly if it would exceed the limit");
            admitted.extend(passes.then_some(now));
        }
        for from in &admitted {
            let window = *from..*from + SECOND;
            prop_assert!(admitted.iter().filter(|at| window.contains(at)).count() <= 5);
        }
    }
}

#[test]
fn a_call_exactly_one_window_old_no_longer_counts() {
    let (rule, mut state) = (SlidingLog::per_second(1), None);
    assert!(step(&rule, &mut state, 5, 1).is_admitted());
    let refused = step(&rule, &mut state, SECOND + 4, 1);
    assert!(!refused.is_admitted());
    assert_eq!(refused.retry_after(), Some(Duration::from_nanos(1)));
    assert!(step(&rule, &mut state, SECOND + 5, 1).is_admitted());
}

#[test]
fn a_refused_call_waits_until_enough_old_calls_have_left() {
    let (rule, mut state) = (SlidingLog::per_minute(10), None);
    for (second, cost) in [(0, 3), (10, 3), (20, 3)] {
        assert!(step(&rule, &mut state, second * SECOND, cost).is_admitted());
    }
    for (cost, retry) in [(2, 30), (4, 30), (5, 40), (7, 40), (8, 50), (10, 50)] {
        let refused = step(&rule, &mut state, 30 * SECOND, cost);
        assert_eq!(
            refused.retry_after(),
            Some(Duration::from_secs(retry)),
            "{cost}"
        );
        assert_eq!(refused.more_after(), Duration::from_secs(30));
        assert_eq!(refused.reset_after(), Duration::from_secs(50));
    }
    assert_eq!(step(&rule, &mut state, 30 * SECOND, 11).retry_after(), None);
}

#[test]
fn all_calls_at_one_instant_count() {
    let (rule, mut state) = (SlidingLog::per_minute(1000), None);
    for _ in 0..1000 {
        assert!(step(&rule, &mut state, MINUTE, 1).is_admitted());
    }
    assert!(!step(&rule, &mut state, MINUTE, 1).is_admitted());
    assert!(!step(&rule, &mut state, 2 * MINUTE - 1, 1).is_admitted());
    assert_eq!(entries(state.as_ref().unwrap()), 1);
    assert_eq!(remaining(&rule, &state, 2 * MINUTE), 1000);
}

#[test]
fn a_log_has_no_more_entries_than_its_limit() {
    let (rule, mut state) = (SlidingLog::per_minute(300), None);
    let mut longest = 0;
    for now in (0..20 * MINUTE).step_by(100_000_007) {
        step(&rule, &mut state, now, 1);
        longest = longest.max(entries(state.as_ref().unwrap()));
    }
    assert_eq!(longest, 300);

    // Forced charges for calls that the log has lost join later ones, and a full log keeps its
    // length.
    let (rule, mut lost) = (SlidingLog::per_minute(5), None);
    for second in [10, 30, 20, 5, 40, 50] {
        let at = Timestamp::from_nanos(second * SECOND);
        let charge = Charge::new(at, 1).with_delay(None);
        rule.settle(&mut lost, &charge, Timestamp::from_nanos(59 * SECOND), 2);
    }
    assert_eq!(
        format!("{:?}", lost.unwrap()),
        "SlidingLogState{Timestamp(10.000000000): 2, Timestamp(30.000000000): 2, Timestamp(50.000000000): 2}"
    );
}

#[test]
fn a_clock_that_steps_back_restores_no_units() {
    let (rule, mut state) = (SlidingLog::per_second(2), None);
    step(&rule, &mut state, MINUTE, 1);
    let behind = step(&rule, &mut state, 30 * SECOND, 1);
    assert!(behind.is_admitted());
    assert_eq!(
        entries(state.as_ref().unwrap()),
        1,
        "at the instant of the newest"
    );
    let refused = step(&rule, &mut state, 30 * SECOND, 1);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(31)));
    assert_eq!(refused.reset_after(), Duration::from_secs(31));
    assert!(step(&rule, &mut state, MINUTE + SECOND, 2).is_admitted());
}

#[test]
fn counts_carry_over_to_a_new_rule() {
    let (old, mut state) = (SlidingLog::per_minute(10), None);
    step(&old, &mut state, 0, 4);
    step(&old, &mut state, 30 * SECOND, 6);
    let now = 40 * SECOND;
    for (new, left, more) in [
        ("10/1h", 0, 3560),
        ("12/1m", 2, 20),
        ("3/1m", 0, 50),
        ("7/1m", 0, 20),
        ("10/20s", 4, 10),
        ("10/5s", 10, 0),
    ] {
        let look = rule(new).look(state.as_ref(), Timestamp::from_nanos(now));
        assert_eq!(look.remaining(), Some(left), "{new}");
        assert_eq!(look.more_after(), Duration::from_secs(more), "{new}");
    }
}
