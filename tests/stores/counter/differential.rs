//! Runs equal timelines on counters and on the rule itself in memory: every number is equal.

use std::time::Duration;

use support::Random;
use tollgate::{
    AnyRule, Cost, Decision, FixedWindow, Quota, SlidingWindow, Timestamp,
    algorithm::{Algorithm, Counted},
    key::Key,
    store::{Store, driver::Settlement},
    time::{Clock, ManualClock},
};

use super::{ask, cache::Cache, node, only, policy};

/// Runs calls, looks, settlements and resets of one client at random times. Returns the numbers of
/// admitted and refused calls.
async fn compare<Rule>(rule: &Rule, period: Duration, limit: u64, seed: u64) -> [u64; 2]
where
    Rule: Counted,
{
    let mut random = Random::new(seed);
    let clock = ManualClock::default();
    clock.advance(Duration::from_nanos(random.below(1 << 50)));
    let store = node::<Rule>(&Cache::new(&clock), &clock);
    let key = Key::from(random.next_u64());
    let own = rule.for_key(&|| key.digest());
    let memory = own.as_ref().unwrap_or(rule);
    // The store reads the clock at each call.
    let (mut state, mut newest) = (None, Timestamp::default());
    let (mut charges, mut tally): (Vec<Decision>, _) = (Vec::new(), [0; 2]);
    let period = period.as_nanos() as u64;
    for n in 0..120 {
        let context = format!("{rule:?}, seed {seed}, event {n}");
        match random.below(16) {
            0 => {
                let now = clock.now().as_nanos();
                clock.set(Timestamp::from_nanos(now - random.below(period)));
            }
            1..=3 => {
                let most = [1, period / limit + 1, period / 8 + 1, 2 * period];
                let most = most[random.below(4) as usize];
                clock.advance(Duration::from_nanos(random.below(most + 1)));
            }
            4 => {
                let found = store.look(&[ask(rule, key, 1)]).await.map(only).unwrap();
                newest = newest.max(clock.now());
                assert_eq!(
                    found,
                    memory.look(state.as_ref(), newest),
                    "{context}: a look"
                );
            }
            5..=6 if !charges.is_empty() => {
                let charged = charges[random.below(charges.len() as u64) as usize];
                let (ours, charge) = ({ charged }.take_charge(), { charged }.take_charge());
                let (ours, charge) = (ours.unwrap(), charge.unwrap());
                let actual = random.below(2 * charge.cost + 1);
                let settlement = Settlement::new(policy(), rule, key, charge, actual).unwrap();
                store.settle(vec![settlement]).await.unwrap();
                newest = newest.max(clock.now());
                memory.settle(&mut state, &ours, newest, actual);
            }
            7 if random.below(8) == 0 => {
                // A reset fails here, because the store has seen no rule yet.
                let _ = store.reset(policy(), &key).await;
                state = None;
            }
            _ => {
                let cost = match random.below(6) {
                    0 => 1 + random.below(limit + 1),
                    1 => limit,
                    _ => 1,
                };
                let found = store
                    .acquire(&[ask(rule, key, cost)])
                    .await
                    .map(only)
                    .unwrap();
                newest = newest.max(clock.now());
                let cost = Cost::new(cost).unwrap();
                let right = memory.step(&mut state, newest, cost).decision();
                assert_eq!(found, right, "{context}: {cost:?}");
                tally[usize::from(!found.is_admitted())] += 1;
                charges.extend(found.is_admitted().then_some(found));
            }
        }
    }
    tally
}

/// Runs many timelines, with both admitted and refused calls.
async fn compare_all<Rule>(rule: Rule, period: Duration, limit: u64)
where
    Rule: Counted,
{
    let mut sum = [0; 2];
    let seeds = support::cases(25).max(6);
    for seed in 0..seeds {
        let tally = compare(&rule, period, limit, seed).await;
        sum = [sum[0] + tally[0], sum[1] + tally[1]];
    }
    assert!(
        sum.iter().all(|calls| *calls > 6 * seeds),
        "{rule:?}: {sum:?}"
    );
}

/// Round periods, and periods that no number of slices divides.
const QUOTAS: [&str; 4] = ["10/1m", "7/1s", "25/1000000007ns", "3/997us"];

#[tokio::test]
async fn fixed_windows_decide_as_in_memory() {
    for quota in QUOTAS.map(|quota| quota.parse::<Quota>().unwrap()) {
        let (period, limit) = (quota.period(), quota.amount());
        let rule = FixedWindow::new(quota);
        compare_all(rule, period, limit).await;
        compare_all(rule.offset(period / 3), period, limit).await;
        compare_all(rule.spread(), period, limit).await;
    }
}

#[tokio::test]
async fn sliding_windows_decide_as_in_memory() {
    for quota in QUOTAS.map(|quota| quota.parse::<Quota>().unwrap()) {
        for slices in [1, 4, 60] {
            let rule = SlidingWindow::new(quota).slices(slices);
            compare_all(rule, quota.period(), quota.amount()).await;
        }
    }
}

#[tokio::test]
async fn rules_of_configuration_decide_as_in_memory() {
    for text in [
        "fixed-window 10/1m offset=7s",
        "fixed-window 10/1m offset=spread",
        "sliding-window 10/1m slices=6",
    ] {
        let rule: AnyRule = text.parse().unwrap();
        compare_all(rule, Duration::from_secs(60), 10).await;
    }
}

/// Windows of nanoseconds, and windows at the epoch: starts, ends and waits are exact.
#[tokio::test]
async fn slices_are_those_of_the_rule_to_the_nanosecond() {
    for (window, slices) in [(7, 3), (5, 5), (10, 1), (1000, 7)] {
        let quota: Quota = format!("1/{window}us").parse().unwrap();
        let tiny = SlidingWindow::new(quota).slices(slices);
        let clock = ManualClock::new(Timestamp::from_nanos(0));
        let store = node::<SlidingWindow>(&Cache::new(&clock), &clock);
        let mut state = None;
        for step in 0..2000 {
            let decision = store.acquire(&[ask(&tiny, Key::GLOBAL, 1)]).await.map(only);
            let right = tiny.step(&mut state, clock.now(), Cost::ONE).decision();
            assert_eq!(decision.unwrap(), right, "{tiny:?}, step {step}");
            clock.advance(Duration::from_nanos(1 + step % 97));
        }
    }
}
