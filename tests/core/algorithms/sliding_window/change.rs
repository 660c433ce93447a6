//! A rule change keeps the counts and admits nothing extra.

use super::*;

#[test]
fn a_new_amount_keeps_the_counts() {
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
fn after_a_change_calls_count_as_if_made_at_the_end_of_their_old_slice() {
    let (whole, quarters) = (rule("100/1m"), rule("100/1m slices=4"));
    let mut state = None;
    spend(&whole, &mut state, 10 * SECOND, 60);
    // No call came after the last write at 10 s, so all have left by 75 s.
    assert_eq!(remaining(&quarters, &state, 59 * SECOND), 40);
    assert_eq!(remaining(&quarters, &state, 67_500_000_000), 70);
    assert_eq!(remaining(&quarters, &state, 75 * SECOND), 100);
    spend(&whole, &mut state, MINUTE, 1);
    // After the change they may have come up to the end of the minute, so they count in full until
    // 105 s.
    assert_eq!(remaining(&quarters, &state, 105 * SECOND), 39);
    assert_eq!(remaining(&quarters, &state, 112_500_000_000), 69);
    assert_eq!(remaining(&quarters, &state, 120 * SECOND), 99);
}

#[test]
fn another_window_counts_the_calls_that_may_be_in_it() {
    let (minute, second) = (rule("100/1m slices=60"), rule("100/1s"));
    let mut state = None;
    spend(&minute, &mut state, 57 * SECOND, 20);
    spend(&minute, &mut state, 58 * SECOND, 10);
    spend(&minute, &mut state, 59 * SECOND, 1);
    assert_eq!(remaining(&second, &state, 59 * SECOND), 100 - 10 - 1);
    // Back to the old rule without a write in between, no count is lost.
    assert_eq!(remaining(&minute, &state, 59 * SECOND), 100 - 31);
    spend(&second, &mut state, 59 * SECOND, 5);
    assert_eq!(remaining(&minute, &state, 59 * SECOND), 100 - 16);
}

#[test]
fn a_refusal_does_not_change_the_state_of_another_rule() {
    let mut state = None;
    spend(&rule("100/1m"), &mut state, 0, 60);
    let kept = state.clone();
    let refused = rule("50/1m slices=60").step(&mut state, at(SECOND), Cost::ONE);
    assert!(!refused.decision().is_admitted());
    assert_eq!(state, kept);
}

#[test]
fn a_settlement_after_a_change_corrects_the_charged_slices() {
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
    /// After a change, the old counts remain at least as long as if the new rule had counted each
    /// call when it came.
    #[test]
    fn a_change_of_slices_releases_no_call_early(
        from in 1..=60_u64, to in 1..=60_u64, gaps in prop::collection::vec(0..20 * SECOND, 1..30), later in 0..MINUTE,
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
