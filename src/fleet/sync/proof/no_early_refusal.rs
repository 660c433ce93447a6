//! B4: while the store can be reached, nothing is refused that an exact limiter with the same
//! history admits.

use super::{
    bounded::{schedules, span},
    fleet::{Fleet, Key, Refusal},
    meter::Admission,
    network::{Broken, Network},
    rules::bucket,
};
use crate::{TokenBucket, random::Random};

const RATE: u64 = 10;
const BURST: u64 = 20;

/// Returns the refusals of a schedule that an exact limiter would not have made, not even so long
/// before as units may be not pushed.
fn early(rule: &TokenBucket, seed: u64, broken: Broken) -> usize {
    let mut random = Random::new(seed);
    let (limit, span) = span(rule);
    let mut network = Network::random(&mut random, span, limit);
    network.simplify();
    (network.death, network.loss, network.timeout, network.broken) = (0, 0, u64::MAX / 4, broken);
    network.period = 1_000_000 + random.up_to(span / 100);
    // What was admitted before it is pushed, at a time when the bucket was full again, is refilled
    // once more in the store.
    let behind = 4 * network.period + 4 * network.delay;
    let mut fleet = Fleet::new(std::slice::from_ref(rule), network, random.next());
    fleet.play();
    let early = |key: &Key<_>| {
        let is_early = |refusal: &&Refusal| {
            let calls = &key.admissions[..refusal.after];
            left(calls, refusal.at, behind) >= refusal.cost
        };
        key.refusals.iter().filter(is_early).count()
    };
    fleet.keys.iter().map(early).sum()
}

/// Returns the units that a bucket has left at an instant after these calls, each of which was
/// admitted, if need be into debt; without what is refilled in the time by which nodes may be
/// behind. Counted in parts of a unit, of which one nanosecond refills the rate.
fn left(calls: &[Admission], at: u64, behind: u64) -> u64 {
    const UNIT: i128 = 1_000_000_000;
    let (full, rate) = (i128::from(BURST) * UNIT, i128::from(RATE));
    let (mut level, mut last) = (full, 0);
    for call in calls {
        level = full.min(level + i128::from(call.at - last) * rate);
        level -= i128::from(call.cost) * UNIT;
        last = call.at;
    }
    level = full.min(level + i128::from(at - last) * rate) - i128::from(behind) * rate;
    u64::try_from(level / UNIT).unwrap_or(0)
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
