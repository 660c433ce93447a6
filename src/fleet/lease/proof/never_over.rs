//! A1 to A3: whatever the network does, all nodes together admit no more than the rule as it is
//! written.

use std::env;

use super::{
    fleet::{Broken, Fleet, Weather},
    meter::{Admission, Meter},
    rules::{bucket, calendar, first_call, log, pair, sliding},
};
use crate::{algorithm::Leasable, random::Random};

/// The schedules of a test: a share of 100,000, or of what `LEASE_SCHEDULES` says.
fn schedules(percent: u64) -> u64 {
    let all = env::var("LEASE_SCHEDULES").map_or(100_000, |text| text.parse().unwrap());
    all / 100 * percent
}

/// Plays a schedule. Returns what the meter refused.
pub(super) fn play<R: Leasable>(
    rule: &R,
    meter: &Meter,
    seed: u64,
    broken: Broken,
) -> Option<Admission> {
    let mut random = Random::new(seed);
    let usual = rule.default_lease_duration();
    let duration = match random.up_to(3) {
        0 => usual / 5,
        1 => usual * 3,
        _ => usual,
    };
    let mut weather = Weather::random(&mut random, duration.as_nanos() as u64);
    weather.broken = broken;
    if matches!(meter, Meter::Both(..)) {
        // Each rule of a pair has a price of its own.
        weather.plain = 0;
    }
    if broken != Broken::Nothing {
        (weather.grant, weather.reset, weather.plain) = (0, 0, 0);
        weather.refunds = true;
        (weather.is_trap, weather.loss) = (true, 0);
        if broken != Broken::ReturnAnyway {
            weather.release = 0;
        }
    }
    if broken == Broken::Drift {
        weather.drift = 50_000;
    }
    let duration = if rule.tightened(duration, weather.max_cost).is_ok() {
        duration
    } else {
        usual
    };
    let mut fleet = Fleet::new(rule, duration, weather, random.next());
    fleet.play();
    let openings = std::mem::take(&mut fleet.openings);
    let meter = meter.with_more(fleet.more);
    meter.refused(fleet.sorted(), &openings)
}

fn never_over<R: Leasable>((rule, meter): (R, Meter), percent: u64) {
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
fn buckets_are_never_over() {
    never_over(bucket(10, 20), 20);
    never_over(bucket(100, 50), 10);
    never_over(bucket(3, 100), 5);
}

#[test]
fn windows_are_never_over() {
    never_over(calendar(20, 1), 10);
    never_over(first_call(20, 1), 10);
    never_over(calendar(50, 10), 2);
}

#[test]
fn sliding_windows_are_never_over() {
    never_over(sliding(20, 1, 1), 8);
    never_over(sliding(20, 1, 4), 8);
    never_over(sliding(50, 10, 4), 2);
}

#[test]
fn logs_and_pairs_are_never_over() {
    never_over(log(20, 1), 10);
    never_over(pair(bucket(10, 20), calendar(30, 2)), 5);
    never_over(pair(bucket(10, 20), bucket(20, 15)), 4);
    never_over(pair(bucket(10, 20), log(30, 2)), 3);
    never_over(pair(sliding(20, 1, 4), log(30, 2)), 3);
}

/// Returns `true` if the schedule exceeds the rule.
fn is_exceeded<R: Leasable>((rule, meter): &(R, Meter), seed: u64, broken: Broken) -> bool {
    play(rule, meter, seed, broken).is_some()
}

#[test]
fn each_law_is_needed() {
    let (bucket, window) = (bucket(100, 100), calendar(20, 1));
    for broken in [
        Broken::LifeFromAnswer,
        Broken::Drift,
        Broken::TimeoutGrants,
        Broken::ReturnAnyway,
        Broken::RefundLivesAnew,
        Broken::NotStricter,
    ] {
        // In turns, as some are noticed by one of the rules only.
        let noticed = (0..3000)
            .any(|seed| is_exceeded(&bucket, seed, broken) || is_exceeded(&window, seed, broken));
        assert!(noticed, "{broken:?} is not noticed");
    }
}
