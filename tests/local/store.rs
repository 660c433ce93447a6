//! The store in memory with room for all keys: exact, alone and under threads. `cap.rs` tests it at
//! its capacity, and `oracle/` compares random calls with a plain map.

use std::{
    collections::HashSet,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate::{
    AnyRule, Cost, Decision, Policy, Timestamp, TokenBucket, Verdict,
    algorithm::Algorithm,
    key::Key,
    store::{
        Local, LocalBuilder, Store,
        driver::{Ask, Check, Decisions, Settlement},
    },
    time::{Clock, ManualClock},
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
    let charge = store.decide(&ask).take_charge().unwrap();
    let settlement = Settlement::new(&policy, &rule, key, charge, 4).unwrap();
    assert!(matches!(
        store.settle(vec![settlement]),
        Check::Ready(Ok(()))
    ));
    assert_eq!(store.look(&policy, &rule, &key).remaining(), Some(6));
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
    assert_eq!({ refused.as_slice()[1] }.take_charge(), None);

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
fn one_key_asked_twice_is_charged_twice_or_not() {
    let store = store(&ManualClock::default(), 10);
    let (policy, rule) = (Policy::default(), TokenBucket::per_minute(3));
    let ask = || Ask::new(&policy, &rule, "a".into(), Cost::new(2).unwrap());
    assert!(!acquire(&store, &[ask(), ask()]).is_admitted());
    assert_eq!(store.look(&policy, &rule, &"a".into()).remaining(), Some(3));
}

/// A rule that keys meet differently is bound to each of them, whatever is asked of the store.
#[test]
fn spread_windows_end_when_each_key_s_own_does() {
    let clock = ManualClock::default();
    let store: Local<AnyRule, _> = store(&clock, 1000);
    let (policy, spread) = (Policy::default(), "fixed-window 2/1h offset=spread");
    for rule in [
        spread.to_owned(),
        format!("{spread} & token-bucket 1000/1s"),
    ] {
        let rule: AnyRule = rule.parse().unwrap();
        let ends: HashSet<Duration> = (0..40_u64)
            .map(|key| {
                let key = Key::from(key);
                let own = rule.for_key(&|| key.digest()).unwrap();
                let mut state = None;
                let now = Timestamp::from_nanos(clock.now().as_nanos());
                let expected = own.step(&mut state, now, Cost::ONE).decision();
                let ask = || Ask::new(&policy, &rule, key, Cost::ONE);
                assert_eq!(store.decide(&ask()), expected);
                assert_eq!(
                    store.look(&policy, &rule, &key),
                    own.look(state.as_ref(), now)
                );

                let other = Ask::new(&policy, &rule, Key::join([key, key]), Cost::ONE);
                let both = acquire(&store, &[other, ask()]);
                let again = own.step(&mut state, now, Cost::ONE).decision();
                assert_eq!(both.as_slice()[1], again);

                let settlement =
                    Settlement::new(&policy, &rule, key, { again }.take_charge().unwrap(), 0)
                        .unwrap();
                let Check::Ready(Ok(())) = store.settle(vec![settlement]) else {
                    unreachable!("memory answers at once");
                };
                assert_eq!(store.look(&policy, &rule, &key).remaining(), Some(1));
                expected.reset_after()
            })
            .collect();
        assert!(ends.len() > 30, "{ends:?}");
        store.clear();
    }
}

/// Slots keep the marks of the keys that left them, and a mark below has to go elsewhere: all
/// twelve keys of so small a store belong to the same two sets, and most of them overflow into the
/// map.
#[test]
fn keys_that_find_no_slot_are_remembered_all_the_same() {
    let clock = ManualClock::default();
    let store = store(&clock, 12);
    let (policy, rule) = (Policy::default(), TokenBucket::per_hour(10));
    for round in 0..4 {
        let keys = || (0..12).map(move |key| round * 100 + key);
        for left in (0..10).rev() {
            for key in keys() {
                let decision = spend(&store, &rule, key);
                assert_eq!(decision.verdict(), Verdict::Allow);
                assert_eq!(decision.remaining(), Some(left));
            }
            assert_eq!(store.len(), 12);
        }
        for key in keys() {
            assert_eq!(spend(&store, &rule, key).verdict(), Verdict::Refuse);
            store.reset(&policy, &key.into());
        }
        assert!(store.is_empty());
    }
    let stats = store.stats();
    assert_eq!((stats.inserted, stats.forgotten), (48, 0));
    assert_eq!((stats.evicted, stats.turned_away), (0, 0));
}

/// Up to its capacity a store remembers everybody, wherever their sets are.
#[test]
fn a_store_that_is_filled_to_the_brim_loses_nobody() {
    for capacity in [1, 13, 14, 100, 1_000, 30_000] {
        let store = store(&ManualClock::default(), capacity);
        let rule = TokenBucket::per_hour(2);
        let keys = || 0..capacity as u64;
        for left in [1, 0] {
            for key in keys() {
                assert_eq!(spend(&store, &rule, key).remaining(), Some(left));
            }
            assert_eq!(store.len(), capacity);
        }
        assert!(keys().all(|key| spend(&store, &rule, key).verdict() == Verdict::Refuse));
        assert_eq!(store.stats().inserted, capacity as u64);
    }
}

/// Marks end twelve years after the scale's beginning, two before the store was made.
#[test]
fn what_is_kept_is_kept_beyond_the_scale_of_marks() {
    const DAY: u64 = 86_400;
    let rule = TokenBucket::per_day(2).burst(400);
    for start in [0, (1 << 63) - 1] {
        for years in [0, 9, 10, 11, 45, 150] {
            let clock = ManualClock::new(Timestamp::from_nanos(start));
            let store = store(&clock, 10);
            clock.advance(Duration::from_secs(years * 365 * DAY));
            let mut held = 400;
            let policy = Policy::default();
            let cost = Cost::new(300).unwrap();
            let ask = Ask::new(&policy, &rule, 1.into(), cost);
            // Half a year of it passes the end of the scale where it begins just before.
            for _ in 0..6 {
                let passes = held >= 300;
                let decision = store.decide(&ask);
                assert_eq!(decision.is_admitted(), passes);
                held -= if passes { 300 } else { 0 };
                assert_eq!(decision.remaining(), Some(held));
                clock.advance(Duration::from_secs(60 * DAY));
                held = (held + 120).min(400);
            }
        }
    }
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
