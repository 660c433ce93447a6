//! A client that calls as soon as it may, and chooses when it begins.

use std::time::Duration;

use tollgate::{AnyRule, Cost, Quota, Timestamp, algorithm::Algorithm};

use super::estimator::{Estimator, NOON};
use crate::{
    figure::{Table, decimal},
    window_count::WindowCount,
};

/// The client begins a nanosecond before, and at, each of these parts of a window.
const PARTS: u32 = 60;

/// Returns the most that the client gets in any window, and on average.
pub(super) fn table(limit: Quota, estimators: &[Estimator]) -> Result<Table, String> {
    let mut table = Table::new([
        "estimator",
        "most_in_window",
        "begins_at_ms",
        "mean_per_window",
    ]);
    for estimator in estimators {
        let (mut most, mut worst) = (0, Duration::ZERO);
        for begin in begins(limit) {
            let (admitted, _) = call(limit, &estimator.rule, begin, 3)?;
            // The first of the worst.
            if admitted > most {
                (most, worst) = (admitted, begin);
            }
        }
        let windows = 60;
        let (_, all) = call(limit, &estimator.rule, Duration::ZERO, windows)?;
        table.row([
            estimator.name.to_owned(),
            most.to_string(),
            decimal(worst.as_nanos() as f64 / 1e6, 6),
            decimal(all as f64 / f64::from(windows), 3),
        ]);
    }
    Ok(table)
}

fn begins(limit: Quota) -> impl Iterator<Item = Duration> {
    let part = move |number: u32| limit.period() * number / PARTS;
    let before = |begin: Duration| begin.saturating_sub(Duration::from_nanos(1));
    (1..=PARTS).flat_map(move |number| [before(part(number)), part(number)])
}

/// Calls for some windows. Returns the most that was admitted in any window, and all that was.
fn call(limit: Quota, rule: &AnyRule, begin: Duration, windows: u32) -> Result<(u64, u64), String> {
    let (mut now, mut state) = (NOON.saturating_add(begin), None);
    let end: Timestamp = now.saturating_add(limit.period() * windows);
    let (mut meter, mut most, mut all) = (WindowCount::new(limit)?, 0, 0);
    while now < end {
        let decision = rule.step(&mut state, now, Cost::ONE).decision();
        if decision.is_admitted() {
            most = most.max(meter.add(now));
            all += 1;
            continue;
        }
        match decision.retry_after().filter(|wait| !wait.is_zero()) {
            Some(wait) => now = now.saturating_add(wait),
            None => break,
        }
    }
    Ok((most, all))
}
