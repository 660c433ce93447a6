//! B6: nodes that are all cut off admit together what the rule does, and the bound more; afterwards each unit is in the store.
//!
//! That is so if each of them knows what the others had told before. Of what it does not know it admits its part once more.

use super::{
    bounded::{exceeded, raised, schedules, span},
    fleet::{Call, Fleet},
    meter::Meter,
    network::{Broken, Network},
    rules::{bucket, calendar, pair, sliding},
};
use crate::{algorithm::Syncable, random::Random};

const SECOND: u64 = 1_000_000_000;

/// The results of an outage.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    is_over: bool,
    /// The store knows each unit afterwards.
    is_told: bool,
    /// All nodes know what the store knows.
    agrees: bool,
}

const RIGHT: Outcome = Outcome {
    is_over: false,
    is_told: true,
    agrees: true,
};

/// Returns the units that are refilled in a second, the most of the rules of a pair.
fn rate(meter: &Meter) -> u64 {
    match meter {
        Meter::Bucket { amount, period, .. } | Meter::Fixed { amount, period } => {
            amount * SECOND / period
        }
        Meter::Sliding { amount, window, .. } => amount * SECOND / window,
        Meter::Both(a, b) => rate(a).max(rate(b)),
        Meter::FirstCall { .. } | Meter::Log { .. } => unreachable!("not synced"),
    }
}

/// Plays an outage of random length for all nodes, under a load of random rate, half of which comes to one node. Before it, each node hears what the
/// others told, or does not.
fn outage<R: Syncable>(
    (rule, meter): &(R, Meter),
    seed: u64,
    is_known: bool,
    broken: Broken,
) -> Outcome {
    let mut random = Random::new(seed);
    let (limit, span) = span(rule);
    let rate = rate(meter);
    let mut network = Network::random(&mut random, span, limit);
    (network.death, network.loss, network.repeat) = (0, 0, 0);
    (network.forget, network.count, network.cuts_off) = (0, 0, true);
    (network.keys, network.room) = (1, 1);
    network.delay = network.delay.min(SECOND / 100);
    network.timeout = SECOND / 20;
    network.period = SECOND / 50 + random.up_to(SECOND / 10);
    network.max_cost = 1;
    network.broken = broken;
    let near = 2 * network.delay + network.timeout;
    let (nodes, most, period) = (network.nodes, network.most, network.period);
    let rules = std::slice::from_ref(rule);
    let mut fleet = Fleet::new(rules, network, random.next());
    let (start, before, length) = (fleet.now, random.up_to(SECOND), random.up_to(4 * SECOND));
    let gap = 1 + SECOND / (rate / 2 + random.up_to(8 * rate));
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
        fleet.offer(node, at, Call::new(0, 1));
        fleet.until(at);
        at += gap;
    }
    // What one node admitted lately, and another one now, may be the same part of the rate, which drifts to an equal one in ten periods.
    let moved = rate * (nodes - 1) * 5 * period / SECOND + nodes;
    let unknown = if is_known {
        0
    } else {
        limit * (nodes - 1) / nodes
    };
    let meter = raised(meter, 1 + (nodes - 1) * most + moved + unknown);
    let is_over = exceeded(&fleet, &meter, near).is_some();
    fleet.end();
    let agrees = fleet.all_agree();
    Outcome {
        is_over,
        is_told: fleet.admitted() == fleet.taken_in,
        agrees,
    }
}

fn is_right<R: Syncable>(rule: &(R, Meter), percent: u64) {
    for seed in 0..schedules(percent) / 10 {
        for is_known in [true, false] {
            let outcome = outage(rule, seed, is_known, Broken::Nothing);
            assert_eq!(outcome, RIGHT, "{:?}: seed {seed}, {is_known}", rule.1);
        }
    }
}

#[test]
fn all_nodes_alone_admit_what_the_rule_does() {
    is_right(&bucket(100, 200), 10);
    is_right(&calendar(200, 2), 5);
    is_right(&sliding(200, 2, 4), 5);
    is_right(&pair(bucket(100, 200), calendar(300, 2)), 3);
}

#[test]
fn each_law_of_an_outage_is_needed() {
    let rule = bucket(100, 200);
    let found = |broken, is_wrong: fn(Outcome) -> bool| {
        (0..300).any(|seed| is_wrong(outage(&rule, seed, true, broken)))
    };
    for broken in [Broken::WholePart, Broken::NoDrift] {
        assert!(
            found(broken, |outcome| outcome.is_over),
            "{broken:?} is not noticed"
        );
    }
    assert!(
        found(Broken::DropsUnsynced, |outcome| !outcome.is_told),
        "units that are not pushed are not noticed"
    );
    assert!(
        found(Broken::OldView, |outcome| !outcome.agrees),
        "nodes that do not converge are not noticed"
    );
}
