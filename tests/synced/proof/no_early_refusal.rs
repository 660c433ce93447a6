//! B4: while the store can be reached, nothing is refused that an exact limiter with the same history admits.

use super::{
    bounded::{schedules, span},
    fleet::Fleet,
    network::{Broken, Network},
    rules::bucket,
};
use crate::{TokenBucket, random::Random};

const RATE: u64 = 10;
const BURST: u64 = 20;

/// Returns the refusals of a schedule that an exact limiter would not have made, not even as long before as two messages take.
fn early(rule: &TokenBucket, seed: u64, broken: Broken) -> usize {
    let mut random = Random::new(seed);
    let (limit, span) = span(rule);
    let mut network = Network::random(&mut random, span, limit);
    (network.death, network.loss, network.timeout, network.broken) = (0, 0, u64::MAX / 4, broken);
    // A thousandth for clocks that may drift, and one for rounding.
    let behind = 2 * network.delay;
    let mut fleet = Fleet::new(rule, network, random.next());
    fleet.play();
    let is_early = |refusal: &&super::fleet::Refusal| {
        let calls = &fleet.admissions[..refusal.after];
        let at = refusal.at.saturating_sub(behind + refusal.at / 1000 / 1000);
        left(calls.iter().map(|call| (call.at, call.cost)), at) >= refusal.cost
    };
    fleet.refusals.iter().filter(is_early).count()
}

/// Returns the units that a bucket has left at an instant after these calls, each of which was admitted, if need be into debt. Counted in parts of a unit, of
/// which one nanosecond refills the rate.
fn left(calls: impl Iterator<Item = (u64, u64)>, at: u64) -> u64 {
    const UNIT: i128 = 1_000_000_000;
    let full = i128::from(BURST) * UNIT;
    let (mut level, mut last) = (full, 0);
    let mut pass = |level: i128, until: u64| {
        let passed = until.saturating_sub(last);
        last = last.max(until);
        full.min(level + i128::from(passed) * i128::from(RATE))
    };
    for (instant, cost) in calls {
        level = pass(level, instant) - i128::from(cost) * UNIT;
    }
    u64::try_from(pass(level, at) / UNIT).unwrap_or(0)
}

#[test]
fn nothing_is_refused_early() {
    let (rule, _) = bucket(RATE, BURST);
    for seed in 0..schedules(15) {
        assert_eq!(early(&rule, seed, Broken::Nothing), 0, "seed {seed}");
    }
    let found: usize = (0..100)
        .map(|seed| early(&rule, seed, Broken::RefusesAhead))
        .sum();
    assert!(found > 0, "a node that refuses early is not noticed");
}
