//! B6: nodes that are all offline admit together what the rule does, and the bound more; afterwards
//! each unit is in the store.
//!
//! That is so if each of them knows what the others had pushed before. Of what it does not know it
//! admits its part once more.

use super::{
    bounded::{exceeded, schedules, span},
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

/// Plays an outage of random length for all nodes, under a load of random rate, half of which comes
/// to one node. Before it, each node hears what the others pushed, or does not. The rules take
/// turns at random.
fn outage<R: Syncable>(
    (rules, meter): (&[R], &Meter),
    seed: u64,
    is_known: bool,
    broken: Broken,
) -> Outcome {
    let mut random = Random::new(seed);
    let (limit, span) = span(&rules[0]);
    let rate = rate(meter);
    let mut network = Network::random(&mut random, span, limit);
    network.simplify();
    (network.death, network.loss, network.repeat) = (0, 0, 0);
    (network.forget, network.count, network.cuts_off) = (0, 0, true);
    (network.keys, network.room) = (1, 1);
    network.delay = network.delay.min(SECOND / 100);
    network.timeout = SECOND / 20;
    network.period = SECOND / 50 + random.up_to(SECOND / 10);
    network.max_cost = 1;
    network.broken = broken;
    let near = 2 * network.delay + network.timeout;
    let (nodes, most) = (network.nodes, network.most);
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
                // What the first round pushes, the second one hears.
                fleet.all_agree();
                let agree = fleet.all_agree();
                assert!(agree || broken != Broken::Nothing, "seed {seed}");
                at = at.max(fleet.now);
            }
            (fleet.down_until, is_down) = (u64::MAX, true);
        }
        let node = match random.up_to(1) {
            0 => favourite,
            _ => random.up_to(nodes - 1) as usize,
        };
        let mut call = Call::new(0, 1);
        call.rule = random.up_to(rules.len() as u64 - 1) as usize;
        fleet.offer(node, at, call);
        fleet.until(at);
        at += gap;
    }
    // The node that heard of the store last knows all but what the store decided since. With one
    // rule that is too little to count; calls under several, some of which may not be ahead, often
    // wait for each other, and are left to the store.
    let unseen = match rules {
        [_] => 0,
        _ => fleet.unseen().div_ceil(nodes),
    };
    let unknown = match is_known {
        true => 0,
        false => limit * (nodes - 1) / nodes + unseen,
    };
    let meter = meter.with_more(1 + (nodes - 1) * most + nodes + unknown);
    let is_over = exceeded(&fleet, &meter, near).is_some();
    fleet.end();
    let agrees = fleet.all_agree();
    Outcome {
        is_over,
        is_told: fleet.charged == fleet.taken_in,
        agrees,
    }
}

/// Equal nodes under steady traffic, and a store that is silent for a while: whatever their number,
/// the demand, the period and the outage, they add one limit at most to what they may always be
/// above it. The shares of the traffic that they publish before are right.
#[test]
fn an_outage_adds_one_limit_at_most() {
    const LIMIT: u64 = 200;
    let (rule, meter) = bucket(LIMIT, LIMIT);
    for nodes in [2, 4, 10, 50] {
        for percent in [30, 100, 300, 1200] {
            for (period, length) in [(20, 500), (100, 1500), (100, 4000), (500, 1500)] {
                let most = (LIMIT / 20 / (nodes - 1)).max(1);
                let network = Network {
                    nodes,
                    most,
                    period: period * SECOND / 1000,
                    cuts_off: true,
                    ..Network::quiet()
                };
                let near = network.timeout;
                let mut fleet = Fleet::new(std::slice::from_ref(&rule), network, nodes);
                let start = fleet.now;
                let outage = start + 2 * SECOND;
                let end = outage + length * SECOND / 1000;
                let gap = SECOND * 100 / (LIMIT * percent);
                for n in 0..(end - start) / gap {
                    let at = start + n * gap;
                    if at >= outage {
                        fleet.down_until = end;
                    }
                    fleet.offer((n % nodes) as usize, at, Call::new(0, 1));
                    fleet.until(at);
                }
                let cell = format!("{nodes} nodes, {percent} %, {period} ms, {length} ms");
                let meter = meter.with_more(LIMIT + nodes * most + nodes);
                let over = exceeded(&fleet, &meter, near);
                assert!(over.is_none(), "{cell}: {over:?}");
            }
        }
    }
}

/// The published shares of the traffic are right within a fifth: those of equal nodes, and of two
/// nodes of which one has three quarters.
#[test]
fn published_shares_are_right() {
    let mut published = 0;
    for (limit, nodes, favoured) in [(2000, 2, 1), (2000, 2, 3), (2000, 4, 1), (4000, 10, 1)] {
        let (rule, _) = bucket(limit, limit);
        for percent in [30, 100, 300, 1200] {
            let network = Network {
                nodes,
                most: limit / 20 / (nodes - 1),
                period: SECOND / 5,
                ..Network::quiet()
            };
            let mut fleet = Fleet::new(std::slice::from_ref(&rule), network, nodes);
            let (start, gap) = (fleet.now, SECOND * 100 / (limit * percent));
            let (calls, mut before) = (4 * SECOND / gap, Vec::new());
            let admitted = |fleet: &Fleet<'_, _>| -> Vec<u64> {
                fleet.nodes.iter().map(|node| node.admitted).collect()
            };
            for n in 0..calls {
                if n == calls * 3 / 4 {
                    before = admitted(&fleet);
                }
                let at = start + n * gap;
                let node = (n % (nodes + favoured - 1)).saturating_sub(favoured - 1);
                fleet.offer(node as usize, at, Call::new(0, 1));
                fleet.until(at);
            }
            let lately: Vec<_> = admitted(&fleet)
                .iter()
                .zip(before)
                .map(|(now, before)| now - before)
                .collect();
            let all: u64 = lately.iter().sum();
            for (node, own) in lately.into_iter().enumerate() {
                let Some(share) = fleet.share_permille(node) else {
                    continue;
                };
                published += 1;
                let (least, most) = (own * 800 / all, own * 1200 / all);
                assert!(
                    (least..=most).contains(&share),
                    "limit {limit}, {nodes} nodes, {percent} %: {share} of {own} of {all}"
                );
            }
        }
    }
    assert!(published >= 12, "{published}");
}

/// Returns what a node admits alone of a key that is used up, after a call that it left to the
/// store in vain: under the second rule it may not be ahead.
fn admitted_after_left_call(broken: Broken) -> u64 {
    let (rule, _) = bucket(100, 200);
    let rules = [rule, rule.keep_free(50)];
    let network = Network {
        nodes: 2,
        most: 1,
        period: SECOND / 50,
        cuts_off: true,
        broken,
        ..Network::quiet()
    };
    let mut fleet = Fleet::new(&rules, network, 1);
    for n in 0..1000 {
        fleet.offer(n % 2, fleet.now, Call::new(0, 1));
        fleet.until(fleet.now + SECOND / 300);
    }
    fleet.all_agree();
    assert!(fleet.all_agree());
    fleet.down_until = u64::MAX;
    let (start, before) = (fleet.now, fleet.nodes[0].admitted);
    let mut left = Call::new(0, 1);
    left.rule = 1;
    fleet.offer(0, start, left);
    for _ in 0..200 {
        fleet.offer(0, start, Call::new(0, 1));
    }
    fleet.until(start + SECOND / 5);
    fleet.nodes[0].admitted - before
}

/// The view of a key outlives a call that its node leaves to the store. A node that knew nothing
/// would take half of the whole limit.
#[test]
fn a_call_that_is_left_to_the_store_forgets_nothing() {
    let admitted = [Broken::Nothing, Broken::ForgetsView].map(admitted_after_left_call);
    assert!(admitted[0] <= 20 && admitted[1] >= 100, "{admitted:?}");
}

fn is_right<R: Syncable>(rules: &[R], meter: &Meter, percent: u64) {
    for seed in 0..schedules(percent) / 10 {
        for is_known in [true, false] {
            let outcome = outage((rules, meter), seed, is_known, Broken::Nothing);
            assert_eq!(outcome, RIGHT, "{meter:?}: seed {seed}, {is_known}");
        }
    }
}

#[test]
fn all_nodes_alone_admit_what_the_rule_does() {
    let (rule, meter) = bucket(100, 200);
    is_right(&[rule], &meter, 10);
    // The share of a node is one for both, whatever each of them keeps free.
    is_right(&[rule, rule.keep_free(50), rule.keep_free(120)], &meter, 10);
    let (rule, meter) = calendar(200, 2);
    is_right(&[rule], &meter, 5);
    // So it is for windows of which one admits half.
    is_right(&[rule, calendar(100, 2).0], &meter, 5);
    let (rule, meter) = sliding(200, 2, 4);
    is_right(&[rule], &meter, 5);
    let (rule, meter) = pair(bucket(100, 200), calendar(300, 2));
    is_right(&[rule], &meter, 3);
}

#[test]
fn each_law_of_an_outage_is_needed() {
    let (rule, meter) = bucket(100, 200);
    let found = |broken, is_wrong: fn(Outcome) -> bool| {
        (0..300).any(|seed| is_wrong(outage((&[rule], &meter), seed, true, broken)))
    };
    assert!(
        found(Broken::WholePart, |outcome| outcome.is_over),
        "nodes that take the whole limit are not noticed"
    );
    assert!(
        found(Broken::DropsUnsynced, |outcome| !outcome.is_told),
        "units that are not pushed are not noticed"
    );
    assert!(
        found(Broken::OldView, |outcome| !outcome.agrees),
        "nodes that do not converge are not noticed"
    );
}
