//! B2, B3 and B5: after quiet each unit is in the store once, and all views are the state in the
//! store.

use super::{
    bounded::{schedules, span},
    fleet::{Call, Fleet},
    network::{Broken, Network},
    rules::{bucket, calendar, sliding},
};
use crate::{algorithm::Syncable, random::Random};

/// Plays a schedule. Returns the units that were charged, those that the store knows, those that
/// died with nodes, and if all nodes agree after one more round.
fn play<R: Syncable>(rules: &[R], seed: u64, death: bool, broken: Broken) -> (u64, u64, u64, bool) {
    let mut random = Random::new(seed);
    let (limit, span) = span(&rules[0]);
    let mut network = Network::random(&mut random, span, limit);
    network.broken = broken;
    if !death {
        network.death = 0;
    }
    if broken != Broken::Nothing {
        network.simplify();
        network.reset = if broken == Broken::AnswerOfBefore {
            100
        } else {
            0
        };
    }
    let mut fleet = Fleet::new(rules, network, random.next());
    fleet.play();
    let agree = fleet.all_agree();
    (fleet.charged, fleet.taken_in, fleet.lost, agree)
}

fn each_unit_once<R: Syncable>(rules: &[R], percent: u64) {
    for seed in 0..schedules(percent) {
        let seed = seed * 1000 + 500 + percent;
        let (charged, known, lost, agree) = play(rules, seed, seed % 4000 < 1000, Broken::Nothing);
        // Of what died with a node or was reset, some may have been pushed without an answer.
        assert!(
            known <= charged && charged <= known + lost,
            "seed {seed}: {charged} charged, {known} known, {lost} lost"
        );
        assert!(agree, "seed {seed}: views differ from the store");
    }
}

#[test]
fn each_unit_is_in_the_store_once() {
    each_unit_once(&[bucket(10, 20).0, bucket(10, 10).0], 10);
    each_unit_once(&[calendar(20, 1).0, calendar(10, 1).0], 5);
    each_unit_once(&[sliding(20, 1, 4).0, sliding(10, 1, 4).0], 5);
}

#[test]
fn each_law_of_counting_is_needed() {
    let rules = [bucket(10, 20).0];
    for broken in [
        Broken::LossIsTaken,
        Broken::NumberedAnew,
        Broken::CountsTwice,
        Broken::DropsUnsynced,
    ] {
        let is_wrong = |seed: u64| {
            let (charged, known, lost, _) = play(&rules, seed, false, broken);
            charged != known + lost
        };
        assert!((0..1000).any(is_wrong), "{broken:?} is not noticed");
    }
    let is_wrong = |seed: u64| {
        let (charged, known, lost, _) = play(&rules, seed, false, Broken::AnswerOfBefore);
        charged > known + lost
    };
    assert!(
        (0..1000).any(is_wrong),
        "an answer of before a reset is not noticed"
    );
    // B3: a round after which views do not follow the store.
    let differs = |seed| !play(&rules, seed, false, Broken::OldView).3;
    assert!((0..1000).any(differs), "old views are not noticed");
}

/// Ends a node cleanly while it is called. Returns the admitted units that neither the store knows
/// nor the flush reported, and what that reported.
fn flush(seed: u64, broken: Broken) -> (u64, u64) {
    let (rule, _) = bucket(10, 20);
    let mut random = Random::new(seed);
    let (limit, span) = span(&rule);
    let mut network = Network::random(&mut random, span, limit);
    network.simplify();
    let is_down = random.up_to(1) == 0;
    network.cuts_off = is_down;
    (network.death, network.loss, network.count, network.broken) = (0, 0, 0, broken);
    network.timeout = 4 * network.delay + 1_000_000;
    let (node, within) = (
        random.up_to(network.nodes - 1) as usize,
        8 * network.timeout,
    );
    let (gap, keys) = (network.gap, network.keys);
    let rules = [rule];
    let mut fleet = Fleet::new(&rules, network, random.next());
    fleet.play_calls();
    if is_down {
        fleet.down_until = fleet.now + random.up_to(2 * within);
    }
    let mut offer = |fleet: &mut Fleet<'_, _>, time: u64| {
        for _ in 0..random.up_to(20) {
            let at = fleet.now + random.up_to(time);
            let key = random.up_to(keys - 1) as usize;
            fleet.offer(node, at, Call::new(key, 1));
        }
    };
    offer(&mut fleet, within);
    let reported = fleet.flush(node, within);
    offer(&mut fleet, gap);
    fleet.until(fleet.now + gap);
    // What it has under way may still arrive.
    fleet.kill(node);
    fleet.end();
    let unknown = fleet.charged.saturating_sub(fleet.taken_in);
    let reported_or_none = if is_down { u64::MAX } else { reported };
    (unknown.saturating_sub(reported), reported_or_none)
}

/// B5: a clean end loses nothing that it does not report, and nothing at all if the store answers.
#[test]
fn a_clean_end_tells_everything() {
    for seed in 0..schedules(2) {
        let (lost, reported) = flush(seed, Broken::Nothing);
        assert_eq!(lost, 0, "seed {seed}");
        assert!(
            reported == 0 || reported == u64::MAX,
            "seed {seed}: {reported} not pushed"
        );
    }
    for broken in [Broken::FlushesNothing, Broken::AdmitsAfterFlush] {
        let is_wrong = |seed| {
            let (lost, reported) = flush(seed, broken);
            lost > 0 || (reported > 0 && reported < u64::MAX)
        };
        assert!((0..1000).any(is_wrong), "{broken:?} is not noticed");
    }
}
