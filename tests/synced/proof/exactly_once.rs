//! B2, B3 and B5: after quiet each unit is in the store once, and all views are the state in the store.

use super::{
    bounded::{schedules, span},
    fleet::Fleet,
    network::{Broken, Network},
    rules::{bucket, calendar, sliding},
};
use crate::{algorithm::Syncable, random::Random};

/// Plays a schedule without deaths. Returns the units that were admitted, those that the store knows, and if all nodes agree.
fn play<R: Syncable>(rule: &R, seed: u64, broken: Broken) -> (u64, u64, bool) {
    let mut random = Random::new(seed);
    let (limit, span) = span(rule);
    let mut network = Network::random(&mut random, span, limit);
    (network.death, network.broken) = (0, broken);
    let mut fleet = Fleet::new(rule, network, random.next());
    fleet.play();
    let agree = fleet.all_agree();
    (fleet.admitted(), fleet.taken_in, agree)
}

fn each_unit_once<R: Syncable>(rule: &R, percent: u64) {
    for seed in 0..schedules(percent) {
        let seed = seed * 1000 + 500 + percent;
        let (admitted, known, agree) = play(rule, seed, Broken::Nothing);
        assert_eq!(admitted, known, "seed {seed}");
        assert!(agree, "seed {seed}: views differ from the store");
    }
}

#[test]
fn each_unit_is_in_the_store_once() {
    each_unit_once(&bucket(10, 20).0, 10);
    each_unit_once(&calendar(20, 1).0, 5);
    each_unit_once(&sliding(20, 1, 4).0, 5);
}

#[test]
fn each_law_of_counting_is_needed() {
    for broken in [
        Broken::LossIsTaken,
        Broken::NumberedAnew,
        Broken::CountsTwice,
        Broken::DropsUnsynced,
    ] {
        let (rule, _) = bucket(10, 20);
        let is_wrong = |seed: &u64| {
            let (admitted, known, _) = play(&rule, *seed, broken);
            admitted != known
        };
        let found = (0..1000).filter(is_wrong).count();
        assert!(found > 0, "{broken:?} is not noticed");
    }
}
