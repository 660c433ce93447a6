//! The estimates right after each call, when nothing is refused.

use std::time::Duration;

use tollgate::Quota;

use super::estimator::{Estimator, NOON, UNITS};
use crate::figure::Table;

/// The estimates of all estimators for each call.
pub(super) struct Estimates {
    limit: u64,
    names: Vec<&'static str>,
    pub(super) calls: Vec<u64>,
    /// By estimator and call, in thousandths of calls.
    pub(super) counts: Vec<Vec<u64>>,
}

/// One estimator, compared with the perfect one.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) calls: u64,
    /// The mean of |estimate − perfect| / perfect.
    pub(super) error: f64,
    /// The mean of (estimate − perfect) / perfect.
    pub(super) bias: f64,
    /// Calls that are above the limit of the perfect window, and those of them that are not above
    /// the estimate's.
    pub(super) over: u64,
    pub(super) let_through: u64,
    /// The others, and those of them that the estimate puts above the limit.
    pub(super) under: u64,
    pub(super) refused: u64,
}

impl Estimates {
    pub(super) fn new(limit: Quota, estimators: &[Estimator], calls: &[u64]) -> Self {
        let count = |estimator: &Estimator| {
            let mut counter = estimator.counter();
            let at = |call: &u64| NOON.saturating_add(Duration::from_millis(*call));
            calls.iter().map(|call| counter.call(at(call))).collect()
        };
        Self {
            limit: limit.amount() * UNITS,
            names: estimators.iter().map(|estimator| estimator.name).collect(),
            calls: calls.to_vec(),
            counts: estimators.iter().map(count).collect(),
        }
    }

    /// Returns the estimates of the windows; a token bucket does not estimate a window.
    pub(super) fn table(&self) -> Table {
        let windows = self.names.len() - 1;
        let mut table = Table::new(["t_ms"].iter().chain(&self.names[..windows]).copied());
        for (number, call) in self.calls.iter().enumerate() {
            let counts = self.counts[..windows].iter();
            let counts = counts.map(|counts| thousandths(counts[number]));
            table.row([call.to_string()].into_iter().chain(counts));
        }
        table
    }

    pub(super) fn summary(&self, estimator: usize) -> Summary {
        let mut summary = Summary::default();
        let (mut error, mut bias) = (0.0, 0.0);
        for (perfect, estimate) in self.counts[0].iter().zip(&self.counts[estimator]) {
            let difference = (*estimate as f64 - *perfect as f64) / *perfect as f64;
            error += difference.abs();
            bias += difference;
            let admits = *estimate <= self.limit;
            summary.calls += 1;
            if *perfect > self.limit {
                summary.over += 1;
                summary.let_through += u64::from(admits);
            } else {
                summary.under += 1;
                summary.refused += u64::from(!admits);
            }
        }
        summary.error = error / summary.calls as f64;
        summary.bias = bias / summary.calls as f64;
        summary
    }
}

/// Writes thousandths without zeros at the end.
fn thousandths(count: u64) -> String {
    let text = format!("{}.{:03}", count / 1000, count % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
