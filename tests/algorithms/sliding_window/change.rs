//! A rule that changes keeps the counts and mints nothing.

use super::*;

#[test]
fn a_new_amount_meets_the_counts_as_they_are() {
    let mut state = None;
    spend(&rule("100/1m slices=4"), &mut state, 0, 60);
    for (text, left) in [
        ("50/1m slices=4", 0),
        ("60/1m slices=4", 0),
        ("200/1m slices=4", 140),
    ] {
        assert_eq!(remaining(&rule(text), &state, SECOND), left, "{text}");
    }
}

#[test]
fn calls_count_as_if_they_had_come_at_the_end_of_their_old_slice() {
    let (whole, quarters) = (rule("100/1m"), rule("100/1m slices=4"));
    let mut state = None;
    spend(&whole, &mut state, 10 * SECOND, 60);
    // None can have come after the last write, at 10 s: by 75 s that has left.
    assert_eq!(remaining(&quarters, &state, 59 * SECOND), 40);
    assert_eq!(remaining(&quarters, &state, 67_500_000_000), 70);
    assert_eq!(remaining(&quarters, &state, 75 * SECOND), 100);
    spend(&whole, &mut state, MINUTE, 1);
    // They can have come up to the end of the minute now, and count in full until 105 s.
    assert_eq!(remaining(&quarters, &state, 105 * SECOND), 39);
    assert_eq!(remaining(&quarters, &state, 112_500_000_000), 69);
    assert_eq!(remaining(&quarters, &state, 120 * SECOND), 99);
}

#[test]
fn another_window_counts_what_may_lie_in_it() {
    let (minute, second) = (rule("100/1m slices=60"), rule("100/1s"));
    let mut state = None;
    spend(&minute, &mut state, 57 * SECOND, 20);
    spend(&minute, &mut state, 58 * SECOND, 10);
    spend(&minute, &mut state, 59 * SECOND, 1);
    assert_eq!(remaining(&second, &state, 59 * SECOND), 100 - 10 - 1);
    // Back, without a write in between, nothing is lost.
    assert_eq!(remaining(&minute, &state, 59 * SECOND), 100 - 31);
    spend(&second, &mut state, 59 * SECOND, 5);
    assert_eq!(remaining(&minute, &state, 59 * SECOND), 100 - 16);
}

#[test]
fn a_refusal_leaves_what_another_rule_wrote() {
    let mut state = None;
    spend(&rule("100/1m"), &mut state, 0, 60);
    let kept = state.clone();
    let refused = rule("50/1m slices=60").step(&mut state, at(SECOND), Cost::ONE);
    assert!(!refused.decision().is_admitted());
    assert_eq!(state, kept);
}

#[test]
fn a_correction_after_a_change_goes_by_the_slices_that_were_charged() {
    let (whole, quarters) = (rule("100/1m"), rule("100/1m slices=4"));
    let mut state = None;
    let charge = spend(&whole, &mut state, 10 * SECOND, 60)
        .take_charge()
        .unwrap();
    spend(&whole, &mut state, MINUTE, 1);
    quarters.settle(&mut state, &charge, at(MINUTE), 0);
    assert_eq!(remaining(&quarters, &state, MINUTE), 99);
}

proptest! {
    /// What the old counters hold remains at least as long as where the new rule has counted each call when it came.
    #[test]
    fn no_change_of_slices_frees_a_call_before_its_time(
        from in 1..70_u64, to in 1..70_u64, gaps in prop::collection::vec(0..20 * SECOND, 1..30), later in 0..MINUTE,
    ) {
        let [old, new] = [from, to].map(|slices| SlidingWindow::per_minute(1000).slices(slices));
        let (mut now, mut calls) = (1_767_235_685_123_456_789, Vec::new());
        for gap in gaps {
            now += gap;
            calls.push(now);
        }
        let slice = |at: u64| u128::from(at) * u128::from(from) / u128::from(MINUTE);
        let held = |at: u64| slice(at) + u128::from(from) >= slice(now);
        let (mut changed, mut always) = (None, None);
        for call in calls {
            spend(&old, &mut changed, call, 1);
            if held(call) {
                spend(&new, &mut always, call, 1);
            }
        }
        let [changed, always] = [changed, always].map(|state| remaining(&new, &state, now + later));
        prop_assert!(changed <= always, "{} remain instead of {}", changed, always);
    }
}
