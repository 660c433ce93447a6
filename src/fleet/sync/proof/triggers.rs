//! When units are pushed: sooner the more of a limit is used, and no more often by refusals.

use super::{PERIOD, at, bound, rules::bucket};
use crate::{
    TokenBucket,
    algorithm::Algorithm,
    decision::Cost,
    fleet::sync::{Bound, KeyView, ViewOutcome},
    random::Random,
    time::Timestamp,
};

const MILLISECOND: u64 = 1_000_000;

/// Returns a view of a key in this state.
fn known(rule: &TokenBucket, used: u64, most: u64) -> KeyView<TokenBucket> {
    let mut view = KeyView::new(*rule, at(0));
    let tried = view.acquire(rule, at(0), (Cost::ONE, false), &bound(most));
    assert!(matches!(tried, ViewOutcome::Sync));
    let _ = view.send(at(0), || 1);
    let mut state = None;
    if let Some(used) = Cost::new(used) {
        let _ = Algorithm::step(rule, &mut state, at(0), used);
    }
    view.answered((at(0), at(0), at(0)), state, &bound(most));
    view
}

/// Rules that keep other parts of a bucket free take turns on a key.
#[test]
fn rules_of_one_bucket_are_pushed_as_one_delta() {
    let (rule, _) = bucket(10, 1000);
    let mut view = known(&rule, 50, 10_000);
    for n in 0..40 {
        let own = rule.keep_free(100 * (n % 3));
        let bound = Bound {
            number: n,
            ..bound(10_000)
        };
        let tried = view.acquire(&own, at(n), (Cost::ONE, false), &bound);
        assert!(matches!(tried, ViewOutcome::Decided(decision) if decision.is_admitted()));
    }
    let sent = view.send(at(40), || 2);
    let units: Vec<_> = sent.iter().map(|unsent| unsent.units).collect();
    assert_eq!(units, [40]);
}

/// Pressure that rises moves the date forward: a key that comes from 5 to 90 percent is pushed
/// within half a period, and never later than before.
#[test]
fn rising_pressure_is_told_sooner() {
    let (rule, _) = bucket(1, 1000);
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut view = known(&rule, 50, 10_000);
        let (mut now, mut used, mut due) = (0, 50, Timestamp::MAX);
        while used < 990 {
            now += random.up_to(PERIOD / 100);
            let cost = 1 + random.up_to(30);
            let call = (Cost::new(cost).unwrap(), false);
            let ViewOutcome::Decided(decision) = view.acquire(&rule, at(now), call, &bound(10_000))
            else {
                panic!("seed {seed}");
            };
            if !decision.is_admitted() {
                break;
            }
            used = 1000 - decision.remaining().unwrap();
            let periods = match used {
                0..100 => 8,
                100..500 => 4,
                500..800 => 2,
                _ => 1,
            };
            let latest = at(now + PERIOD / 2 * periods);
            assert!(view.due() <= latest.min(due), "seed {seed}: {used} used");
            due = view.due();
        }
    }
}

/// A key whose calls are admitted and refused by turns: however many refusals follow an admission,
/// units are pushed twice a period at most.
#[test]
fn a_saturated_key_does_not_hurry_at_each_refusal() {
    let (rule, _) = bucket(1000, 1000);
    let most = 100_000;
    let mut view = known(&rule, 1000, most);
    let (mut pushed, mut refused, mut admitted, mut answer) = (0, 0, 0, None);
    for n in 1..=1000 {
        let now = n * MILLISECOND;
        if answer.is_some_and(|arrival| arrival <= now) {
            // Others take nothing, and the store has what was pushed.
            let used = 1000 - view.look(&rule, at(now)).unwrap().remaining().unwrap();
            let mut state = None;
            if let Some(used) = Cost::new(used) {
                let _ = Algorithm::step(&rule, &mut state, at(now), used);
            }
            view.answered((at(now), at(now), at(now)), state, &bound(most));
            answer = None;
        }
        if answer.is_none() && view.due() <= at(now) {
            view.clear_due();
            let _ = view.send(at(now), || n);
            pushed += 1;
            answer = Some(now + 2 * MILLISECOND);
        }
        for _ in 0..2 {
            match view.acquire(&rule, at(now), (Cost::ONE, false), &bound(most)) {
                ViewOutcome::Decided(decision) if decision.is_admitted() => admitted += 1,
                ViewOutcome::Decided(_) => refused += 1,
                tried => panic!("{tried:?}"),
            }
        }
    }
    assert!(
        admitted > 500 && refused > 500,
        "{admitted} admitted, {refused} refused"
    );
    // Ten periods.
    assert!(pushed <= 21, "pushed {pushed} times");
}
