//! The figure `pacing`: how evenly each rule paces a worker, and what pauses do.

mod picture;
mod rules;
mod scenario;
mod senders;
mod worker;

use std::time::Duration;

use tollgate::Quota;

use crate::{
    args,
    figure::{Figure, Products, Progress, Table, decimal},
};

use self::{rules::rules, scenario::Scenario, worker::Run};

/// The parameters of the figure.
#[derive(clap::Args)]
pub(crate) struct Pacing {
    /// The rate of each rule
    #[arg(long, value_name = "QUOTA", default_value = "1000/s")]
    rate: Quota,
    /// The number of items that the worker does
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    items: u64,
    /// The time that an item takes
    #[arg(long, value_name = "TIME", default_value = "10us", value_parser = args::time)]
    work: Duration,
    /// The time that a refused worker waits before it tries again
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = args::time)]
    poll: Duration,
}

/// The worker looks at most so many times.
const MOST_POLLS: u128 = 10_000_000;
/// The worker works at most so long.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Figure for Pacing {
    fn name(&self) -> &'static str {
        "pacing"
    }

    fn make(&self, _: u64, progress: &Progress<'_>) -> Result<Products, String> {
        self.check()?;
        let rules = rules(self.rate)?;
        let scenarios = Scenario::all();
        let mut products = Products::default();
        let mut summary = Table::new(SUMMARY);
        let steps = scenarios.len() as u64 + 1;
        for (number, scenario) in scenarios.iter().enumerate() {
            let mut runs = Vec::new();
            for (name, rule) in &rules {
                let run = worker::run(self, scenario, rule)?;
                summary.row(summary_row(scenario, name, &run));
                runs.push((*name, run));
            }
            let name = format!("pacing_{}", scenario.name());
            products.table(&name, &tenths(&runs))?;
            products.picture(&name, &picture::draw(self, scenario, &runs))?;
            progress.step(number as u64 + 1, steps);
        }
        products.table("pacing_summary", &summary)?;
        products.table("pacing_senders", &senders::table(self)?)?;
        Ok(products)
    }
}

impl Pacing {
    /// Checks that the figure is made in bounded time and memory.
    fn check(&self) -> Result<(), String> {
        if self.work.min(self.poll) < Duration::from_micros(1) {
            return Err("--work and --poll: expected at least 1us each, as in 10us".to_owned());
        }
        let (items, rate) = (u128::from(self.items), u128::from(self.rate.amount()));
        // The rate allows them in this time, and each item is late by a look at most.
        let time = self.rate.period().as_nanos() * items / rate
            + (self.work + self.poll).as_nanos() * items;
        if time > LONGEST.as_nanos() || time / self.poll.as_nanos() > MOST_POLLS {
            return Err(format!(
                "--items {} at --rate \"{}\" take more than a day, or {MOST_POLLS} polls; choose fewer items, or another --poll",
                self.items, self.rate
            ));
        }
        Ok(())
    }
}

const SUMMARY: [&str; 7] = [
    "scenario",
    "rule",
    "most_in_any_second",
    "finish_ms",
    "first_tenth",
    "most_in_later_tenth",
    "idle_tenths",
];

fn summary_row(scenario: &Scenario, name: &str, run: &Run) -> [String; 7] {
    [
        scenario.name(),
        name.to_owned(),
        run.most.to_string(),
        decimal(run.finish.as_nanos() as f64 / 1e6, 2),
        run.tenths.first().copied().unwrap_or(0).to_string(),
        run.tenths
            .iter()
            .skip(1)
            .max()
            .copied()
            .unwrap_or(0)
            .to_string(),
        run.idle_tenths(scenario).to_string(),
    ]
}

/// Returns the items of all rules in each tenth of a second since the launch.
fn tenths(runs: &[(&str, Run)]) -> Table {
    let names = runs.iter().map(|(name, _)| *name);
    let mut table = Table::new(["tenth"].into_iter().chain(names));
    let most = runs.iter().map(|(_, run)| run.tenths.len()).max();
    for tenth in 0..most.unwrap_or(0) {
        let items = |(_, run): &(&str, Run)| run.tenths.get(tenth).copied().unwrap_or(0);
        table.row([tenth as u64].into_iter().chain(runs.iter().map(items)));
    }
    table
}
