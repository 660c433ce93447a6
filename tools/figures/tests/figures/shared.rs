//! Parts that several tests need.

use figures::{Report, Scenario, scenario, simulate};

pub(crate) fn named(name: &str) -> Scenario {
    scenario(name).expect("a scenario")
}

/// Runs a scenario, and asserts what holds in each of them.
#[track_caller]
pub(crate) fn run(scenario: &Scenario) -> Report {
    let report = simulate(scenario).expect("a rule that can be leased");
    // A1: an exact meter of all admissions of all nodes never refuses.
    assert_eq!(report.overshoot, 0, "{}: above the limit", report.name);
    // A3: each unit is somewhere.
    for stats in &report.stats {
        let parts = stats.spent + stats.left + stats.expired + stats.returned + stats.lost;
        assert_eq!(stats.granted, parts, "{stats:?}");
    }
    report
}

/// Asserts that `part / whole` is at least so many thousandths.
#[track_caller]
pub(crate) fn at_least(part: u64, whole: u64, thousandths: u64) {
    assert!(
        1000 * part >= thousandths * whole,
        "{part} of {whole}: expected {thousandths} thousandths"
    );
}

/// Asserts that `part / whole` is at most so many thousandths.
#[track_caller]
pub(crate) fn at_most(part: u64, whole: u64, thousandths: u64) {
    assert!(
        1000 * part <= thousandths * whole,
        "{part} of {whole}: expected at most {thousandths} thousandths"
    );
}
