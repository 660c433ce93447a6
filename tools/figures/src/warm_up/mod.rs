//! The figure `warm-up`: how a cold key warms up under full load, and what pauses do.

mod seconds;
mod spaced;

use std::time::Duration;

use tollgate::{
    Quota,
    algorithm::{WarmUp as Rule, WarmUpSpaced},
};

use crate::{
    args,
    chart::{Axis, Line, Panel, Picture, Series},
    figure::{Figure, Products, Progress, Table, decimal},
};

use self::{seconds::Second, spaced::Spaced};

/// The parameters of the figure.
#[derive(clap::Args)]
pub(crate) struct WarmUp {
    /// The rate of a warm key
    #[arg(long, value_name = "QUOTA", default_value = "200/s")]
    rate: Quota,
    /// The time from cold to warm
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = args::time)]
    over: Duration,
    /// The factor by which a cold key is slower
    #[arg(long, value_name = "FACTOR", default_value_t = 3)]
    cold: u32,
    /// The seconds for which the load lasts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// The longest pause, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pauses: u64,
}

/// The most calls of the figure.
const MOST_CALLS: u64 = 100_000_000;

/// The calls that the first second after a pause lets pass.
struct Pause {
    length: u64,
    first: Second,
    /// The seconds from the end of the pause to the first second at the full rate; `None` if it is
    /// not reached.
    full_after: Option<u64>,
    spaced_first: u64,
}

impl Figure for WarmUp {
    fn name(&self) -> &'static str {
        "warm-up"
    }

    fn make(&self, _: u64, _: &Progress<'_>) -> Result<Products, String> {
        let wrong = |error: tollgate::Error| error.to_string();
        let rule = Rule::try_with(self.rate, self.over, 1000 * u64::from(self.cold));
        let rule = rule.map_err(wrong)?;
        let spaced = WarmUpSpaced::new(self.rate);
        let spaced = spaced
            .try_over(self.over)
            .and_then(|rule| rule.try_cold(self.cold));
        let spaced = spaced.map_err(wrong)?;
        let pauses = (2 * self.pauses).saturating_mul(warm_seconds(&rule));
        let seconds = pauses.saturating_add(self.seconds);
        if seconds.saturating_mul(rule.capacity()) > MOST_CALLS {
            return Err(format!(
                "--rate \"{}\" over {} s: the figure makes each call, at most {MOST_CALLS}; choose a lower rate, a shorter time, or fewer --pauses",
                self.rate,
                self.over.as_secs_f64()
            ));
        }
        let seconds = seconds::under_load(&rule, self.seconds);
        let departures = Spaced::new(spaced).under_load(self.seconds);
        let pauses: Vec<_> = (1..=self.pauses)
            .map(|length| pause(&rule, spaced, length))
            .collect();

        let mut products = Products::default();
        products.table("warmup", &load_table(&seconds, &departures))?;
        products.table("warmup_pause", &pause_table(&pauses))?;
        products.picture("warmup", &self.picture(&seconds, &departures, &pauses))?;
        Ok(products)
    }
}

/// Returns a number of seconds of full load after which a key is warm.
fn warm_seconds(rule: &Rule) -> u64 {
    rule.warms_over().as_secs().saturating_mul(4) + 4
}

/// Warms a key of each form, lets it rest, and puts it under load again.
fn pause(rule: &Rule, spaced: WarmUpSpaced, length: u64) -> Pause {
    let warm = warm_seconds(rule);
    let after = seconds::after_pause(rule, warm, length);
    let full = after
        .iter()
        .position(|second| second.passed == rule.capacity());
    let mut key = Spaced::new(spaced);
    key.under_load(warm);
    key.rest(length);
    Pause {
        length,
        full_after: full.map(|second| second as u64),
        spaced_first: key.under_load(1)[0],
        first: after[0],
    }
}

fn load_table(seconds: &[Second], departures: &[u64]) -> Table {
    let mut table = Table::new([
        "second",
        "passed",
        "stored",
        "threshold_rate",
        "continuous_rate",
    ]);
    for (number, (second, departed)) in seconds.iter().zip(departures).enumerate() {
        table.row([
            number.to_string(),
            second.passed.to_string(),
            decimal(second.stored, 3),
            decimal(second.rate, 3),
            departed.to_string(),
        ]);
    }
    table
}

fn pause_table(pauses: &[Pause]) -> Table {
    let mut table = Table::new([
        "pause_s",
        "stored",
        "threshold_rate",
        "passed_first_second",
        "full_rate_after_s",
        "continuous_first_second",
    ]);
    for pause in pauses {
        table.row([
            pause.length.to_string(),
            decimal(pause.first.stored, 3),
            decimal(pause.first.rate, 3),
            pause.first.passed.to_string(),
            pause
                .full_after
                .map_or_else(|| "-".to_owned(), |seconds| seconds.to_string()),
            pause.spaced_first.to_string(),
        ]);
    }
    table
}

impl WarmUp {
    fn picture(&self, seconds: &[Second], departures: &[u64], pauses: &[Pause]) -> Picture {
        let most = departures.iter().max().copied().unwrap_or(0);
        let most = seconds
            .iter()
            .map(|second| second.passed)
            .fold(most, u64::max);
        let (end, top) = (self.seconds as f64, most as f64 * 1.05);
        let stored = seconds
            .iter()
            .map(|second| second.stored)
            .fold(0.0, f64::max);
        // A step lasts to the end of its second.
        let by_second = |value: &dyn Fn(usize) -> f64| -> Vec<_> {
            let last = seconds.len() - 1;
            let all = (0..=last).map(|second| (second as f64, value(second)));
            all.chain([(end, value(last))]).collect()
        };
        let passed = by_second(&|second| seconds[second].passed as f64);
        let rate = by_second(&|second| seconds[second].rate);
        let spaced = by_second(&|second| departures[second] as f64);
        let tokens = by_second(&|second| seconds[second].stored);

        let title = format!(
            "Warm-up to {} over {} s, cold factor {}: full load from cold",
            self.rate,
            self.over.as_secs_f64(),
            self.cold
        );
        let mut picture = Picture::new(&title);
        let time = || Axis::linear("seconds of full load", 0.0, end);
        let mut panel = Panel::new("", time(), Axis::linear("calls per second", 0.0, top));
        panel.series(Series::new(
            "passed, by second (Sentinel's form)",
            2,
            Line::Steps,
            passed,
        ));
        panel.series(Series::new("rate on the curve", 1, Line::Dashed, rate));
        panel.series(Series::new(
            "departed, spaced (Guava's form)",
            4,
            Line::Steps,
            spaced,
        ));
        picture.panel(panel);
        let axis = Axis::linear("stored tokens", 0.0, stored * 1.05);
        let mut panel = Panel::new("", time(), axis).height(240);
        panel.series(Series::new(
            "stored at the beginning of the second",
            3,
            Line::Steps,
            tokens,
        ));
        picture.panel(panel);
        let points = |value: &dyn Fn(&Pause) -> u64| -> Vec<_> {
            let point = |pause: &Pause| (pause.length as f64, value(pause) as f64);
            pauses.iter().map(point).collect()
        };
        let axis = Axis::linear(
            "seconds of rest of a warm key",
            0.0,
            self.pauses as f64 + 1.0,
        );
        let mut panel = Panel::new(
            "The first second after a pause",
            axis,
            Axis::linear("calls", 0.0, top),
        );
        let passed = points(&|pause| pause.first.passed);
        panel.series(Series::new("passed, by second", 2, Line::Dots, passed));
        let spaced = points(&|pause| pause.spaced_first);
        panel.series(Series::new("departed, spaced", 4, Line::Dots, spaced));
        picture.panel(panel);
        picture
    }
}
