//! Reports as CSV.

use crate::{report::Report, text::ratio};

/// The columns of a line for each scenario.
pub(crate) const HEADER: &str = "scenario,seed,offered,admitted,refused,failed,refilled,admitted_of_refilled,exact,utilisation,overshoot,\
asked,asked_per_decision,served_least,served_most,wait_p50_ns,wait_p90_ns,wait_p99_ns,wait_p999_ns,wait_most_ns,granted,spent,expired,\
returned,lost,left\n";

/// The columns of a line for each node.
pub(crate) const NODES_HEADER: &str =
    "scenario,seed,node,offered,admitted,served,asked,granted,spent,expired,returned,lost,left\n";

/// Prints a report as a line.
pub(crate) fn line(report: &Report) -> String {
    let decisions = report.admitted + report.refused + report.failed;
    let (least, most) = report.fairness();
    let waits = [500, 900, 990, 999, 1000].map(|part| report.wait(part).to_string());
    let mut cells = vec![
        report.name.clone(),
        report.seed.to_string(),
        report.offered.to_string(),
        report.admitted.to_string(),
        report.refused.to_string(),
        report.failed.to_string(),
        report.refilled.to_string(),
        ratio(report.admitted, report.refilled),
        report.exact.to_string(),
        ratio(report.admitted, report.exact),
        report.overshoot.to_string(),
        report.asked.to_string(),
        ratio(report.asked, decisions),
        ratio(least, 1000),
        ratio(most, 1000),
    ];
    cells.extend(waits);
    let units = [
        report.units(|stats| stats.granted),
        report.units(|stats| stats.spent),
        report.units(|stats| stats.expired),
        report.units(|stats| stats.returned),
        report.units(|stats| stats.lost),
        report.units(|stats| stats.left),
    ];
    cells.extend(units.map(|units| units.to_string()));
    cells.join(",") + "\n"
}

/// Prints a line for each node. Calls to the store and units are those from the beginning.
pub(crate) fn nodes(report: &Report) -> String {
    let each = report.served.iter().zip(&report.stats).zip(&report.calls);
    let line = |(node, ((served, stats), calls)): (usize, ((&crate::Served, &_), &Vec<_>))| {
        let stats: &tollgate::store::LeaseStats = stats;
        format!(
            "{},{},{node},{},{},{},{},{},{},{},{},{},{}\n",
            report.name,
            report.seed,
            served.offered,
            served.admitted,
            ratio(served.admitted, served.offered),
            calls.len(),
            stats.granted,
            stats.spent,
            stats.expired,
            stats.returned,
            stats.lost,
            stats.left,
        )
    };
    each.enumerate().map(line).collect()
}
