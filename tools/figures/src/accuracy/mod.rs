//! The figure `accuracy`: how well windows and buckets count the calls of the last window.

mod closed_loop;
mod estimates;
mod estimator;
mod greedy;
mod picture;
mod traffic;

use std::path::PathBuf;

use tollgate::Quota;

use crate::figure::{Figure, Products, Progress, Table, decimal, parts};

use self::{
    closed_loop::ClosedLoop,
    estimates::{Estimates, Summary},
    estimator::Estimator,
    traffic::Traffic,
};

/// The parameters of the figure.
#[derive(clap::Args)]
pub(crate) struct Accuracy {
    /// The limit of each window
    #[arg(long, value_name = "QUOTA", default_value = "100/60s")]
    limit: Quota,
    /// The number of windows for which random calls come
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    windows: u64,
    /// The calls, instead of random ones: a JSON list of milliseconds
    #[arg(long, value_name = "FILE")]
    arrivals: Option<PathBuf>,
}

/// The most calls that a figure counts; each takes about 200 bytes.
const MOST_CALLS: u64 = 3_000_000;

/// The highest limit.
const MOST_IN_WINDOW: u64 = 100_000;

impl Figure for Accuracy {
    fn name(&self) -> &'static str {
        "accuracy"
    }

    fn make(&self, seed: u64, progress: &Progress<'_>) -> Result<Products, String> {
        if self.limit.amount() > MOST_IN_WINDOW {
            return Err(format!(
                "--limit \"{}\": the greedy client makes each call; expected at most {MOST_IN_WINDOW} calls in a window",
                self.limit
            ));
        }
        let estimators = Estimator::all(self.limit)?;
        let traffics = match &self.arrivals {
            Some(path) => vec![Traffic::read(path)?],
            None => Traffic::random(self.limit, self.windows, seed)?,
        };
        let mut products = Products::default();
        let mut summary = Table::new(SUMMARY);
        let mut drawn = Vec::new();
        let steps = traffics.len() as u64 + 1;
        for (number, traffic) in traffics.into_iter().enumerate() {
            let estimates = Estimates::new(self.limit, &estimators, &traffic.calls);
            let name = match number {
                0 => "accuracy".to_owned(),
                _ => format!("accuracy_{}", traffic.name),
            };
            products.table(&name, &estimates.table())?;
            for (index, estimator) in estimators.iter().enumerate() {
                let open = estimates.summary(index);
                let closed = ClosedLoop::run(self.limit, &estimator.rule, &traffic.calls)?;
                summary.row(summary_row(&traffic, estimator, &open, &closed));
            }
            drawn.push((traffic, estimates));
            progress.step(number as u64 + 1, steps);
        }
        products.table("accuracy_summary", &summary)?;
        products.table("accuracy_greedy", &greedy::table(self.limit, &estimators)?)?;
        products.picture("accuracy", &picture::draw(self.limit, &drawn))?;
        Ok(products)
    }
}

const SUMMARY: [&str; 13] = [
    "traffic",
    "estimator",
    "calls",
    "mean_absolute_relative_error",
    "bias",
    "over_limit_calls",
    "over_limit_let_through",
    "under_limit_calls",
    "under_limit_refused",
    "closed_loop_admitted",
    "closed_loop_most_in_window",
    "closed_loop_wrongly_admitted",
    "closed_loop_wrongly_refused",
];

fn summary_row(
    traffic: &Traffic,
    estimator: &Estimator,
    open: &Summary,
    closed: &ClosedLoop,
) -> [String; 13] {
    [
        traffic.name.to_owned(),
        estimator.name.to_owned(),
        open.calls.to_string(),
        decimal(open.error, 6),
        decimal(open.bias, 6),
        open.over.to_string(),
        parts(open.let_through, open.over),
        open.under.to_string(),
        parts(open.refused, open.under),
        closed.admitted.to_string(),
        closed.most.to_string(),
        parts(closed.wrongly_admitted, open.calls),
        parts(closed.wrongly_refused, open.calls),
    ]
}
