//! B6: nodes that are all cut off admit together what the rule does, and the bound more; afterwards each unit is in the store.
//!
//! That is so if each of them knows what the others had told before. Of what it does not know it admits its part once more.

use super::{
    bounded::{schedules, span},
    fleet::Fleet,
    network::{Broken, Network},
    rules::bucket,
};
use crate::random::Random;

const RATE: u64 = 100;
const BURST: u64 = 200;
const SECOND: u64 = 1_000_000_000;

/// Plays an outage of random length for all nodes, under a load of random rate, before which each node hears what the others told, or does not. Returns by how much all nodes exceed the bound, and if the store
/// knows each unit afterwards.
fn over(seed: u64, is_known: bool, broken: Broken) -> (u64, bool) {
    let (rule, _) = bucket(RATE, BURST);
    let mut random = Random::new(seed);
    let (limit, span) = span(&rule);
    let mut network = Network::random(&mut random, span, limit);
    (
        network.death,
        network.loss,
        network.repeat,
        network.cuts_off,
    ) = (0, 0, 0, true);
    network.delay = network.delay.min(SECOND / 100);
    network.timeout = SECOND / 20;
    network.period = SECOND / 50 + random.up_to(SECOND / 10);
    network.max_cost = 1;
    network.broken = broken;
    let (nodes, most, period) = (network.nodes, network.most, network.period);
    let mut fleet = Fleet::new(&rule, network, random.next());
    let (start, before, length) = (fleet.now, random.up_to(SECOND), random.up_to(4 * SECOND));
    let gap = 1 + SECOND / (RATE / 2 + random.up_to(8 * RATE));
    fleet.until(start + before);
    let end = start + before + length;
    let (mut at, mut is_down) = (start + before, false);
    let favourite = random.up_to(nodes - 1) as usize;
    while at < end {
        // From then on, nothing reaches the store.
        if !is_down && at > start + before + length / 3 {
            if is_known {
                // What the first round tells, the second one hears.
                fleet.all_agree();
                assert!(fleet.all_agree(), "seed {seed}");
                at = at.max(fleet.now);
            }
            (fleet.down_until, is_down) = (u64::MAX, true);
        }
        let node = match random.up_to(1) {
            0 => favourite,
            _ => random.up_to(nodes - 1) as usize,
        };
        fleet.offer(node, at, 1);
        fleet.until(at);
        at += gap;
    }
    let admitted = fleet.admitted();
    let elapsed = fleet.now - start;
    // What one node admitted lately, and another one now, may be the same part of the rate, which drifts to an equal one in ten periods.
    let moved = RATE * (nodes - 1) * 5 * period / SECOND + nodes;
    let unknown = if is_known {
        0
    } else {
        BURST * (nodes - 1) / nodes
    };
    let bound = BURST + RATE * elapsed / SECOND + 1 + (nodes - 1) * most + moved + unknown;
    fleet.end();
    fleet.all_agree();
    (
        admitted.saturating_sub(bound),
        fleet.admitted() == fleet.taken_in,
    )
}

#[test]
fn all_nodes_alone_admit_what_the_rule_does() {
    for seed in 0..schedules(5) / 5 {
        for is_known in [true, false] {
            assert_eq!(
                over(seed, is_known, Broken::Nothing),
                (0, true),
                "seed {seed}"
            );
        }
    }
    let found = (0..200).filter(|seed| over(*seed, true, Broken::WholePart).0 > 0);
    assert!(
        found.count() > 0,
        "a node that takes the whole limit is not noticed"
    );
}
