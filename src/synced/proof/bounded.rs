//! B1: whatever the network does, all nodes together exceed the limit by (N − 1) · U at most, and U for each node that died.

use std::env;

use super::{
    fleet::Fleet,
    meter::{Admission, Meter},
    network::{Broken, Network},
    rules::{bucket, calendar, pair, sliding},
};
use crate::{algorithm::Syncable, random::Random};

/// The schedules of a test: a share of 100,000, or of what `SYNC_SCHEDULES` says.
pub(super) fn schedules(percent: u64) -> u64 {
    let all = env::var("SYNC_SCHEDULES").map_or(100_000, |text| text.parse().unwrap());
    all / 100 * percent
}

/// Returns the meter of a limit that is higher by so many units.
pub(super) fn raised(meter: &Meter, units: u64) -> Meter {
    let mut meter = meter.clone();
    match &mut meter {
        Meter::Bucket { capacity, .. } => *capacity += units,
        Meter::Fixed { amount, .. } | Meter::Sliding { amount, .. } => *amount += units,
        Meter::Both(a, b) => {
            **a = raised(a, units);
            **b = raised(b, units);
        }
        Meter::FirstCall { .. } | Meter::Log { .. } => unreachable!("not synced"),
    }
    meter
}

/// Returns the lengths of windows and slices, near whose borders a unit may count on either side.
fn lengths(meter: &Meter) -> Vec<u64> {
    match meter {
        Meter::Fixed { period, .. } => vec![*period],
        Meter::Sliding { window, slices, .. } => vec![*window / *slices],
        Meter::Both(a, b) => [lengths(a), lengths(b)].concat(),
        _ => Vec::new(),
    }
}

/// Returns the limit, and the time in which it is refilled.
pub(super) fn span(rule: &impl Syncable) -> (u64, u64) {
    let look = rule.look(None, crate::Timestamp::from_nanos(1));
    let (limit, quota) = (look.limit().unwrap(), look.quota().unwrap());
    let span = u128::from(limit) * quota.period().as_nanos() / u128::from(quota.amount());
    (limit, span as u64)
}

/// Plays a schedule. Returns what the meter of the raised limit of the first rule refused.
fn play<R: Syncable>(
    (rules, meter): (&[R], &Meter),
    seed: u64,
    change: impl FnOnce(&mut Network),
) -> Option<Admission> {
    let mut random = Random::new(seed);
    let (limit, span) = span(&rules[0]);
    let mut network = Network::random(&mut random, span, limit);
    change(&mut network);
    let near = 2 * network.delay + network.timeout / 100;
    let most = network.most;
    let nodes = network.nodes;
    let mut fleet = Fleet::new(rules, network, random.next());
    fleet.play();
    let meter = raised(meter, (nodes - 1 + fleet.deaths) * most);
    exceeded(&fleet, &meter, near)
}

/// Returns the first admission that a meter refuses, without those that are near to a border of windows.
pub(super) fn exceeded<R: Syncable>(
    fleet: &Fleet<'_, R>,
    meter: &Meter,
    near: u64,
) -> Option<Admission> {
    let lengths = lengths(meter);
    let is_far = |admission: &Admission| {
        lengths.iter().all(|length| {
            let since = admission.at % length;
            since >= near && since + near < *length
        })
    };
    fleet.keys.iter().find_map(|key| {
        let mut calls = key.admissions.clone();
        calls.retain(is_far);
        calls.sort_by_key(|call| call.at);
        meter.refused(&calls, &[])
    })
}

fn is_bounded<R: Syncable>(rules: &[R], meter: &Meter, percent: u64) {
    for seed in 0..schedules(percent) {
        let seed = seed * 1000 + percent;
        let refused = play((rules, meter), seed, |_| {});
        assert!(
            refused.is_none(),
            "{meter:?} refused {refused:?}: seed {seed}"
        );
    }
}

#[test]
fn buckets_are_bounded() {
    // The second rule is one of a call in so many, under which a node may be less far ahead.
    for (amount, capacity, percent) in [(10, 20, 16), (100, 50, 8), (3, 100, 6)] {
        let (rule, meter) = bucket(amount, capacity);
        is_bounded(&[rule, bucket(amount, capacity / 2).0], &meter, percent);
    }
}

#[test]
fn windows_are_bounded() {
    for (amount, seconds, percent) in [(20, 1, 10), (50, 10, 5)] {
        let (rule, meter) = calendar(amount, seconds);
        is_bounded(&[rule, calendar(amount / 2, seconds).0], &meter, percent);
    }
}

#[test]
fn sliding_windows_are_bounded() {
    for slices in [1, 4] {
        let (rule, meter) = sliding(20, 1, slices);
        is_bounded(&[rule, sliding(10, 1, slices).0], &meter, 5);
    }
}

#[test]
fn pairs_are_bounded() {
    let (rule, meter) = pair(bucket(10, 20), calendar(30, 2));
    is_bounded(&[rule], &meter, 5);
}

/// B8: nodes that may not be ahead decide nothing, and the limit is exact.
#[test]
fn without_overshoot_the_store_decides() {
    let (rule, meter) = bucket(10, 20);
    let rules = [rule];
    for seed in 0..schedules(2) {
        let refused = play((&rules, &meter), seed, |network| network.most = 0);
        assert!(refused.is_none(), "{refused:?}: seed {seed}");
    }
    let broken = |network: &mut Network| {
        (network.most, network.broken) = (0, Broken::AheadAtZero);
    };
    let found = (0..300).filter(|seed| play((&rules, &meter), *seed, broken).is_some());
    assert!(found.count() > 0, "nodes that are ahead are not noticed");
}

#[test]
fn each_law_of_the_bound_is_needed() {
    let (rule, meter) = bucket(10, 20);
    let rules = [rule, bucket(10, 10).0];
    for broken in [
        Broken::NotHard,
        Broken::LossIsTaken,
        Broken::ClockAhead,
        Broken::DropsUnsynced,
        Broken::AdmitsBesideStore,
        Broken::ForgetsCalls,
    ] {
        let is_over = |seed: &u64| {
            let change = |network: &mut Network| (network.broken, network.death) = (broken, 0);
            play((&rules, &meter), *seed, change).is_some()
        };
        assert!(
            (0..5000).any(|seed| is_over(&seed)),
            "{broken:?} is not noticed"
        );
    }
}
