//! The figure `contention`: the work and the time of clients that race to write one row.

use std::{ops::RangeInclusive, time::Duration};

use super::{
    cell::{Cell, Contention, simulate},
    settings::{BackoffKind, Contenders},
};
use crate::{
    args,
    chart::{Axis, Line, Panel, Picture, Series},
    figure::{Figure, Products, Progress, Table, decimal},
};

/// The parameters of the figure.
#[derive(clap::Args)]
pub(crate) struct ContentionFigure {
    /// The most clients in a race; the figure has 1, 2, 5, each ten, and this number
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1000))]
    clients: u64,
    /// The number of times that each race is run
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    trials: u64,
    /// The mean time of one way
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = args::time)]
    delay: Duration,
    /// The standard deviation of one way
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = args::time)]
    deviation: Duration,
    /// The other standard deviation, in `contention_other.csv`
    #[arg(long, value_name = "TIME", default_value = "4ms", value_parser = args::time)]
    other_deviation: Duration,
    /// The base of the delays
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = args::time)]
    base: Duration,
    /// The longest delay
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = args::time)]
    cap: Duration,
    /// The clients whose calls are drawn over time
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    over_time: u64,
}

impl Figure for ContentionFigure {
    fn name(&self) -> &'static str {
        "contention"
    }

    fn make(&self, seed: u64, progress: &Progress<'_>) -> Result<Products, String> {
        let half =
            |half: u64| move |part: f64| progress.step((500.0 * part) as u64 + 500 * half, 1000);
        let first = simulate(&self.contenders(seed, self.deviation), half(0))?;
        let other = simulate(&self.contenders(seed, self.other_deviation), half(1))?;
        let mut products = Products::default();
        products.table("contention", &means(&first))?;
        products.table("contention_calls", &over_time(&first))?;
        products.table("contention_other", &means(&other))?;
        products.table("contention_intervals", &intervals(&first, self.trials))?;
        let deviations = [(self.deviation, &first), (self.other_deviation, &other)];
        products.table("contention_exponents", &exponents(&deviations))?;
        products.picture("contention", &self.picture(&first))?;
        Ok(products)
    }
}

impl ContentionFigure {
    fn contenders(&self, seed: u64, deviation: Duration) -> Contenders {
        let mut clients: Vec<_> = [1, 2, 5]
            .into_iter()
            .chain((10..self.clients).step_by(10))
            .collect();
        clients.retain(|clients| *clients < self.clients);
        clients.push(self.clients);
        Contenders {
            seed,
            clients: clients
                .into_iter()
                .map(|clients| clients as usize)
                .collect(),
            trials: self.trials as usize,
            delay: self.delay,
            deviation,
            base: self.base,
            cap: self.cap,
            over_time: self.over_time as usize,
        }
    }

    fn picture(&self, contention: &Contention) -> Picture {
        let title = format!(
            "{} to {} clients race to write one row; one way takes |Normal({:?}, {:?})|, back-off from {:?} to {:?}",
            1, self.clients, self.delay, self.deviation, self.base, self.cap
        );
        let mut picture = Picture::new(&title);
        let clients = || Axis::linear("clients", 0.0, self.clients as f64);
        let mut lines = |title: &str, y: Axis, of: &dyn Fn(&Cell) -> f64| {
            let mut panel = Panel::new(title, clients(), y);
            for (colour, kind) in BackoffKind::ALL.into_iter().enumerate() {
                // Two of the curves nearly coincide.
                let line = match kind {
                    BackoffKind::Equal => Line::Dashed,
                    _ => Line::Solid,
                };
                let points = contention
                    .of(kind)
                    .map(|cell| (cell.clients as f64, of(cell)));
                panel.series(Series::new(kind.name(), colour, line, points.collect()));
            }
            picture.panel(panel);
        };
        let calls = |cell: &Cell| cell.calls.mean;
        let time = |cell: &Cell| cell.time_ms.mean / 1000.0;
        let most = contention.cells.iter().map(calls).fold(1.0, f64::max);
        lines(
            "Work: writes until all have succeeded",
            Axis::linear("writes", 0.0, 1.05 * most),
            &calls,
        );
        let range = decades(contention.cells.iter().map(time));
        let axis = Axis::log("seconds", *range.start(), *range.end());
        lines("Time until the last client has succeeded", axis, &time);
        self.over_time(contention, &mut picture);
        picture
    }

    /// Draws how many writes arrive in each interval, until nearly all have arrived of the kinds
    /// with jitter.
    fn over_time(&self, contention: &Contention, picture: &mut Picture) {
        let all = &contention.calls_over_time;
        let shown = all.len().min(600);
        let axis = Axis::linear("seconds", 0.0, shown as f64 / 100.0);
        let range = Axis::log("writes in 10 ms", 0.01, 100.0);
        let title = format!(
            "Writes of {} clients over time, mean of all races",
            self.over_time
        );
        let mut panel = Panel::new(&title, axis, range);
        for (colour, kind) in BackoffKind::ALL.into_iter().enumerate() {
            let points = all.iter().take(shown).enumerate();
            let points = points.map(|(interval, calls)| (interval as f64 / 100.0, calls[colour]));
            panel.series(Series::new(
                kind.name(),
                colour,
                Line::Solid,
                points.collect(),
            ));
        }
        picture.panel(panel);
    }
}

/// Returns the powers of ten around numbers above 0.
fn decades(numbers: impl Iterator<Item = f64>) -> RangeInclusive<f64> {
    let (least, most) = numbers.fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), number| {
        (number.min(least), number.max(most))
    });
    let power = |exponent: f64| libm::pow(10.0, exponent);
    power(libm::floor(libm::log10(least)))..=power(libm::ceil(libm::log10(most)))
}

fn means(contention: &Contention) -> Table {
    let mut table = Table::new(["kind", "clients", "calls_mean", "time_ms_mean"]);
    for cell in &contention.cells {
        table.row([
            cell.kind.name().to_owned(),
            cell.clients.to_string(),
            decimal(cell.calls.mean, 3),
            decimal(cell.time_ms.mean, 3),
        ]);
    }
    table
}

/// The means with half the widths of their intervals of confidence of 95 %.
fn intervals(contention: &Contention, trials: u64) -> Table {
    let mut table = Table::new([
        "kind",
        "clients",
        "trials",
        "calls_mean",
        "calls_margin_95",
        "time_ms_mean",
        "time_ms_margin_95",
    ]);
    for cell in &contention.cells {
        table.row([
            cell.kind.name().to_owned(),
            cell.clients.to_string(),
            trials.to_string(),
            decimal(cell.calls.mean, 3),
            decimal(cell.calls.margin, 3),
            decimal(cell.time_ms.mean, 3),
            decimal(cell.time_ms.margin, 3),
        ]);
    }
    table
}

fn over_time(contention: &Contention) -> Table {
    let names = BackoffKind::ALL.map(BackoffKind::name);
    let mut table = Table::new(["from_ms"].into_iter().chain(names));
    for (interval, calls) in contention.calls_over_time.iter().enumerate() {
        let calls = calls.map(|calls| match calls {
            0.0 => "0".to_owned(),
            calls => decimal(calls, 2),
        });
        table.row([(10 * interval).to_string()].into_iter().chain(calls));
    }
    table
}

fn exponents(deviations: &[(Duration, &Contention)]) -> Table {
    let mut table = Table::new([
        "deviation_ms",
        "kind",
        "of",
        "exponent",
        "factor",
        "r_squared",
    ]);
    for (deviation, contention) in deviations {
        for kind in BackoffKind::ALL {
            let calls = contention.exponents(kind, |cell| cell.calls.mean);
            let time = contention.exponents(kind, |cell| cell.time_ms.mean);
            for (of, fit) in [("calls", calls), ("time_ms", time)] {
                let number = |value: Option<f64>, digits| {
                    value.map_or_else(|| "-".to_owned(), |value| decimal(value, digits))
                };
                table.row([
                    decimal(deviation.as_secs_f64() * 1000.0, 3),
                    kind.name().to_owned(),
                    of.to_owned(),
                    number(fit.map(|fit| fit.exponent), 4),
                    number(fit.map(|fit| fit.factor), 4),
                    number(fit.map(|fit| fit.r_squared), 5),
                ]);
            }
        }
    }
    table
}
