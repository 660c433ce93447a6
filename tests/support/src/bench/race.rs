//! Contenders that take turns (A B C, B C A, …). Each round gives one ratio per peer.

use std::env;

use super::Cost;

/// The scope of a run.
pub struct Mode {
    /// `true` for `cargo bench`. Otherwise a smoke test, which only shows that everything runs.
    pub full: bool,
    /// `--all`: runs also the races that a benchmark leaves out of a whole run, because they would
    /// take long.
    pub all: bool,
    filters: Vec<String>,
}

impl Mode {
    /// Reads the arguments. `cargo bench -- NAME…` runs the races whose names contain one of the
    /// words. With `--test` or without `--bench`, everything runs once and briefly.
    pub fn from_args() -> Self {
        let args: Vec<String> = env::args().skip(1).collect();
        let has = |flag: &str| args.iter().any(|arg| arg == flag);
        Self {
            full: has("--bench") && !has("--test"),
            all: has("--all"),
            filters: args
                .iter()
                .filter(|arg| !arg.starts_with("--"))
                .cloned()
                .collect(),
        }
    }

    pub fn runs(&self, race: &str) -> bool {
        self.filters.is_empty()
            || self
                .filters
                .iter()
                .any(|filter| race.contains(filter.as_str()))
    }

    /// The number of rounds: that of the environment variable `BENCH_ROUNDS`, or else `default`.
    ///
    /// # Panics
    ///
    /// If the variable is not a positive number.
    pub fn rounds(&self, default: usize) -> usize {
        env::var("BENCH_ROUNDS").map_or(default, |text| match text.parse() {
            Ok(rounds) if rounds > 0 => rounds,
            _ => panic!("BENCH_ROUNDS is {text:?}: expected a positive number"),
        })
    }

    pub fn pick<T>(&self, full: T, brief: T) -> T {
        if self.full { full } else { brief }
    }
}

/// Takes a turn in round `n`, and returns the cost of an operation.
type Turn<'a> = Box<dyn FnMut(usize) -> Cost + 'a>;

/// A contender in a race.
pub struct Contender<'a> {
    pub name: &'static str,
    /// The heap allocations of one operation on a known key.
    pub allocations: f64,
    pub turn: Turn<'a>,
}

/// The meaning of a ratio.
#[derive(Clone, Copy, PartialEq)]
pub enum Reads {
    /// Our operations per second over the peer's: more is better.
    Rate,
    /// Our time over the peer's, each above the time of the bare call: less is better.
    TimeAboveBare,
    /// Our time over the peer's: less is better.
    Time,
}

/// A race. The first contender is ours, the others are its peers. A bare call may precede them.
pub struct Race<'a> {
    pub name: &'a str,
    pub bare: Option<Contender<'a>>,
    pub contenders: Vec<Contender<'a>>,
    /// The targets, by the name of the peer.
    pub targets: &'static [(&'static str, &'static str)],
}

/// Lets contenders take turns (A B C, B C A, …). Returns the results of `turn` for each of them, in
/// the order of the rounds.
///
/// `turn` gets the contender and the round. The first round warms up and is not returned.
pub fn take_turns<T>(
    mode: &Mode,
    rounds: usize,
    contenders: usize,
    mut turn: impl FnMut(usize, usize) -> T,
) -> Vec<Vec<T>> {
    let mut results: Vec<Vec<T>> = (0..contenders).map(|_| Vec::new()).collect();
    let (warm_up, rounds) = if mode.full { (1, rounds) } else { (0, 1) };
    for round in 0..warm_up + rounds {
        for place in 0..contenders {
            let who = (round + place) % contenders;
            let result = turn(who, round);
            if round >= warm_up {
                results[who].push(result);
            }
        }
    }
    results
}

/// Rows of results, to be pasted into a document.
pub struct Table {
    reads: Reads,
    rows: Vec<String>,
}

impl Table {
    pub fn new(reads: Reads) -> Self {
        Self {
            reads,
            rows: Vec::new(),
        }
    }

    /// Runs the contenders against each other, and records the ratios.
    pub fn race(&mut self, mode: &Mode, rounds: usize, race: Race<'_>) {
        let Race {
            name,
            bare,
            contenders,
            targets,
        } = race;
        let first = usize::from(bare.is_some());
        let mut all: Vec<_> = bare.into_iter().chain(contenders).collect();
        let count = all.len();
        let costs = take_turns(mode, rounds, count, |who, round| (all[who].turn)(round));
        let rounds = costs[0].len();
        let above = |who: usize, of: fn(&Cost) -> f64| -> Vec<f64> {
            let bare = |round: usize| {
                if first == 1 {
                    of(&costs[0][round])
                } else {
                    0.0
                }
            };
            (0..rounds)
                .map(|round| of(&costs[who][round]) - bare(round))
                .collect()
        };
        for peer in first + 1..count {
            let ratios = |of: fn(&Cost) -> f64| {
                let pairs = above(first, of).into_iter().zip(above(peer, of));
                spread(pairs.map(|(ours, theirs)| match self.reads {
                    Reads::Rate => theirs / ours,
                    Reads::TimeAboveBare | Reads::Time => ours / theirs,
                }))
            };
            let [low, wall, high] = ratios(|cost| cost.wall);
            let [cpu_low, cpu, cpu_high] = ratios(|cost| cost.cpu);
            let nanos = |who| spread(above(who, |cost| cost.wall).into_iter())[1];
            let them = &all[peer];
            let target = targets.iter().find(|(name, _)| *name == them.name);
            let target = target.map_or("–", |(_, target)| target);
            let row = format!(
                "| {name} | {} | **{wall:.2}** ({low:.2}–{high:.2}) | {cpu:.2} ({cpu_low:.2}–{cpu_high:.2}) | {target} | {:.0} : {:.0} | {} : {} |",
                them.name,
                nanos(first),
                nanos(peer),
                hundredths(all[first].allocations),
                hundredths(them.allocations),
            );
            if mode.full {
                eprintln!("{row}");
                self.rows.push(row);
            }
        }
    }

    /// Prints all rows as a Markdown table.
    pub fn print(&self, mode: &Mode, rounds: usize) {
        if !mode.full {
            println!("smoke test: all contenders decide as they should; nothing was measured");
            return;
        }
        let what = match self.reads {
            Reads::Rate => "decisions per second, ours over theirs: more is better",
            Reads::TimeAboveBare => "time above the bare call, ours over theirs: less is better",
            Reads::Time => "time, ours over theirs: less is better",
        };
        println!("\nRatios of {what}. Median of {rounds} rounds (least–greatest), by the wall;");
        println!(
            "then by processor time. Nanoseconds and allocations per request: ours : theirs.\n"
        );
        println!("| | against | ratio | by cpu | aim | ns | allocations |");
        println!("|---|---|---|---|---|---|---|");
        self.rows.iter().for_each(|row| println!("{row}"));
    }
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// Returns the least, the median and the greatest value.
pub fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    ]
}
