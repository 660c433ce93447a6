//! A8, A9 and L5: what a fleet under load admits, what that costs, and that debts are repaid.

use super::{
    fleet::{Broken, Fleet, Weather},
    rules::bucket,
};
use crate::algorithm::FleetRule;

const RATE: u64 = 1000;
const SECOND: u64 = 1_000_000_000;
/// The time for which a fleet is under load, in seconds.
const SPAN: u64 = 10;

/// Offers a part of the rate in a thousand, in turn to all nodes. Returns admitted units and calls
/// to the store.
fn under_load(nodes: u64, per_mille: u64) -> (u64, u64) {
    let (rule, _) = bucket(RATE, RATE);
    let mut fleet = Fleet::new(
        &rule,
        rule.default_lease_duration(),
        Weather::calm(nodes, 2_000_000),
        7,
    );
    let (start, gap) = (fleet.now, SECOND * 1000 / (RATE * per_mille));
    for n in 0..SPAN * SECOND / gap {
        // Not in step with the nodes.
        fleet.offer((n * 7 % nodes) as usize, start + n * gap, 1);
    }
    fleet.until(u64::MAX);
    let admitted = fleet
        .admissions
        .iter()
        .map(|admission| admission.cost)
        .sum();
    (admitted, fleet.asked)
}

#[test]
fn a_demand_above_the_rate_is_admitted_at_the_rate() {
    for (nodes, least) in [(1, 970), (3, 950), (8, 950), (20, 950)] {
        for demand in [1200, 1500, 3000] {
            let (admitted, _) = under_load(nodes, demand);
            let least = SPAN * RATE * least / 1000;
            assert!(
                admitted >= least,
                "{nodes} nodes, {demand}: {admitted} of {least}"
            );
        }
    }
}

#[test]
fn calls_to_the_store_are_bounded() {
    let (rule, _) = bucket(RATE, RATE);
    let duration = rule.default_lease_duration().as_nanos() as u64;
    for nodes in [1, 3, 8, 20] {
        for demand in [500, 900, 1200, 3000] {
            let (_, asked) = under_load(nodes, demand);
            let during_hold = RATE * demand / 1000 * duration / SECOND / nodes;
            let first = 1 + u64::from(during_hold.max(1).next_power_of_two().ilog2());
            let most = nodes * (first + 4 * SPAN * SECOND / duration);
            assert!(asked <= most, "{nodes} nodes, {demand}: {asked} of {most}");
        }
    }
}

/// Returns the units that were spent above the rule if each call costs three times as much in the
/// end.
fn above(broken: Broken) -> u64 {
    let (rule, _) = bucket(RATE, RATE);
    let mut weather = Weather::calm(3, 2_000_000);
    weather.broken = broken;
    let mut fleet = Fleet::new(&rule, rule.default_lease_duration(), weather, 7);
    let start = fleet.now;
    for n in 0..SPAN * RATE {
        let node = (n % 3) as usize;
        fleet.offer(node, start + n * SECOND / RATE, 1);
        fleet.settle_last(node, 3);
    }
    fleet.until(u64::MAX);
    let spent: u64 = fleet
        .admissions
        .iter()
        .map(|admission| admission.cost)
        .sum();
    (spent + fleet.forced).saturating_sub(RATE * (SPAN + 1))
}

#[test]
fn debts_are_repaid() {
    // The units that are forced onto the store while answers are on their way.
    let in_flight = RATE / 10;
    assert!(
        above(Broken::Nothing) <= in_flight,
        "{}",
        above(Broken::Nothing)
    );
    assert!(above(Broken::DebtForgotten) > in_flight);
}
