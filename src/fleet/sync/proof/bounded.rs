//! B1: whatever the network does, all nodes together exceed the limit by (N − 1) · U at most, and U
//! for each node that died.

use std::env;

use super::{
    fleet::{Fleet, Operation},
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

/// The results of a schedule.
struct Played {
    /// The first call that the meter of the raised limit of the first rule refused.
    refused: Option<Admission>,
    operations: [u64; Operation::ALL.len()],
}

/// Plays a schedule.
fn play<R: Syncable>(
    (rules, meter): (&[R], &Meter),
    seed: u64,
    change: impl FnOnce(&mut Network),
) -> Played {
    let mut random = Random::new(seed);
    let (limit, span) = span(&rules[0]);
    let mut network = Network::random(&mut random, span, limit);
    network.steps_back = matches!(meter, Meter::Bucket { .. });
    change(&mut network);
    let near = 2 * network.delay + network.timeout / 100;
    let mut fleet = Fleet::new(rules, network, random.next());
    fleet.play();
    Played {
        refused: exceeded(&fleet, &meter.with_more(fleet.ahead()), near),
        operations: fleet.operations,
    }
}

/// Returns the first admission that a meter refuses, without those that are near to a border of
/// windows. Operations allow more of a key.
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
        let meter = meter.with_more(key.allowance.units());
        meter.refused(&calls, &[])
    })
}

fn is_bounded<R: Syncable>(rules: &[R], meter: &Meter, percent: u64) {
    let mut counts = [0; Operation::ALL.len()];
    for seed in 0..schedules(percent) {
        let seed = seed * 1000 + percent;
        let played = play((rules, meter), seed, |_| {});
        assert!(
            played.refused.is_none(),
            "{meter:?} refused {:?}: seed {seed}",
            played.refused
        );
        for (count, more) in counts.iter_mut().zip(played.operations) {
            *count += more;
        }
    }
    for (operation, count) in Operation::ALL.iter().zip(counts) {
        // Of a schedule in eight, and of some calls of it.
        assert!(count >= schedules(percent) / 16, "{count} of {operation:?}");
    }
}

#[test]
fn buckets_are_bounded() {
    // The second rule is one of a call in so many, under which a node may be less far ahead.
    for (amount, capacity, percent) in [(10, 20, 16), (100, 50, 8), (3, 100, 6)] {
        let (rule, meter) = bucket(amount, capacity);
        is_bounded(&[rule, bucket(amount, capacity / 2).0], &meter, percent);
        is_bounded(&[rule, rule.keep_free(capacity / 3)], &meter, percent);
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
        let exact = |network: &mut Network| (network.most, network.differs) = (0, false);
        let refused = play((&rules, &meter), seed, exact).refused;
        assert!(refused.is_none(), "{refused:?}: seed {seed}");
    }
    let broken = |network: &mut Network| {
        network.simplify();
        (network.most, network.broken) = (0, Broken::AheadAtZero);
    };
    let found = (0..300).filter(|seed| play((&rules, &meter), *seed, broken).refused.is_some());
    assert!(found.count() > 0, "nodes that are ahead are not noticed");
}

/// A change of a network.
type Change = fn(&mut Network);

#[test]
fn each_law_of_the_bound_is_needed() {
    let (rule, meter) = bucket(10, 20);
    let rules = [rule, bucket(10, 10).0];
    let cases: [(Broken, Change); 12] = [
        (Broken::NotHard, |_| {}),
        (Broken::LossIsTaken, |_| {}),
        (Broken::ClockAhead, |_| {}),
        (Broken::DropsUnsynced, |_| {}),
        (Broken::AdmitsBesideStore, |_| {}),
        (Broken::ForgetsCalls, |_| {}),
        (Broken::ResetForgetsCalls, |network| network.reset = 100),
        (Broken::RefundFromFirst, |network| {
            (network.settle, network.max_cost) = (600, 3);
            (network.nodes, network.most) = (1, 20);
            network.period = 1_000_000_000;
        }),
        (Broken::RefundsTwice, |network| network.settle = 600),
        (Broken::GrantsTwice, |network| network.grant = 100),
        (Broken::KeepsClock, |network| network.node_steps = 100),
        (Broken::PlainApart, |network| network.plain = 300),
    ];
    for (broken, operate) in cases {
        let is_over = |seed: &u64| {
            let change = |network: &mut Network| {
                network.simplify();
                (network.broken, network.death) = (broken, 0);
                operate(network);
            };
            play((&rules, &meter), *seed, change).refused.is_some()
        };
        assert!(
            (0..5000).any(|seed| is_over(&seed)),
            "{broken:?} is not noticed"
        );
    }
}

/// The meter allows exactly what operations do: with a unit less of one of them, it refuses a call.
#[test]
fn each_operation_allows_its_units_and_no_more() {
    let (rule, meter) = bucket(10, 20);
    let (window, windows) = calendar(20, 1);
    let cases: [(Operation, Change); 7] = [
        (Operation::Reset, |network| network.reset = 30),
        (Operation::Refund, |network| network.settle = 300),
        (Operation::Grant, |network| network.grant = 30),
        (Operation::NodeClock, |network| network.node_steps = 10),
        (Operation::StoreClock, |network| network.store_steps = 30),
        (Operation::Plain, |network| network.plain = 300),
        (Operation::Setting, |network| {
            (network.nodes, network.differs) = (2, true)
        }),
    ];
    for (spared, operate) in cases {
        let is_over = |seed: u64, spared| {
            let change = |network: &mut Network| {
                network.simplify();
                (network.nodes, network.death, network.spared) = (1, 0, spared);
                operate(network);
            };
            let over = [
                play((&[rule], &meter), seed, change).refused,
                play((&[window], &windows), seed, change).refused,
            ];
            over.iter().any(Option::is_some)
        };
        let found = (0..5000).find(|seed| is_over(*seed, Some(spared)));
        let seed = found.unwrap_or_else(|| panic!("a unit less of {spared:?} is not noticed"));
        assert!(!is_over(seed, None), "{spared:?}: seed {seed}");
    }
}
