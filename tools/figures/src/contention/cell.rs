//! The means of many races.

use super::{
    exponent::Exponent,
    settings::{BackoffKind, Contenders},
    trial::trial,
};

/// The width of an interval of the calls over time, in nanoseconds.
const INTERVAL: u64 = 10_000_000;

/// The races of so many clients with one kind of back-off.
#[derive(Clone, Debug)]
pub struct Cell {
    pub kind: BackoffKind,
    pub clients: usize,
    /// The writes that reach the row.
    pub calls: Mean,
    /// Until the last client knows that it has written, in milliseconds.
    pub time_ms: Mean,
}

/// A mean with half the width of its interval of confidence of 95 %, by the normal distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    pub mean: f64,
    pub margin: f64,
}

impl Mean {
    /// Returns the mean of at least two numbers.
    fn of(numbers: &[f64]) -> Self {
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let squares: f64 = numbers.iter().map(|x| (x - mean) * (x - mean)).sum();
        let variance = squares / (count - 1.0);
        Self {
            mean,
            margin: 1.96 * libm::sqrt(variance / count),
        }
    }
}

/// All that was simulated.
#[derive(Clone, Debug)]
pub struct Contention {
    /// Kind by kind, and within a kind by the number of clients.
    pub cells: Vec<Cell>,
    /// For each interval of 10 ms, the mean number of writes that reach the row, of each kind.
    pub calls_over_time: Vec<[f64; BackoffKind::ALL.len()]>,
}

/// Runs all races. `progress` is called after each cell, with the part of the work that is done,
/// from 0 to 1.
///
/// # Errors
///
/// When a setting is out of its range.
pub fn simulate(
    contenders: &Contenders,
    mut progress: impl FnMut(f64),
) -> Result<Contention, String> {
    contenders.check()?;
    let square = |clients: &usize| (clients * clients) as f64;
    let of_kind: f64 = contenders.clients.iter().map(square).sum();
    let all = of_kind * BackoffKind::ALL.len() as f64;
    let (mut cells, mut done) = (Vec::new(), 0.0);
    for kind in BackoffKind::ALL {
        for &clients in &contenders.clients {
            cells.push(cell(contenders, kind, clients));
            done += square(&clients);
            progress(done / all);
        }
    }
    Ok(Contention {
        cells,
        calls_over_time: calls_over_time(contenders),
    })
}

fn cell(contenders: &Contenders, kind: BackoffKind, clients: usize) -> Cell {
    let (mut calls, mut times) = (Vec::new(), Vec::new());
    for number in 0..contenders.trials {
        let trial = trial(contenders, kind, clients, number);
        calls.push(trial.writes.len() as f64);
        times.push(trial.finished as f64 / 1e6);
    }
    Cell {
        kind,
        clients,
        calls: Mean::of(&calls),
        time_ms: Mean::of(&times),
    }
}

fn calls_over_time(contenders: &Contenders) -> Vec<[f64; BackoffKind::ALL.len()]> {
    let mut counts: Vec<[u64; BackoffKind::ALL.len()]> = Vec::new();
    for (index, kind) in BackoffKind::ALL.into_iter().enumerate() {
        for number in 0..contenders.trials {
            for at in trial(contenders, kind, contenders.over_time, number).writes {
                let interval = (at / INTERVAL) as usize;
                if counts.len() <= interval {
                    counts.resize(interval + 1, Default::default());
                }
                counts[interval][index] += 1;
            }
        }
    }
    let mean = |counts: [u64; _]| counts.map(|count| count as f64 / contenders.trials as f64);
    counts.into_iter().map(mean).collect()
}

impl Contention {
    /// Returns the cells of one kind.
    pub fn of(&self, kind: BackoffKind) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.kind == kind)
    }

    /// Fits exponents of growth to the cells with at least 10 clients; `None` if there are less
    /// than two of them.
    pub fn exponents(&self, kind: BackoffKind, of: impl Fn(&Cell) -> f64) -> Option<Exponent> {
        let cells = self.of(kind).filter(|cell| cell.clients >= 10);
        let points: Vec<_> = cells.map(|cell| (cell.clients as f64, of(cell))).collect();
        Exponent::fit(&points)
    }
}
