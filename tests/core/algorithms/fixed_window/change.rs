//! Changes of the rule while a window is counted.

use std::{collections::HashMap, time::Duration};

use proptest::prelude::*;
use tollgate::{
    Cost, Timestamp,
    algorithm::{Algorithm, Codec, FixedWindow, Step},
};

use super::{Setting, at, instants, rule, settings, step};

fn seconds(wait: u64) -> Option<Duration> {
    Some(Duration::from_secs(wait))
}

#[test]
fn an_exhausted_client_waits_for_the_end_of_the_window_of_its_first_call() {
    for (old, new, wait, is_same) in [
        ("10/1m", "10/1h", 3547, false),
        ("10/1m", "10/20s", 7, false),
        ("10/1m", "5/1m", 7, true),
        ("10/1m", "10/1m offset=50s", 57, false),
        ("10/1m", "10/1m offset=10s", 17, false),
        ("10/1m", "10/1m from=first-call", 7, true),
        ("10/1m", "10/25s from=first-call", 22, false),
        ("10/1m from=first-call", "10/20s from=first-call", 7, false),
        ("10/1m from=first-call", "10/1m", 7, false),
        ("10/1h", "10/1m", 7, false),
        ("10/1h from=first-call", "10/1m", 7, false),
        ("10/1h from=first-call", "10/20s from=first-call", 7, false),
    ] {
        let (old, new, mut state) = (rule(old), rule(new), None);
        let context = format!("{old}, then {new}");
        step(&old, &mut state, at(12, 0, 20), 1);
        step(&old, &mut state, at(12, 0, 52), 9);
        let (now, before) = (at(12, 0, 53), state);
        let look = new.look(state.as_ref(), now);
        assert_eq!(
            (look.remaining(), look.retry_after()),
            (Some(0), seconds(wait)),
            "{context}"
        );
        let too_much = step(&new, &mut state, now, 11);
        assert_eq!((too_much.retry_after(), state), (None, before), "{context}");
        let refused = new.step(&mut state, now, Cost::ONE);
        assert_eq!(refused.decision().retry_after(), seconds(wait), "{context}");
        // Later calls wait for the same end and write nothing.
        assert_eq!(matches!(refused, Step::Kept(_)), is_same, "{context}");
        let late = now.saturating_add(Duration::from_secs(wait - 1));
        let again = new.step(&mut state, late, Cost::ONE);
        assert!(matches!(again, Step::Kept(_)), "{context}");
        assert_eq!(again.decision().retry_after(), seconds(1), "{context}");
        let end = now.saturating_add(Duration::from_secs(wait));
        let limit = new.quota().amount();
        assert!(
            step(&new, &mut state, end, limit).is_admitted(),
            "{context}"
        );
    }
}

#[test]
fn a_count_above_the_new_limit_refuses_until_the_new_window_ends() {
    let (old, new, mut state) = (rule("100/1h"), rule("3/1m"), None);
    step(&old, &mut state, at(12, 0, 0), 50);
    assert_eq!(
        step(&new, &mut state, at(12, 30, 10), 1).retry_after(),
        seconds(50)
    );
    // Under the old rule again, the count is unchanged.
    assert_eq!(
        old.look(state.as_ref(), at(12, 30, 11)).remaining(),
        Some(50)
    );
    assert!(step(&new, &mut state, at(12, 31, 0), 3).is_admitted());
}

#[test]
fn a_window_that_has_ended_does_not_carry_over() {
    let (old, new, mut state) = (rule("10/1m"), rule("10/1h"), None);
    step(&old, &mut state, at(12, 0, 52), 10);
    let look = |now| new.look(state.as_ref(), now).remaining();
    assert_eq!(look(at(12, 0, 59)), Some(0));
    assert_eq!(look(at(12, 1, 0)), Some(10));
}

#[test]
fn a_clock_before_the_window_carries_over_to_the_window_start() {
    let (old, new, mut state) = (rule("10/1h"), rule("10/1m"), None);
    step(&old, &mut state, at(12, 30, 0), 10);
    // The hour started at noon.
    let refused = step(&new, &mut state, at(11, 0, 30), 1);
    assert_eq!(refused.retry_after(), seconds(3630));
    assert!(step(&new, &mut state, at(12, 1, 0), 10).is_admitted());
}

proptest! {
    /// With any sequence of rules, each window admits at most the limit of the rule in force. The
    /// carried-over count is included from the first call under that rule.
    #[test]
    fn rule_changes_admit_no_extra_units(
        rules in prop::collection::vec(settings(), 1..4),
        begin in instants(),
        calls in prop::collection::vec((0..4_usize, 0..40_u64, 1..8_u64, any::<bool>()), 1..60),
    ) {
        let rules: Vec<(FixedWindow, Setting)> = rules.iter().map(|setting| (setting.rule(), *setting)).collect();
        let (mut state, mut now, mut last) = (None, begin, None);
        // The admitted units since the last rule change, by the end of the window.
        let mut admitted = HashMap::<u128, u64>::new();
        for (which, wait, cost, takes_all) in calls {
            let (rule, setting) = &rules[which % rules.len()];
            now = now.saturating_add((setting.length / 16).saturating_mul(wait) / 4).min(i64::MAX as u64);
            let at = Timestamp::from_nanos(now);
            let look = rule.look(state.as_ref(), at);
            let cost = if takes_all { look.remaining().unwrap().max(1) } else { cost };
            let carried = setting.limit - look.remaining().unwrap();
            let decision = step(rule, &mut state, at, cost);
            let first = last.replace(which % rules.len()) != last;
            if first {
                admitted.clear();
            }
            if cost > setting.limit {
                // A cost above the limit decides nothing.
                last = None;
                continue;
            }
            let after = rule.look(state.as_ref(), at);
            prop_assert!(!after.reset_after().is_zero());
            let end = u128::from(now) + after.reset_after().as_nanos();
            if let Some(offset) = setting.offset {
                let [end, offset] = [end, u128::from(offset)].map(|at| at % u128::from(setting.length));
                prop_assert_eq!(end, offset);
            }
            let sum = admitted.entry(end).or_insert(if first { carried } else { 0 });
            *sum += if decision.is_admitted() { cost } else { 0 };
            prop_assert!(*sum <= setting.limit, "{} in a window of {}", sum, rule);
            prop_assert!(decision.is_admitted() || *sum + cost > setting.limit, "{} in a window of {}", sum, rule);
        }
    }

    /// A refused call carries the count over to the same window as an admitted call does. A look
    /// reports the same numbers before.
    #[test]
    fn the_first_call_carries_over_whether_admitted_or_refused(
        (old, new) in (settings(), settings()),
        begin in instants(),
        part in 0..16_u64,
    ) {
        let (from, to) = (old.rule(), new.rule());
        let mut state = None;
        let spent = step(&from, &mut state, Timestamp::from_nanos(begin), old.limit.min(1 << 20));
        prop_assert!(spent.is_admitted());
        let now = begin.saturating_add(spent.reset_after().as_nanos() as u64 / 16 * part).min(i64::MAX as u64);
        let now = Timestamp::from_nanos(now);
        let look = to.look(state.as_ref(), now);
        let rest = look.remaining().unwrap();
        let mut refused = state;
        prop_assume!(rest < new.limit);
        prop_assert!(!step(&to, &mut refused, now, rest + 1).is_admitted());
        let carried_over = to.look(refused.as_ref(), now);
        prop_assert_eq!((carried_over.remaining(), carried_over.reset_after()), (look.remaining(), look.reset_after()));
        if rest > 0 {
            let mut admitted = state;
            let all = step(&to, &mut admitted, now, rest);
            prop_assert_eq!(all.reset_after(), look.reset_after());
            prop_assert!(step(&to, &mut refused, now, rest).is_admitted());
            prop_assert_eq!(admitted.to_bytes(), refused.to_bytes());
        }
    }
}
