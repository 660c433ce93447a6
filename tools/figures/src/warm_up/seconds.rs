//! A key under Sentinel's form, second by second.

use std::time::Duration;

use tollgate::{
    Cost, Quota, Timestamp,
    algorithm::{Algorithm, WarmUp},
};

/// A full second of the calendar, at which figures begin.
pub(super) const NOON: Timestamp = Timestamp::from_nanos(43_200_000_000_000);

/// One second of full load.
#[derive(Clone, Copy)]
pub(super) struct Second {
    pub(super) passed: u64,
    /// The tokens that the key stored at the beginning of the second.
    pub(super) stored: f64,
    /// The rate on the curve at these tokens; calls that pass are whole numbers below it.
    pub(super) rate: f64,
}

/// Puts a new key under full load.
pub(super) fn under_load(rule: &WarmUp, seconds: u64) -> Vec<Second> {
    let mut state = None;
    (0..seconds)
        .map(|second| full_second(rule, &mut state, second))
        .collect()
}

/// Puts a key under load for `warm` seconds, lets it rest, and puts it under load until it would be
/// warm from cold.
pub(super) fn after_pause(rule: &WarmUp, warm: u64, pause: u64) -> Vec<Second> {
    let mut state = None;
    for second in 0..warm {
        full_second(rule, &mut state, second);
    }
    let begin = warm + pause;
    (begin..begin + warm)
        .map(|second| full_second(rule, &mut state, second))
        .collect()
}

/// Calls until the rule refuses. When in the second the calls come does not matter to it.
fn full_second(rule: &WarmUp, state: &mut Option<State>, second: u64) -> Second {
    let now = NOON.saturating_add(Duration::from_secs(second));
    let mut passed = 0;
    while rule.step(state, now, Cost::ONE).decision().is_admitted() {
        passed += 1;
    }
    let share = cold_share(rule, state.as_ref(), now, passed);
    let [rate, over, cold] = [
        rule.quota().amount() as f64 / rule.quota().period().as_secs_f64(),
        rule.warms_over().as_secs_f64(),
        rule.cold_thousandths() as f64 / 1000.0,
    ];
    let threshold = rate * over / (cold - 1.0);
    let climb = 2.0 * rate * over / (cold + 1.0);
    let stored = threshold + climb * share;
    let above = (stored - threshold).max(0.0);
    Second {
        passed,
        stored,
        rate: rate / (1.0 + (cold - 1.0) * above / climb),
    }
}

type State = <WarmUp as Algorithm>::State;

/// Returns the stored tokens above the threshold, as a part of those between the threshold and the
/// maximum; below 0 under the threshold.
///
/// A rule reads the states of another one, with their warmth as time. So a rule whose curve is
/// longer, and so fast that its allowance shows the warmth to many digits, is the thermometer. It
/// reads the state in the second in which it was written, in which `passed` calls count.
fn cold_share(rule: &WarmUp, state: Option<&State>, now: Timestamp, passed: u64) -> f64 {
    let cold = rule.cold_thousandths();
    let factor = cold as f64 / 1000.0;
    // All the warmth of the rule lies on the straight line of this one.
    let longer = (factor + 1.0) / (factor - 1.0) + 2.0;
    let over = rule.warms_over().mul_f64(longer);
    let fast = Quota::per_second(Quota::MAX_AMOUNT);
    let Ok(thermometer) = WarmUp::try_with(fast, over, cold) else {
        return f64::NAN;
    };
    let look = thermometer.look(state, now);
    let allowed = look.remaining().unwrap_or(0) + passed;
    let slowness = fast.amount() as f64 / allowed as f64;
    // The distance to the maximum as a part of this rule's climb, and then of the other's.
    let warmth = 1.0 - (slowness - 1.0) / (factor - 1.0);
    1.0 - warmth * longer
}
