//! Clients that return after their states have expired, or nearly.

use std::{iter::zip, time::Duration};

use support::bench::{Gap, Mode, take_turns};

use crate::{
    common::{
        decider::Part,
        keys::{BenchKey, Keys},
    },
    limiters::{CAPACITY, PEERS, limiters, threads_text},
    report::{Report, Turn, nanos, ratios},
    rules::Rule,
};

/// The longest wait between two turns of a contender.
const LONGEST_GAP: Duration = Duration::from_millis(300);

/// A race.
pub(crate) struct Setting<'a> {
    pub(crate) rule: &'a Rule,
    /// The keys and how they are drawn, in words.
    pub(crate) keys: &'a str,
    pub(crate) threads: usize,
    /// The number of decisions in a turn, of all threads.
    pub(crate) decisions: usize,
    /// Lets clients ask at half their limit on average: waits between turns, for two units of the
    /// quota.
    pub(crate) pauses: bool,
}

impl Setting<'_> {
    pub(crate) fn name(&self) -> String {
        format!(
            "{}, {}, {}",
            self.rule.name,
            self.keys,
            threads_text(self.threads)
        )
    }
}

pub(crate) fn report() -> Report {
    Report::new(
        "Processor time of a decision, ours over theirs: less is better.",
        "| traffic | capacity | governor | rate-net | the floor | ours, token bucket | ns | new keys, % | admitted, % |",
    )
}

/// Races stores of ours, one for each capacity, against their peers.
pub(crate) fn race<K: BenchKey>(
    mode: &Mode,
    rounds: usize,
    report: &mut Report,
    setting: &Setting<'_>,
    keys: &Keys<K>,
) {
    let count = keys.all.len();
    let mut capacities = vec![count.max(1000), 4 * count.max(1000), CAPACITY];
    capacities.sort_unstable();
    capacities.dedup();
    let limiters = limiters(setting.rule, keys, &capacities, count);
    for limiter in &limiters {
        assert_eq!(limiter.decider.loaded, count, "{}: admitted", limiter.name);
    }

    let gap = if setting.pauses && mode.full {
        (2 * setting.rule.limit.interval()).min(LONGEST_GAP)
    } else {
        Duration::ZERO
    };
    let mut gaps: Vec<Gap> = limiters.iter().map(|_| Gap::new(gap)).collect();
    let part = Part {
        visits: 0..keys.visits.len(),
        threads: setting.threads,
        each: setting.decisions / setting.threads,
    };
    let turns = take_turns(mode, rounds, limiters.len(), |who, round| {
        gaps[who].wait();
        let turn = limiters[who].turn(&part, round);
        gaps[who].end();
        turn
    });

    for (limiter, ours) in zip(&limiters, &turns) {
        if limiter.inserted.is_none() {
            continue;
        }
        let sum = |of: fn(&Turn) -> usize| ours.iter().map(of).sum::<usize>() as f64;
        let per_cent = |part| 100.0 * part / sum(|turn| turn.decisions);
        report.row(
            mode,
            format!(
                "| {} | {} | {} | {} | {:.2} | {:.1} |",
                setting.name(),
                limiter.name,
                ratios(&PEERS, (limiter, ours), &limiters, &turns),
                nanos(ours, &limiters, &turns),
                per_cent(sum(|turn| turn.inserted as usize)),
                per_cent(sum(|turn| turn.admitted)),
            ),
        );
    }
}
