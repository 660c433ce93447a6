//! The store in memory: bounded, forgetful without loss, exact under threads.
#![cfg(feature = "test-util")]

use std::{
    collections::HashMap,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use proptest::prelude::*;
use tollgate::{
    AnyRule, Cost, Decision, Policy, TokenBucket, Verdict,
    algorithm::Algorithm,
    clock::{Clock, ManualClock},
    key::Key,
    store::{Ask, AtCapacity, Check, Decisions, Local, LocalBuilder, Settlement, Store},
};

fn store<A: Algorithm>(clock: &ManualClock, capacity: usize) -> Local<A, ManualClock> {
    LocalBuilder::new()
        .capacity(capacity)
        .clock(clock.clone())
        .build()
}

fn acquire<A: Algorithm>(store: &Local<A, ManualClock>, asks: &[Ask<'_, A>]) -> Decisions {
    match store.acquire(asks) {
        Check::Ready(Ok(decisions)) => decisions,
        Check::Pending(_) => unreachable!("memory answers at once"),
    }
}

fn spend(store: &Local<TokenBucket, ManualClock>, rule: &TokenBucket, key: u64) -> Decision {
    store.decide(&Ask::new(&Policy::default(), rule, key.into(), Cost::ONE))
}

#[test]
fn keys_and_policies_do_not_meet() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let rule = TokenBucket::per_second(1);
    let (api, web) = (Policy::new("api"), Policy::new("web"));
    for (policy, key) in [(&api, "alice"), (&api, "bob"), (&web, "alice")] {
        let ask = Ask::new(policy, &rule, key.into(), Cost::ONE);
        assert!(store.decide(&ask).is_admitted());
        assert!(!store.decide(&ask).is_admitted());
    }
    assert_eq!(store.len(), 3);
}

#[test]
fn looking_resetting_and_clearing() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let (policy, rule) = (Policy::default(), TokenBucket::per_minute(5));
    for _ in 0..2 {
        spend(&store, &rule, 7);
    }
    let look = |key: u64| store.look(&policy, &rule, &key.into()).remaining();
    assert_eq!((look(7), look(8)), (Some(3), Some(5)));
    assert_eq!(store.len(), 1, "looking remembers nobody");
    store.reset(&policy, &7.into());
    assert_eq!((look(7), store.len()), (Some(5), 0));
    for key in 0..50 {
        spend(&store, &rule, key);
    }
    assert_eq!(store.len(), 50);
    store.clear();
    assert!(store.is_empty());
    assert_eq!(look(7), Some(5));
}

#[test]
fn a_refused_newcomer_takes_no_room() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let (policy, rule) = (Policy::default(), TokenBucket::per_second(5));
    let ask = Ask::new(&policy, &rule, "x".into(), Cost::new(6).unwrap());
    assert!(!store.decide(&ask).is_admitted());
    assert!(store.is_empty());
}

#[test]
fn settling_corrects_a_charge() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let (policy, rule) = (Policy::default(), TokenBucket::per_minute(10));
    let key = Key::from("alice");
    let ask = Ask::new(&policy, &rule, key, Cost::new(10).unwrap());
    let charge = store.decide(&ask).charge().unwrap();
    let settlement = Settlement {
        policy: &policy,
        rule: &rule,
        key,
        charge,
        actual: 4,
    };
    assert!(matches!(store.settle(&[settlement]), Check::Ready(Ok(()))));
    assert_eq!(store.look(&policy, &rule, &key).remaining(), Some(6));
}

/// ALL-5.
#[test]
fn what_says_nothing_any_more_is_forgotten_while_newcomers_come() {
    let clock = ManualClock::default();
    let store = store(&clock, 1_000_000);
    let rule = TokenBucket::per_second(1);
    for key in 0..10_000 {
        spend(&store, &rule, key);
    }
    assert_eq!(store.len(), 10_000);
    clock.advance(Duration::from_secs(2));
    for key in 10_000..20_000 {
        spend(&store, &rule, key);
    }
    // Two old slots are looked at for each new one.
    assert!(store.len() < 10_500, "{} keys", store.len());
    assert!(store.stats().forgotten >= 9_500);
}

#[test]
fn at_the_cap_newcomers_are_turned_away_and_known_keys_stay_limited() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let rule = TokenBucket::per_minute(2);
    for key in 0..100 {
        assert!(spend(&store, &rule, key).is_admitted());
    }
    let newcomer = spend(&store, &rule, 1_000);
    assert_eq!(newcomer.verdict(), Verdict::Undecided { admitted: false });
    assert_eq!((newcomer.limit(), newcomer.remaining()), (None, None));
    for key in 0..100 {
        assert!(spend(&store, &rule, key).is_admitted());
        assert_eq!(spend(&store, &rule, key).verdict(), Verdict::Refuse);
    }
    assert_eq!(store.stats().turned_away, 1);
    assert_eq!(store.len(), 100);

    clock.advance(Duration::from_secs(120));
    let admitted = (2_000..2_100)
        .filter(|key| spend(&store, &rule, *key).is_admitted())
        .count();
    assert!(
        admitted > 50,
        "room is found among what can be forgotten: {admitted}"
    );
    assert!(store.len() <= 100);
}

#[test]
fn at_the_cap_newcomers_are_admitted_by_choice() {
    let clock = ManualClock::default();
    let store: Local<TokenBucket, _> = LocalBuilder::new()
        .capacity(1)
        .at_capacity(AtCapacity::AdmitNewcomers)
        .clock(clock.clone())
        .build();
    let rule = TokenBucket::per_minute(1);
    assert!(spend(&store, &rule, 1).is_admitted());
    for _ in 0..3 {
        let passed = spend(&store, &rule, 2);
        assert_eq!(passed.verdict(), Verdict::Undecided { admitted: true });
        assert_eq!(passed.charge(), None);
    }
    assert!(!spend(&store, &rule, 1).is_admitted());
    assert_eq!(store.stats().let_through, 3);
}

#[test]
fn a_flood_of_new_keys_stays_within_the_cap() {
    let clock = ManualClock::default();
    let store = store(&clock, 1_000);
    let rule = TokenBucket::per_hour(1);
    for key in 0..50_000 {
        // Ten thousand distinct keys a second.
        clock.advance(Duration::from_micros(100));
        spend(&store, &rule, key);
        assert!(store.len() <= 1_000);
    }
    let admitted = store.stats().inserted;
    assert_eq!(admitted, 1_000, "nobody's place was taken");
}

#[test]
fn a_store_without_room_turns_everybody_away() {
    let store = store(&ManualClock::default(), 0);
    assert!(!spend(&store, &TokenBucket::per_second(1), 1).is_admitted());
    assert!(store.is_empty());
}

#[test]
fn several_asks_are_spent_together_or_not_at_all() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let (burst, daily) = (Policy::new("burst"), Policy::new("daily"));
    let (fast, slow) = (TokenBucket::per_second(2), TokenBucket::per_day(3));
    let asks = [
        Ask::new(&burst, &fast, "alice".into(), Cost::ONE),
        Ask::new(&daily, &slow, "alice".into(), Cost::ONE),
    ];
    assert!(acquire(&store, &asks).is_admitted());
    assert!(acquire(&store, &asks).is_admitted());
    let refused = acquire(&store, &asks);
    let verdicts: Vec<_> = refused.as_slice().iter().map(Decision::verdict).collect();
    assert_eq!(verdicts, [Verdict::Refuse, Verdict::Allow]);
    assert_eq!(
        refused.as_slice()[1].remaining(),
        Some(1),
        "the other spent nothing"
    );
    assert_eq!(refused.as_slice()[1].charge(), None);

    clock.advance(Duration::from_secs(1));
    assert!(acquire(&store, &asks).is_admitted());
    let refused = acquire(&store, &asks);
    assert!(refused.as_slice()[0].is_admitted() && !refused.as_slice()[1].is_admitted());
    assert_eq!(
        store.look(&burst, &fast, &"alice".into()).remaining(),
        Some(1)
    );
}

#[test]
fn several_asks_at_the_cap_spend_nothing() {
    let clock = ManualClock::default();
    let store = store(&clock, 1);
    let (known, new) = (Policy::new("known"), Policy::new("new"));
    let rule = TokenBucket::per_minute(5);
    store.decide(&Ask::new(&known, &rule, "a".into(), Cost::ONE));
    let asks = [
        Ask::new(&known, &rule, "a".into(), Cost::ONE),
        Ask::new(&new, &rule, "a".into(), Cost::ONE),
    ];
    assert!(!acquire(&store, &asks).is_admitted());
    assert_eq!(store.look(&known, &rule, &"a".into()).remaining(), Some(4));
}

/// A table full of what can be forgotten has room for several asks as it has for one.
#[test]
fn several_asks_find_room_in_other_shards() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let rule = TokenBucket::per_second(1);
    for key in 0..100 {
        spend(&store, &rule, key);
    }
    clock.advance(Duration::from_secs(5));
    let (a, b) = (Policy::new("a"), Policy::new("b"));
    let admitted = (1_000..1_040_u64).filter(|key| {
        let asks = [&a, &b].map(|policy| Ask::new(policy, &rule, (*key).into(), Cost::ONE));
        acquire(&store, &asks).is_admitted()
    });
    assert!(admitted.count() > 20);
}

#[test]
fn one_key_asked_twice_is_charged_twice_or_not() {
    let store = store(&ManualClock::default(), 10);
    let (policy, rule) = (Policy::default(), TokenBucket::per_minute(3));
    let ask = || Ask::new(&policy, &rule, "a".into(), Cost::new(2).unwrap());
    assert!(!acquire(&store, &[ask(), ask()]).is_admitted());
    assert_eq!(store.look(&policy, &rule, &"a".into()).remaining(), Some(3));
}

/// Another algorithm begins afresh, documented and counted.
#[test]
fn a_change_of_algorithm_is_counted() {
    let store: Local<AnyRule, _> = store(&ManualClock::default(), 10);
    let policy = Policy::default();
    let one: AnyRule = "token-bucket 1/1m".parse().unwrap();
    let both: AnyRule = "token-bucket 1/1m & token-bucket 2/1h".parse().unwrap();
    let spend = |rule: &AnyRule| store.decide(&Ask::new(&policy, rule, "a".into(), Cost::ONE));
    assert!(spend(&one).is_admitted());
    assert!(!spend(&one).is_admitted());
    assert!(spend(&both).is_admitted());
    assert!(!spend(&both).is_admitted());
    assert_eq!(store.stats().restarted, 1);
}

#[test]
fn threads_on_one_key_admit_exactly_the_burst() {
    for burst in [1, 1_000, 4_321] {
        let store: Local<TokenBucket> = Local::new();
        let rule = TokenBucket::per_day(1).burst(burst);
        let (barrier, admitted) = (Arc::new(Barrier::new(4)), Arc::new(AtomicU64::new(0)));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (store, barrier, admitted) = (store.clone(), barrier.clone(), admitted.clone());
                scope.spawn(move || {
                    let policy = Policy::default();
                    barrier.wait();
                    for _ in 0..2_000 {
                        let ask = Ask::new(&policy, &rule, Key::GLOBAL, Cost::ONE);
                        let passed = store.decide(&ask).is_admitted();
                        admitted.fetch_add(u64::from(passed), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.load(Ordering::Relaxed), burst);
    }
}

/// All or nothing under threads: what two limits admit is the same set of calls, and nobody is
/// refused because another call was half spent.
#[test]
fn threads_on_several_limits_see_nothing_half_spent() {
    let store: Local<TokenBucket> = Local::new();
    let policies = [Policy::new("a"), Policy::new("b"), Policy::new("c")];
    let (wide, narrow) = (
        TokenBucket::per_day(1).burst(3_000),
        TokenBucket::per_day(1).burst(1_000),
    );
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (store, policies, admitted) = (store.clone(), &policies, &admitted);
            scope.spawn(move || {
                for call in 0..1_000_usize {
                    // Each call asks in another order, so locks must not be taken as they come.
                    let mut asks: Vec<_> = policies
                        .iter()
                        .zip([&wide, &narrow, &wide])
                        .map(|(policy, rule)| Ask::new(policy, rule, Key::GLOBAL, Cost::ONE))
                        .collect();
                    asks.rotate_left((thread + call) % 3);
                    let Check::Ready(Ok(decisions)) = store.acquire(&asks) else {
                        unreachable!("memory answers at once")
                    };
                    admitted.fetch_add(u64::from(decisions.is_admitted()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.load(Ordering::Relaxed), 1_000);
    let left = |index: usize, rule| store.look(&policies[index], rule, &Key::GLOBAL).remaining();
    assert_eq!((left(0, &wide), left(1, &narrow)), (Some(2_000), Some(0)));
}

/// New keys, forgetting, resets and clears from all sides: the count stays that of the slots.
#[test]
fn threads_that_come_and_go_keep_the_count() {
    let clock = ManualClock::default();
    let store = store(&clock, 500);
    let rule = TokenBucket::per_second(10);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (store, clock) = (store.clone(), clock.clone());
            scope.spawn(move || {
                for call in 0..20_000_u64 {
                    let key = (call * 7 + thread * 13) % 3_000;
                    match call % 500 {
                        0 => clock.advance(Duration::from_millis(50)),
                        1 => store.reset(&Policy::default(), &key.into()),
                        2 if call % 5_000 == 2 => store.clear(),
                        _ => {
                            spend(&store, &rule, key);
                        }
                    }
                    assert!(store.len() <= 500);
                }
            });
        }
    });
    let before = store.len();
    let stats = store.stats();
    assert!(before as u64 <= stats.inserted);
    store.clear();
    assert_eq!(store.len(), 0, "{before} were counted");
}

#[derive(Clone, Debug)]
enum Op {
    Spend { key: u64, cost: u64 },
    Settle { key: u64, actual: u64 },
    Reset(u64),
    Clear,
    Advance(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        20 => (0..12_u64, 1..4_u64).prop_map(|(key, cost)| Op::Spend { key, cost }),
        2 => (0..12_u64, 0..5_u64).prop_map(|(key, actual)| Op::Settle { key, actual }),
        1 => (0..12_u64).prop_map(Op::Reset),
        1 => Just(Op::Clear),
        6 => (0..2_000_000_000_u64).prop_map(Op::Advance),
    ];
    prop::collection::vec(op, 1..150)
}

proptest! {
    /// With room for all keys, the store decides as a map that never forgets.
    #[test]
    fn equals_a_plain_map(ops in ops()) {
        let clock = ManualClock::default();
        let store = store(&clock, 12);
        let rules = [TokenBucket::per_second(3), TokenBucket::per_minute(7).burst(4)];
        let policies = [Policy::new("fast"), Policy::new("slow")];
        let mut map: HashMap<(bool, u64), _> = HashMap::new();
        let mut charges = HashMap::new();
        for op in ops {
            let now = clock.now();
            match op {
                // Twelve slots: one policy per key, by parity.
                Op::Spend { key, cost } => {
                    let slow = key % 2 == 0;
                    let (rule, policy) = (&rules[usize::from(slow)], &policies[usize::from(slow)]);
                    let cost = Cost::new(cost).unwrap();
                    let ours = store.decide(&Ask::new(policy, rule, key.into(), cost));
                    let mut state = map.remove(&(slow, key));
                    let expected = rule.step(&mut state, now, cost).decision();
                    if let Some(state) = state {
                        map.insert((slow, key), state);
                    }
                    prop_assert_eq!(ours, expected);
                    if let Some(charge) = ours.charge() {
                        charges.insert((slow, key), charge);
                    }
                }
                Op::Settle { key, actual } => {
                    let slow = key % 2 == 0;
                    let Some(charge) = charges.remove(&(slow, key)) else { continue };
                    let (rule, policy) = (&rules[usize::from(slow)], &policies[usize::from(slow)]);
                    let settlement = Settlement { policy, rule, key: key.into(), charge, actual };
                    let done = matches!(store.settle(&[settlement]), Check::Ready(Ok(())));
                    prop_assert!(done);
                    let mut state = map.remove(&(slow, key));
                    rule.settle(&mut state, &charge, now, actual);
                    if let Some(state) = state {
                        map.insert((slow, key), state);
                    }
                }
                Op::Reset(key) => {
                    let slow = key % 2 == 0;
                    store.reset(&policies[usize::from(slow)], &key.into());
                    map.remove(&(slow, key));
                    charges.remove(&(slow, key));
                }
                Op::Clear => {
                    store.clear();
                    map.clear();
                    charges.clear();
                }
                Op::Advance(nanos) => clock.advance(Duration::from_nanos(nanos)),
            }
            prop_assert!(store.len() <= 12);
        }
    }

    /// At any cap, nobody is admitted above its limit.
    #[test]
    fn a_small_cap_never_opens_the_gate(ops in ops(), capacity in 0..6_usize) {
        let clock = ManualClock::default();
        let store = store(&clock, capacity);
        let rule = TokenBucket::per_second(3);
        let start = clock.now();
        let mut admitted: HashMap<u64, u64> = HashMap::new();
        for op in ops {
            match op {
                Op::Spend { key, .. } => {
                    let passed = spend(&store, &rule, key).is_admitted();
                    *admitted.entry(key).or_default() += u64::from(passed);
                }
                Op::Advance(nanos) => clock.advance(Duration::from_nanos(nanos)),
                _ => {}
            }
            prop_assert!(store.len() <= capacity);
        }
        let elapsed = clock.now().saturating_since(start).as_nanos() as u64;
        let most = 3 + elapsed * 3 / 1_000_000_000;
        for (key, count) in admitted {
            prop_assert!(count <= most, "key {} passed {} times, at most {}", key, count, most);
        }
    }
}
