//! Contenders that take turns (A B C, B C A, …): each round gives one ratio for each peer.

use support::bench::Mode;

use crate::turn::Cost;

/// A contender in a race.
pub struct Contender<'a> {
    pub name: &'static str,
    /// Takes a turn in that round.
    pub turn: Box<dyn FnMut(u64) -> Cost + 'a>,
}

/// The aim beside a peer.
#[derive(Clone, Copy)]
pub struct Aim {
    pub peer: &'static str,
    /// Decisions a second over the peer's, at least.
    pub rate: f64,
    /// Time of the server's processor for each decision over the peer's, at most.
    pub server: Option<f64>,
}

/// Least quartile, median, greatest quartile.
struct Spread([f64; 3]);

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
        Self([1, 2, 3].map(at))
    }

    fn text(&self) -> String {
        let [low, median, high] = self.0;
        if median.is_nan() {
            return "–".to_owned();
        }
        format!("**{median:.2}** ({low:.2}–{high:.2})")
    }

    fn median(&self) -> f64 {
        self.0[1]
    }
}

/// Lets the contenders run against each other; the first one is ours. Prints how it went.
pub fn race(mode: &Mode, name: &str, rounds: u64, mut all: Vec<Contender<'_>>, aims: &[Aim]) {
    let mut costs: Vec<Vec<Cost>> = all.iter().map(|_| Vec::new()).collect();
    // The first two rounds warm up and are not counted.
    let (warm_up, rounds) = if mode.full { (2, rounds) } else { (0, 1) };
    let count = all.len();
    for round in 0..warm_up + rounds {
        for turn in 0..count {
            let who = (round as usize + turn) % count;
            let cost = (all[who].turn)(round);
            if round >= warm_up {
                costs[who].push(cost);
            }
        }
    }
    if !mode.full {
        return;
    }
    println!("\n{name}; median of {rounds} rounds (quartiles)\n");
    println!(
        "| | decisions/s, ours over theirs | aim | server CPU, ours over theirs | aim | client CPU, ours over theirs |"
    );
    println!("|---|---|---|---|---|---|");
    for peer in 1..count {
        let ratio = |of: fn(&Cost) -> f64| {
            let pairs = costs[0].iter().zip(&costs[peer]);
            Spread::of(pairs.map(move |(ours, theirs)| of(ours) / of(theirs)))
        };
        let rate = |cost: &Cost| 1e9 / cost.wall;
        let aim = aims.iter().find(|aim| aim.peer == all[peer].name);
        let rate_aim = aim.map_or("–".to_owned(), |aim| format!("≥ {:.3}", aim.rate));
        let server_aim = aim.and_then(|aim| aim.server);
        println!(
            "| {} | {} | {rate_aim} | {} | {} | {} |",
            all[peer].name,
            ratio(rate).text(),
            ratio(|cost| cost.server).text(),
            server_aim.map_or("–".to_owned(), |aim| format!("≤ {aim}")),
            ratio(|cost| cost.client).text(),
        );
    }
    println!("\n| | 1,000 decisions/s | p50, µs | p99, µs | server CPU, µs | client CPU, µs |");
    println!("|---|---|---|---|---|---|");
    for (contender, costs) in all.iter().zip(&costs) {
        let median = |of: fn(&Cost) -> f64| Spread::of(costs.iter().map(of)).median();
        let mut latencies: Vec<u32> = costs
            .iter()
            .flat_map(|cost| cost.latencies.iter().copied())
            .collect();
        latencies.sort_unstable();
        let percentile = |of: usize| {
            let at = latencies.len().saturating_sub(1) * of / 100;
            f64::from(latencies.get(at).copied().unwrap_or_default()) / 1e3
        };
        println!(
            "| {} | {:.1} | {:.0} | {:.0} | {:.2} | {:.2} |",
            contender.name,
            1e6 / median(|cost| cost.wall),
            percentile(50),
            percentile(99),
            median(|cost| cost.server) / 1e3,
            median(|cost| cost.client) / 1e3,
        );
    }
}
