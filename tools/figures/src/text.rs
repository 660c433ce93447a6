//! A report for people.

use std::fmt::Write;

use crate::report::Report;

/// Returns `part / whole` with three digits, rounded down; `-` if there is no whole.
pub(crate) fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let thousandths = 1000 * u128::from(part) / u128::from(whole);
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

/// Returns microseconds.
fn micros(nanos: u64) -> String {
    format!("{} us", nanos / 1000)
}

/// Prints a report as text. Nodes are listed if there are at most 16.
pub(crate) fn text(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<24}{value}");
    };
    let decisions = report.admitted + report.refused + report.failed;
    line("scenario", format!("{}, seed {}", report.name, report.seed));
    line("offered", report.offered.to_string());
    line("admitted", report.admitted.to_string());
    line("refused", report.refused.to_string());
    line("failed", report.failed.to_string());
    line(
        "unanswered",
        report.offered.saturating_sub(decisions).to_string(),
    );
    line("refilled for a key", report.refilled.to_string());
    line(
        "admitted / refilled",
        ratio(report.admitted, report.refilled),
    );
    line("utilisation", ratio(report.admitted, report.exact));
    line("overshoot", format!("{} units", report.overshoot));
    line("calls to the store", report.asked.to_string());
    line("calls / decision", ratio(report.asked, decisions));
    let (least, most) = report.fairness();
    line(
        "served, least to most",
        format!("{} to {}", ratio(least, 1000), ratio(most, 1000)),
    );
    for (name, part) in [
        ("p50", 500),
        ("p90", 900),
        ("p99", 990),
        ("p99.9", 999),
        ("most", 1000),
    ] {
        line(&format!("wait, {name}"), micros(report.wait(part)));
    }
    line(
        "units granted",
        report.units(|stats| stats.granted).to_string(),
    );
    line("units spent", report.units(|stats| stats.spent).to_string());
    line(
        "units expired",
        report.units(|stats| stats.expired).to_string(),
    );
    line(
        "units returned, lost",
        format!(
            "{}, {}",
            report.units(|stats| stats.returned),
            report.units(|stats| stats.lost)
        ),
    );
    line("units left", report.units(|stats| stats.left).to_string());
    if report.served.len() <= 16 {
        for (node, served) in report.served.iter().enumerate() {
            let part = ratio(served.admitted, served.offered);
            let value = format!("{} of {} calls, {part}", served.admitted, served.offered);
            line(&format!("node {node}"), value);
        }
    }
    text
}
