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
fn raised(meter: &Meter, units: u64) -> Meter {
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

/// Plays a schedule. Returns what the meter of the raised limit refused.
fn play<R: Syncable>(rule: &R, meter: &Meter, seed: u64, broken: Broken) -> Option<Admission> {
    let mut random = Random::new(seed);
    let (limit, span) = span(rule);
    let mut network = Network::random(&mut random, span, limit);
    network.broken = broken;
    if broken != Broken::Nothing {
        network.death = 0;
    }
    let near = 2 * network.delay + network.timeout / 100;
    let most = network.most;
    let nodes = network.nodes;
    let mut fleet = Fleet::new(rule, network, random.next());
    fleet.play();
    let meter = raised(meter, (nodes - 1 + fleet.deaths) * most);
    let lengths = lengths(&meter);
    let is_far = |admission: &&Admission| {
        lengths.iter().all(|length| {
            let since = admission.at % length;
            since >= near && since + near < *length
        })
    };
    let calls: Vec<_> = fleet.sorted().iter().filter(is_far).copied().collect();
    meter.refused(&calls, &[])
}

fn is_bounded<R: Syncable>((rule, meter): (R, Meter), percent: u64) {
    for seed in 0..schedules(percent) {
        let seed = seed * 1000 + percent;
        let refused = play(&rule, &meter, seed, Broken::Nothing);
        assert!(
            refused.is_none(),
            "{meter:?} refused {refused:?}: seed {seed}"
        );
    }
}

#[test]
fn buckets_are_bounded() {
    is_bounded(bucket(10, 20), 15);
    is_bounded(bucket(100, 50), 8);
    is_bounded(bucket(3, 100), 5);
}

#[test]
fn windows_are_bounded() {
    is_bounded(calendar(20, 1), 10);
    is_bounded(calendar(50, 10), 4);
}

#[test]
fn sliding_windows_are_bounded() {
    is_bounded(sliding(20, 1, 1), 4);
    is_bounded(sliding(20, 1, 4), 4);
}

#[test]
fn pairs_are_bounded() {
    is_bounded(pair(bucket(10, 20), calendar(30, 2)), 5);
}

#[test]
fn each_law_of_the_bound_is_needed() {
    for broken in [
        Broken::NotHard,
        Broken::LossIsTaken,
        Broken::ClockAhead,
        Broken::DropsUnsynced,
        Broken::AdmitsBesideStore,
    ] {
        let (rule, meter) = bucket(10, 20);
        let is_over = |seed: &u64| play(&rule, &meter, *seed, broken).is_some();
        let found = (0..3000).filter(is_over).count();
        assert!(found > 0, "{broken:?} is not noticed");
    }
}
