//! The results as tables in Markdown: each row is printed when its race is over, and all of them in
//! the end.

use std::iter::{once, zip};

use support::bench::{Cost, Mode, spread};

use crate::limiters::{BUCKET, CAPACITY, Limiter, count_text};

/// A turn of a contender.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) cost: Cost,
    pub(crate) decisions: usize,
    pub(crate) admitted: usize,
    /// New keys that a store of ours inserted.
    pub(crate) inserted: u64,
}

pub(crate) struct Report {
    title: &'static str,
    header: &'static str,
    rows: Vec<String>,
}

impl Report {
    /// Begins a table with a header of these columns, separated as in Markdown.
    pub(crate) fn new(title: &'static str, header: &'static str) -> Self {
        Self {
            title,
            header,
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, mode: &Mode, row: String) {
        if mode.full {
            eprintln!("{row}");
            self.rows.push(row);
        }
    }

    pub(crate) fn print(&self, rounds: usize) {
        if self.rows.is_empty() {
            return;
        }
        println!(
            "\n{} Median of {rounds} rounds (least–greatest).\n",
            self.title
        );
        println!("{}", self.header);
        println!("|{}", "---|".repeat(self.header.matches('|').count() - 1));
        self.rows.iter().for_each(|row| println!("{row}"));
    }
}

/// The ratio of the processor time of a decision, of one contender over another.
pub(crate) fn ratio(these: &[Turn], those: &[Turn]) -> String {
    let ratios = zip(these, those).map(|(this, that)| this.cost.cpu / that.cost.cpu);
    let [low, median, high] = spread(ratios);
    format!("**{median:.2}** ({low:.2}–{high:.2})")
}

/// Writes the ratios of a contender over each of `peers`, as cells; a cell is empty if the peer did
/// not take part.
///
/// The token bucket of ours has the default capacity, and is compared only with stores of that
/// capacity.
pub(crate) fn ratios(
    peers: &[&str],
    (contender, ours): (&Limiter<'_>, &[Turn]),
    limiters: &[Limiter<'_>],
    turns: &[Vec<Turn>],
) -> String {
    let default = contender.name == count_text(CAPACITY);
    let cell = |peer: &&str| {
        zip(limiters, turns)
            .find(|(limiter, _)| limiter.name == *peer && (default || *peer != BUCKET))
            .map_or(String::new(), |(_, theirs)| ratio(ours, theirs))
    };
    peers.iter().map(cell).collect::<Vec<_>>().join(" | ")
}

/// Writes the nanoseconds of a decision: of a contender, and of all peers that took part.
pub(crate) fn nanos(ours: &[Turn], limiters: &[Limiter<'_>], turns: &[Vec<Turn>]) -> String {
    let median = |turns: &[Turn]| {
        let [_, median, _] = spread(turns.iter().map(|turn| turn.cost.cpu));
        format!("{median:.0}")
    };
    let peers = zip(limiters, turns).filter(|(limiter, _)| limiter.inserted.is_none());
    let all = once(median(ours)).chain(peers.map(|(_, turns)| median(turns)));
    all.collect::<Vec<_>>().join(" : ")
}
