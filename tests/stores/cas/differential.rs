//! Compares the driver's decisions with those of its rule in memory.

use std::{collections::HashMap, time::Duration};

use support::Random;
use tollgate::{
    AnyRule, Charge, Cost, Decision, FixedWindow, Policy, SlidingLog, Timestamp, TokenBucket,
    algorithm::{Algorithm, Codec, StateKind, Step},
    key::Key,
    store::{
        Store,
        driver::{Ask, Settlement},
    },
    time::{Clock, ManualClock},
};

use crate::cas::memory::{Memory, Ways, driver};

const KEYS: [&str; 2] = ["alice", "bob"];

/// The state of a key, and the instant from which the rules that wrote it can forget it.
type Kept<S> = Option<(S, Timestamp)>;

/// Returns the state at an instant, or `None` if it has expired.
fn recall<S: Clone>(kept: &mut Kept<S>, now: Timestamp) -> Option<S> {
    if kept.as_ref().is_some_and(|(_, until)| *until <= now) {
        *kept = None;
    }
    kept.as_ref().map(|(state, _)| state.clone())
}

fn keep<R: Algorithm<State: Codec>>(
    kept: &mut Kept<R::State>,
    rule: &R,
    state: Option<R::State>,
    now: Timestamp,
) {
    let bytes = |state: Option<&R::State>| state.map(Codec::to_bytes);
    if bytes(state.as_ref()) != bytes(kept.as_ref().map(|(state, _)| state)) {
        let former = kept.take();
        *kept = state.map(|state| {
            let after = rule.forgettable_at(&state);
            let until = former.map_or(after, |(former, until)| {
                let before = rule.forgettable_at(&former);
                match until > before.max(now) {
                    // A longer rule remembers it, and is owed this charge as well.
                    true => after.max(until.saturating_add(after.saturating_since(before))),
                    false => after,
                }
            });
            (state, until)
        });
    }
}

async fn a_timeline<R>(rules: &[R], ways: Ways, seed: u64)
where
    R: Algorithm<State: Codec>,
{
    let clock = ManualClock::new(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let store = driver::<R>(Memory::new(clock.clone(), ways));
    let policy = Policy::new("api");
    let mut random = Random::new(seed);
    let mut kept: HashMap<(usize, StateKind), Kept<R::State>> = HashMap::new();
    // If the clock steps back, an expired state can return, as the states of other kinds keep the
    // value alive, and so does a store that returns no time.
    let is_one_kind = |rule: &R| rule.state_kind() == rules[0].state_kind();
    let steps_back = ways.time && rules.iter().all(is_one_kind);
    let mut charges: Vec<(usize, R, Charge)> = Vec::new();
    for n in 0..80 {
        let which = random.below(2) as usize;
        let key = Key::from(KEYS[which]);
        let rule = &rules[random.below(rules.len() as u64) as usize];
        let own = rule.for_key(&|| key.digest()).unwrap_or(rule.clone());
        let slot = kept.entry((which, own.state_kind())).or_default();
        let now = clock.now();
        let about = format!("event {n} of seed {seed} under {rule:?}");
        match random.below(12) {
            0..=4 => {
                let cost = Cost::new([1, 1, 1, 2, 3, 1 << 40][random.below(6) as usize]).unwrap();
                let mut state = recall(slot, now);
                let step = own.step(&mut state, now, cost);
                if !matches!(step, Step::Kept(_)) {
                    keep(slot, &own, state, now);
                }
                let ask = [Ask::new(&policy, rule, key, cost)];
                let answer = store.acquire(&ask).await.expect(&about);
                assert_eq!(answer.as_slice(), [step.decision()], "{about}");
                charges.extend(
                    step.decision()
                        .take_charge()
                        .map(|charge| (which, rule.clone(), charge)),
                );
            }
            5..=6 => {
                let look = own.look(recall(slot, now).as_ref(), now);
                let ask = [Ask::new(&policy, rule, key, Cost::ONE)];
                let answer = store.look(&ask).await.expect(&about);
                assert_eq!(answer.as_slice(), [look], "{about}");
            }
            7..=8 if !charges.is_empty() => {
                let (which, rule, charge) =
                    charges.swap_remove(random.below(charges.len() as u64) as usize);
                let key = Key::from(KEYS[which]);
                let own = rule.for_key(&|| key.digest()).unwrap_or(rule.clone());
                let slot = kept.entry((which, own.state_kind())).or_default();
                let mut state = recall(slot, now);
                let actual = random.below(4);
                own.settle(&mut state, &charge, now, actual);
                keep(slot, &own, state, now);
                // A state that no longer matters is not written.
                recall(slot, now);
                let (policy, rule) = (&policy, &rule);
                let settlement = Settlement::new(policy, rule, key, charge, actual).unwrap();
                store.settle(vec![settlement]).await.expect(&about);
            }
            9 if random.below(4) == 0 => {
                kept.retain(|(known, _), _| *known != which);
                store.reset(&policy, &key).await.expect(&about);
            }
            10 if steps_back && random.below(3) == 0 => {
                let back = random.below(2_000_000_000);
                clock.set(Timestamp::from_nanos(now.as_nanos() - back));
            }
            _ => clock.advance(Duration::from_nanos(
                [
                    0,
                    1,
                    random.below(1000),
                    random.below(100_000_000),
                    random.below(5_000_000_000),
                ][random.below(5) as usize],
            )),
        }
    }
}

fn all_ways() -> impl Iterator<Item = Ways> {
    (0..8).map(|n| Ways {
        versions: n & 1 != 0,
        found: n & 2 != 0,
        time: n & 4 != 0,
        ..Ways::default()
    })
}

async fn timelines<R>(rules: &[R])
where
    R: Algorithm<State: Codec>,
{
    for (n, ways) in all_ways().enumerate() {
        for seed in 0..support::cases(3) {
            a_timeline(rules, ways, 8 * seed + n as u64).await;
            let loses = Ways { loses: 3, ..ways };
            a_timeline(rules, loses, 1000 + 8 * seed + n as u64).await;
        }
    }
}

/// The rules of one line take turns on the same keys.
const RULES: [&[&str]; 12] = [
    &[
        "token-bucket 5/1s",
        "token-bucket 5/1s keep-free=2",
        "token-bucket 7/2s burst=9",
    ],
    &[
        "token-bucket 30/1s burst=4 initial=0",
        "token-bucket 4/1s burst=6 initial=2 keep=3s",
    ],
    &[
        "leaky-bucket 5/1s queue=4",
        "leaky-bucket 2/1s queue=9 max-wait=600ms",
    ],
    &["fixed-window 4/1s offset=spread", "fixed-window 3/200ms"],
    &["fixed-window 5/1s from=first-call"],
    &["sliding-window 6/1s slices=4", "sliding-window 4/2s"],
    &["sliding-log 4/1s", "sliding-log 6/3s"],
    &["warm-up 6/s over=2s"],
    &["warm-up-spaced 20/s over=4s max-wait=1s"],
    &["cascade 4/1s > 7/3s", "cascade 3/1s keep-free=1"],
    &["three-color 4/1s burst=4 peak=6/1s peak-burst=6 aware"],
    &[
        "token-bucket 6/1s & fixed-window 4/2s offset=spread",
        "sliding-log 3/1s",
        "token-bucket 5/1s",
    ],
];

#[tokio::test(start_paused = true)]
async fn any_rule_decides_as_in_memory() {
    for line in RULES {
        let rules: Vec<AnyRule> = line.iter().map(|text| text.parse().unwrap()).collect();
        timelines(&rules).await;
    }
}

#[tokio::test(start_paused = true)]
async fn typed_rules_and_pairs_decide_as_in_memory() {
    timelines(&[TokenBucket::per_second(5)]).await;
    timelines(&[SlidingLog::per_second(4)]).await;
    let spread: FixedWindow = "fixed-window 4/1s offset=spread".parse().unwrap();
    timelines(std::slice::from_ref(&spread)).await;
    timelines(&[(TokenBucket::per_second(5), spread)]).await;
}

/// A charge whose answer was lost costs the client at most that much. No client gets more than the
/// limit.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_admits_no_more_than_the_limit() {
    let policy = Policy::new("api");
    let rule: AnyRule = "token-bucket 40/1h".parse().unwrap();
    let mut admitted_calls = 0;
    for (n, ways) in all_ways().enumerate() {
        let clock = ManualClock::default();
        let ways = Ways {
            fails: 4,
            loses: 5,
            delay: Some(Duration::from_millis(1)),
            ..ways
        };
        let memory = Memory::new(clock, ways);
        let nodes = [1, 2].map(|node| driver::<AnyRule>(memory.node(16 * node + n as u64)));
        let tasks = (0..200).map(|n| {
            let (store, policy, rule) = (nodes[n % 2].clone(), policy.clone(), rule.clone());
            tokio::spawn(async move {
                let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
                store.acquire(&ask).await.map(|answer| answer.is_admitted())
            })
        });
        let (mut admitted, mut failed, mut refused) = (0, 0, 0);
        for task in tasks.collect::<Vec<_>>() {
            match task.await.unwrap() {
                Ok(true) => admitted += 1,
                Ok(false) => refused += 1,
                Err(error) => {
                    assert!(error.is_unavailable() || error.is_contended());
                    failed += 1;
                }
            }
        }
        assert!(admitted <= 40, "{admitted} are admitted");
        assert!(
            refused == 0 || admitted + failed >= 40,
            "{admitted} and {failed}"
        );
        admitted_calls += admitted;
    }
    assert!(
        admitted_calls > 40,
        "hardly anything was decided: {admitted_calls}"
    );
}

/// Decisions of different kinds differ. Otherwise the comparison above would be empty.
#[test]
fn decisions_differ() {
    let rule = TokenBucket::per_second(5);
    let (mut state, now) = (None, Timestamp::default());
    let decisions: Vec<Decision> = (0..2)
        .map(|_| rule.step(&mut state, now, Cost::ONE).decision())
        .collect();
    assert_ne!(decisions[0], decisions[1]);
}
