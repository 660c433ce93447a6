//! New keys beside known ones, in the same table.

use std::iter::zip;

use support::{
    Random,
    bench::{Mode, take_turns},
};

use crate::{
    common::{
        decider::Part,
        keys::{BenchKey, Keys},
    },
    limiters::{CAPACITY, PEERS, limiters},
    report::{Report, nanos, ratio, ratios},
    rules::SLOW,
};

/// The number of decisions in a turn of a thread.
const EACH: usize = 1_000;

pub(crate) fn report() -> Report {
    Report::new(
        "Processor time of a decision about a new key, over theirs and over that about a known key: less is better.",
        "| newcomers | governor | rate-net | the floor | ns | over a known key: ours | governor | rate-net | the floor |",
    )
}

/// The number of new keys that a race takes.
pub(crate) fn newcomers(mode: &Mode, rounds: usize, threads: usize) -> usize {
    mode.pick(rounds + 1, 1) * threads * EACH
}

/// Races in stores of the default capacity. All keys but the last `newcomers` are known before.
pub(crate) fn race<K: BenchKey>(
    mode: &Mode,
    rounds: usize,
    report: &mut Report,
    (name, threads): (&str, usize),
    mut all: Vec<K>,
) {
    let count = newcomers(mode, rounds, threads);
    let new = all.split_off(all.len() - count);
    let mut random = Random::new(6);
    let known = (0..count).map(|_| random.choose(&all).clone());
    let visits = new.into_iter().chain(known.collect::<Vec<_>>()).collect();
    let keys = Keys { all, visits };
    let limiters = limiters(&SLOW, &keys, &[CAPACITY], CAPACITY);
    let parts = [0..count, count..2 * count].map(|visits| Part {
        visits,
        threads,
        each: EACH,
    });
    // All limiters decide about new keys before the first one decides about known keys: directly
    // after its own turn, its table would still be in the caches.
    let count = limiters.len();
    let turns = take_turns(mode, rounds, 2 * count, |who, round| {
        limiters[who % count].turn(&parts[who / count], round)
    });
    let (new, known) = turns.split_at(count);
    for turn in &new[0] {
        assert_eq!(turn.inserted as usize, turn.decisions, "new keys");
    }
    let over_known: Vec<String> = zip(new, known)
        .map(|(new, known)| ratio(new, known))
        .collect();
    report.row(
        mode,
        format!(
            "| {name} | {} | {} | {} |",
            ratios(&PEERS[..3], (&limiters[0], &new[0]), &limiters, new),
            nanos(&new[0], &limiters, new),
            over_known.join(" | "),
        ),
    );
}
