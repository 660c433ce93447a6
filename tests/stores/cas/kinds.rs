//! Rules of several kinds on one key: releases whose rules differ, and rules selected per request.

use crate::common::rules;

use std::{collections::HashMap, sync::Arc, time::Duration};

use rules::{CALLS, RULES, TURNS, pairs, rule};
use support::Random;
use support::value::{State, states, value_of};
use tollgate::{
    AnyRule, Cost, Decision, FixedWindow, Policy, SlidingLog, Timestamp, TokenBucket,
    algorithm::{Algorithm, Codec, StateKind},
    store::{
        Store, StoreError,
        driver::{Ask, CasStore, CasStoreBuilder, Settlement},
    },
    time::{Clock, ManualClock},
};

use crate::cas::memory::{Memory, Ways, driver};

type Driver<R> = CasStore<Memory, R>;

const NOON: u64 = 1_767_268_800_000_000_000;

fn memory(ways: Ways) -> Memory {
    Memory::new(ManualClock::new(Timestamp::from_nanos(NOON)), ways)
}

fn policy() -> Policy {
    Policy::new("api")
}

async fn spend<R>(store: &Driver<R>, rule: &R) -> Result<Decision, StoreError>
where
    R: Algorithm<State: Codec>,
{
    let answer = store
        .acquire(&[Ask::new(&policy(), rule, "alice".into(), Cost::ONE)])
        .await?;
    Ok(answer.as_slice()[0])
}

/// Makes calls as long as one passes.
async fn drain<R>(store: &Driver<R>, rule: &R) -> u64
where
    R: Algorithm<State: Codec>,
{
    let mut admitted = 0;
    while spend(store, rule).await.unwrap().is_admitted() {
        admitted += 1;
        assert!(admitted < 1_000, "endless");
    }
    admitted
}

/// Returns the units that a rule admits for a fresh key at one instant.
async fn alone<R>(rule: &R) -> u64
where
    R: Algorithm<State: Codec>,
{
    drain(&driver(memory(Ways::default())), rule).await
}

/// Asserts that no state was unreadable, and none was replaced.
fn assert_nothing_was_healed<R>(stores: &[Driver<R>]) {
    for store in stores {
        let stats = store.stats();
        assert_eq!((stats.healed, stats.newer), (0, 0));
    }
}

/// Two releases of one service, each with a connection of its own.
#[tokio::test]
async fn every_pair_of_kinds_admits_the_limit_of_each_in_any_order() {
    let mut limits = HashMap::new();
    for rule in RULES.map(rule) {
        limits.insert(rule.to_string(), alone(&rule).await);
    }
    for pair in pairs() {
        let both: u64 = pair.iter().map(|rule| limits[&rule.to_string()]).sum();
        for (turns, versions) in TURNS
            .iter()
            .flat_map(|turns| [(turns, false), (turns, true)])
        {
            let memory = memory(Ways {
                versions,
                ..Ways::default()
            });
            let stores: [Driver<AnyRule>; 2] = [1, 2].map(|seed| driver(memory.node(seed)));
            let (mut random, mut admitted) = (Random::new(7), 0);
            for call in 0..CALLS {
                let turn = turns(call, &mut random);
                let decision = spend(&stores[turn], &pair[turn]).await.unwrap();
                admitted += u64::from(decision.is_admitted());
            }
            assert_eq!(admitted, both, "{pair:?}");
            assert_nothing_was_healed(&stores);
        }
    }
}

/// One store whose rule is selected per request. Its calls are combined into one swap.
#[tokio::test]
async fn concurrent_callers_share_one_limit_of_each_kind() {
    let rules = RULES.map(rule);
    for [a, b, c] in [[0, 2, 3], [0, 1, 2], [4, 9, 10], [7, 8, 11]] {
        let rules = [&rules[a], &rules[b], &rules[c]];
        let memory = memory(Ways {
            gives_way: true,
            found: true,
            ..Ways::default()
        });
        let stores: [Arc<Driver<AnyRule>>; 2] = [1, 2].map(|seed| {
            let node = memory.node(seed);
            let clock = node.clock.clone();
            // Allows any number of lost races.
            let builder = CasStoreBuilder::new(node)
                .clock(clock)
                .attempts(10_000)
                .seed(seed);
            Arc::new(builder.deadline(Duration::from_secs(600)).build())
        });
        let mut random = Random::new(3);
        let calls: Vec<_> = (0..200)
            .map(|_| {
                let store = Arc::clone(&stores[random.below(2) as usize]);
                let rule = rules[random.below(3) as usize].clone();
                tokio::spawn(async move { spend(&store, &rule).await.unwrap().is_admitted() })
            })
            .collect();
        let mut admitted = 0;
        for call in calls {
            admitted += u64::from(call.await.unwrap());
        }
        let mut sum = 0;
        for rule in rules {
            sum += alone(rule).await;
        }
        assert_eq!(admitted, sum, "{rules:?}");
    }
}

#[tokio::test]
async fn three_releases_with_typed_rules_have_the_limit_of_each() {
    let memory = memory(Ways::default());
    let bucket = (driver(memory.node(1)), TokenBucket::per_hour(5));
    let window = (driver(memory.node(2)), FixedWindow::per_day(7));
    let both = (
        driver(memory.node(3)),
        (TokenBucket::per_hour(3), FixedWindow::per_day(4)),
    );
    let (mut random, mut admitted) = (Random::new(1), [0; 3]);
    for _ in 0..200 {
        let turn = random.below(3) as usize;
        let decision = match turn {
            0 => spend(&bucket.0, &bucket.1).await,
            1 => spend(&window.0, &window.1).await,
            _ => spend(&both.0, &both.1).await,
        };
        admitted[turn] += u64::from(decision.unwrap().is_admitted());
    }
    assert_eq!(admitted, [5, 7, 3]);
    // The oldest release, which accepts any algorithm, reads the states of typed rules.
    let any: Driver<AnyRule> = driver(memory.node(4));
    for text in ["token-bucket 5/1h", "fixed-window 7/1d"] {
        assert_eq!(drain(&any, &rule(text)).await, 0, "{text}");
    }
    for stats in [
        bucket.0.stats(),
        window.0.stats(),
        both.0.stats(),
        any.stats(),
    ] {
        assert_eq!((stats.healed, stats.newer), (0, 0));
    }
}

#[tokio::test]
async fn a_reset_by_any_release_clears_every_kind() {
    let memory = memory(Ways::default());
    let store: Driver<AnyRule> = driver(memory.node(1));
    // Its rules have never charged the key.
    let other: Driver<SlidingLog> = driver(memory.node(2));
    for by_another in [false, true] {
        for text in RULES {
            assert_eq!(
                drain(&store, &rule(text)).await,
                alone(&rule(text)).await,
                "{text}"
            );
        }
        if by_another {
            other.reset(&policy(), &"alice".into()).await.unwrap();
        } else {
            store.reset(&policy(), &"alice".into()).await.unwrap();
        }
        assert!(memory.keys().is_empty());
    }
}

#[tokio::test]
async fn a_settlement_changes_only_the_kind_that_was_charged() {
    let policy = policy();
    for [one, other] in pairs() {
        let store: Driver<AnyRule> = driver(memory(Ways::default()));
        drain(&store, &other).await;
        let charge = spend(&store, &one).await.unwrap().take_charge().unwrap();
        let settlement = Settlement::new(&policy, &one, "alice".into(), charge, 0).unwrap();
        store.settle(vec![settlement]).await.unwrap();
        assert!(
            !spend(&store, &other).await.unwrap().is_admitted(),
            "{other} beside {one}"
        );
        assert_nothing_was_healed(&[store]);
    }
}

/// Both kinds are charged, or neither.
#[tokio::test]
async fn several_asks_about_one_key_may_be_of_several_kinds() {
    let policy = policy();
    for [one, other] in pairs() {
        let store: Driver<AnyRule> = driver(memory(Ways::default()));
        let ask = |rule| Ask::new(&policy, rule, "alice".into(), Cost::ONE);
        let mut passed = 0;
        while store
            .acquire(&[ask(&one), ask(&other)])
            .await
            .unwrap()
            .is_admitted()
        {
            passed += 1;
        }
        let (of_one, of_other) = (alone(&one).await, alone(&other).await);
        assert_eq!(passed, of_one.min(of_other), "{one} and {other}");
        assert_eq!(
            drain(&store, &one).await,
            of_one - passed,
            "{one} and {other}"
        );
        assert_eq!(
            drain(&store, &other).await,
            of_other - passed,
            "{one} and {other}"
        );
    }
}

/// Returns the value of the only key.
fn value(memory: &Memory) -> Vec<u8> {
    let keys = memory.keys();
    assert_eq!(keys.len(), 1);
    memory.get(&keys[0]).unwrap().1
}

fn kinds(memory: &Memory) -> Vec<u64> {
    let mut kinds: Vec<_> = states(&value(memory))
        .iter()
        .map(|state| state.kind)
        .collect();
    kinds.sort_unstable();
    kinds
}

fn number(text: &str) -> u64 {
    rule(text).state_kind().as_u64()
}

/// It is kept slightly longer, because the host that wrote it may have a slower clock.
#[tokio::test]
async fn a_state_is_kept_while_it_matters_and_others_write() {
    let memory = memory(Ways::default());
    let store: Driver<AnyRule> = driver(memory.node(1));
    let [window, bucket] = ["fixed-window 4/1h", "token-bucket 5/1s"];
    let both = {
        let mut both = [number(window), number(bucket)];
        both.sort_unstable();
        both.to_vec()
    };
    assert_eq!(drain(&store, &rule(window)).await, 4);
    for _ in 0..59 {
        memory.clock.advance(Duration::from_secs(60));
        assert!(spend(&store, &rule(bucket)).await.unwrap().is_admitted());
        assert!(!spend(&store, &rule(window)).await.unwrap().is_admitted());
        assert_eq!(kinds(&memory), both);
    }
    memory.clock.advance(Duration::from_secs(15 * 60 + 30));
    spend(&store, &rule(bucket)).await.unwrap();
    assert_eq!(kinds(&memory), both);
    memory.clock.advance(Duration::from_secs(31));
    spend(&store, &rule(bucket)).await.unwrap();
    assert_eq!(kinds(&memory), [number(bucket)]);
    // A value that is no longer written expires a minute after the last of its states.
    memory.clock.advance(Duration::from_secs(62));
    assert!(
        store
            .look(&[Ask::new(
                &policy(),
                &rule(bucket),
                "alice".into(),
                Cost::ONE
            )])
            .await
            .is_ok()
    );
    assert!(memory.keys().is_empty());
}

/// Each host uses its own clock. One is ten minutes ahead.
#[tokio::test]
async fn a_host_whose_clock_is_ahead_keeps_states_of_other_kinds() {
    let memory = memory(Ways::default());
    let store: Driver<AnyRule> = driver(memory.node(1));
    let ahead = ManualClock::new(memory.clock.now().saturating_add(Duration::from_secs(600)));
    let faster: Driver<AnyRule> = CasStoreBuilder::new(memory.node(2)).clock(ahead).build();
    let [window, bucket] = ["fixed-window 4/5m", "token-bucket 5/1s"].map(rule);
    assert_eq!(drain(&store, &window).await, 4);
    for _ in 0..5 {
        assert!(spend(&faster, &bucket).await.unwrap().is_admitted());
        assert!(!spend(&store, &window).await.unwrap().is_admitted());
        memory.clock.advance(Duration::from_secs(30));
    }
}

/// Only the end of its lifetime is read from a state of another kind.
#[tokio::test]
async fn a_newer_or_unknown_state_of_another_kind_is_kept_and_is_no_error() {
    let memory = memory(Ways::default());
    let store: Driver<AnyRule> = driver(memory.node(1));
    let [window, bucket] = ["fixed-window 4/1d", "token-bucket 5/1h"].map(rule);
    spend(&store, &window).await.unwrap();
    let mut before = states(&value(&memory));
    before[0].bytes[0] += 1;
    before.push(State {
        kind: 7,
        bytes: b"of a rule of the future".to_vec(),
        ..before[0].clone()
    });
    memory.put(&memory.keys()[0], &value_of(&before));
    assert_eq!(drain(&store, &bucket).await, 5);
    assert_nothing_was_healed(std::slice::from_ref(&store));
    let after = states(&value(&memory));
    assert!(
        before.iter().all(|state| after.contains(state)),
        "{after:?}"
    );
    assert_eq!(after.len(), 3);
    assert!(spend(&store, &window).await.is_err());
    assert!(store.stats().newer > 0);
}

/// A rule with a kind of its own for each number.
#[derive(Clone, Debug)]
struct Of(u64, TokenBucket);

impl Algorithm for Of {
    type State = <TokenBucket as Algorithm>::State;

    fn step(
        &self,
        state: &mut Option<Self::State>,
        now: Timestamp,
        cost: Cost,
    ) -> tollgate::algorithm::Step {
        self.1.step(state, now, cost)
    }

    fn look(&self, state: Option<&Self::State>, now: Timestamp) -> Decision {
        self.1.look(state, now)
    }

    fn settle(
        &self,
        state: &mut Option<Self::State>,
        charge: &tollgate::Charge,
        now: Timestamp,
        actual: u64,
    ) {
        self.1.settle(state, charge, now, actual);
    }

    fn forgettable_at(&self, state: &Self::State) -> Timestamp {
        self.1.forgettable_at(state)
    }

    fn state_kind(&self) -> StateKind {
        StateKind::from_u64(self.0)
    }
}

#[tokio::test]
async fn a_value_keeps_the_sixteen_states_that_matter_longest() {
    let memory = memory(Ways::default());
    let store: Driver<Of> = driver(memory.node(1));
    // In ascending order of lifetime, except for the last one, which is the shortest.
    for n in (1..=30).chain([0]) {
        let of = Of(n, TokenBucket::per_hour(1).burst(100 + n));
        assert_eq!(drain(&store, &of).await, 100 + n);
        assert!(states(&value(&memory)).len() <= 16);
    }
    let longest: Vec<_> = [0].into_iter().chain(16..=30).collect();
    assert_eq!(kinds(&memory), longest);
    assert_eq!(store.stats().healed, 0);
}

/// One swap with more kinds than a value can hold.
#[tokio::test]
async fn a_swap_for_many_kinds_writes_a_readable_value() {
    let memory = memory(Ways::default());
    let store: Driver<Of> = driver(memory.node(1));
    let policy = policy();
    let rules: Vec<_> = (0..30)
        .map(|n| Of(n, TokenBucket::per_hour(1).burst(100 + n)))
        .collect();
    for left in [true, false] {
        let asks: Vec<_> = rules
            .iter()
            .map(|of| {
                let cost = if left { 50 } else { 60 };
                Ask::new(&policy, of, "alice".into(), Cost::new(cost).unwrap())
            })
            .collect();
        let swaps = store.stats().swaps;
        let admitted = store.acquire(&asks).await.unwrap().is_admitted();
        assert_eq!(admitted, left);
        assert_eq!(store.stats().swaps - swaps, u64::from(left));
        assert_eq!(states(&value(&memory)).len(), 16);
    }
    assert_eq!(store.stats().healed, 0);
}

/// The bytes do not depend on the writer, so an unchanged value is not written.
#[tokio::test]
async fn a_settlement_that_changes_nothing_writes_nothing_beside_other_kinds() {
    let memory = memory(Ways::default());
    let store: Driver<AnyRule> = driver(memory.node(1));
    let policy = policy();
    let [window, bucket] = ["fixed-window 4/1d", "token-bucket 5/1h"].map(rule);
    for (one, other) in [(&window, &bucket), (&bucket, &window)] {
        let charge = spend(&store, one).await.unwrap().take_charge().unwrap();
        spend(&store, other).await.unwrap();
        let swaps = store.stats().swaps;
        let cost = charge.cost;
        let settlement = Settlement::new(&policy, one, "alice".into(), charge, cost).unwrap();
        store.settle(vec![settlement]).await.unwrap();
        assert_eq!(store.stats().swaps, swaps, "{one} beside {other}");
    }
}

/// A client that chooses the endpoint chooses the rule. However it mixes a longer and a shorter
/// rule, and pauses until keys are forgotten, it gets no more than the longer one admits alone.
#[tokio::test]
async fn nobody_gains_by_choosing_the_rule() {
    for (seed, [long, short]) in [[100, 5], [20, 15], [3, 1]].into_iter().enumerate() {
        let rules = [long, short].map(|burst: u64| TokenBucket::per_second(1).burst(burst));
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(1_000_000));
        let store = driver(Memory::new(clock.clone(), Ways::default()));
        let (policy, mut random) = (Policy::new("api"), support::Random::new(seed as u64));
        let (mut debt, mut most_admitted) = (0_u64, 0);
        for _ in 0..2_000 * support::cases(1).max(1) {
            let rule = &rules[random.below(2) as usize];
            let cost = Cost::new(1 + random.below(rule.capacity())).unwrap();
            let ask = Ask::new(&policy, rule, "alice".into(), cost);
            let admitted = store.acquire(&[ask]).await.unwrap().is_admitted();
            debt += if admitted { cost.get() } else { 0 };
            assert!(debt <= long, "a debt of {debt} under {rules:?}");
            most_admitted = most_admitted.max(debt);
            let most = if random.below(4) == 0 { long } else { 3 };
            let pause = random.below(most);
            clock.advance(Duration::from_secs(pause));
            debt = debt.saturating_sub(pause);
        }
        assert!(most_admitted * 10 > long * 9, "{most_admitted} of {long}");
    }
}
