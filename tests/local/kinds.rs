//! Rules of several kinds on one key of the store in memory: a client gets at most the limit of
//! each, in any order of calls, and a reset forgets all of them.

use crate::common::rules;

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use rules::{CALLS, RULES, TURNS, pairs, rule};
use support::Random;
use tollgate::{
    AnyRule, Cost, Decision, Policy, Timestamp,
    store::{
        AtCapacity, Local, LocalBuilder, Store,
        driver::{Ask, Check, Settlement},
    },
    time::ManualClock,
};

const NOON: u64 = 1_767_268_800_000_000_000;

struct Shop {
    clock: ManualClock,
    store: Local<AnyRule, ManualClock>,
    policy: Policy,
}

impl Shop {
    fn new(capacity: usize) -> Self {
        Self::with(capacity, AtCapacity::InheritDebts)
    }

    fn with(capacity: usize, at_capacity: AtCapacity) -> Self {
        let clock = ManualClock::new(Timestamp::from_nanos(NOON));
        let builder = LocalBuilder::new().capacity(capacity);
        Self {
            store: builder
                .at_capacity(at_capacity)
                .clock(clock.clone())
                .build(),
            clock,
            policy: Policy::new("api"),
        }
    }

    fn spend(&self, rule: &AnyRule, key: u64) -> Decision {
        let ask = Ask::new(&self.policy, rule, key.into(), Cost::ONE);
        self.store.decide(&ask)
    }

    /// Calls for as long as one passes, at one instant.
    fn drain(&self, rule: &AnyRule, key: u64) -> u64 {
        let passes = |_: &u64| self.spend(rule, key).is_admitted();
        (0..1_000).take_while(passes).count() as u64
    }

    fn left(&self, rule: &AnyRule, key: u64) -> u64 {
        let look = self.store.look(&self.policy, rule, &key.into());
        look.remaining().unwrap()
    }
}

/// The units that a rule lets a fresh key have at one instant.
fn alone(rule: &AnyRule) -> u64 {
    let admitted = Shop::new(10).drain(rule, 1);
    assert!((1..100).contains(&admitted), "{rule}: {admitted}");
    admitted
}

#[test]
fn every_pair_of_kinds_admits_the_limit_of_each_in_any_order() {
    for pair in pairs() {
        let both = alone(&pair[0]) + alone(&pair[1]);
        for turns in TURNS {
            let shop = Shop::new(10);
            let mut random = Random::new(7);
            let spends = (0..CALLS).filter(|n| {
                let turn = turns(*n, &mut random);
                shop.spend(&pair[turn], 1).is_admitted()
            });
            assert_eq!(spends.count() as u64, both, "{pair:?}");
            assert_eq!(shop.store.len(), 2);
        }
    }
}

#[test]
fn a_reset_names_no_rule_and_clears_every_kind() {
    let (shop, rules) = (Shop::new(1_000), RULES.map(rule));
    for key in [1, 2] {
        for rule in &rules {
            assert_eq!(shop.drain(rule, key), alone(rule), "{rule}");
        }
    }
    shop.store.reset(&shop.policy, &1.into());
    assert_eq!(shop.store.len(), rules.len());
    for rule in &rules {
        assert_eq!(shop.drain(rule, 1), alone(rule), "{rule}");
        assert_eq!(shop.drain(rule, 2), 0, "{rule}");
    }
}

#[test]
fn a_settlement_reaches_the_kind_that_charged_and_no_other() {
    for [one, other] in pairs() {
        let shop = Shop::new(10);
        shop.drain(&other, 1);
        let charge = shop.spend(&one, 1).take_charge().unwrap();
        let left = shop.left(&one, 1);
        let settlement = Settlement::new(&shop.policy, &one, 1.into(), charge, 2).unwrap();
        assert!(matches!(
            shop.store.settle(vec![settlement]),
            Check::Ready(Ok(()))
        ));
        assert!(shop.left(&one, 1) <= left, "{one} beside {other}");
        assert_eq!(shop.drain(&other, 1), 0, "{other} beside {one}");
    }
}

/// Both kinds are charged, or neither.
#[test]
fn several_asks_about_one_key_may_be_of_several_kinds() {
    for [one, other] in pairs() {
        let shop = Shop::new(10);
        let ask = |rule| Ask::new(&shop.policy, rule, 1.into(), Cost::ONE);
        let passes = || match shop.store.acquire(&[ask(&one), ask(&other)]) {
            Check::Ready(Ok(decisions)) => decisions.is_admitted(),
            Check::Pending(_) => unreachable!("memory answers at once"),
        };
        let least = alone(&one).min(alone(&other));
        assert_eq!((0..100).filter(|_| passes()).count() as u64, least);
        assert_eq!(shop.drain(&one, 1), alone(&one) - least, "{one} & {other}");
        assert_eq!(
            shop.drain(&other, 1),
            alone(&other) - least,
            "{one} & {other}"
        );
    }
}

/// Rules that change their numbers go on with the state that they find, in the midst of other
/// kinds.
#[test]
fn a_change_of_numbers_carries_usage_over_beside_other_kinds() {
    let shop = Shop::new(10);
    let [ten, twenty, window] = [
        "token-bucket 10/1h",
        "token-bucket 20/1h",
        "fixed-window 5/1d",
    ]
    .map(rule);
    assert_eq!(shop.drain(&ten, 1), 10);
    assert_eq!(shop.drain(&window, 1), 5);
    assert_eq!(shop.drain(&twenty, 1), 0);
    assert_eq!(shop.drain(&rule("fixed-window 7/1d"), 1), 2);
}

/// Keys that come and go at the cap, by rules of all kinds: whoever is pushed out gets no more by
/// it.
#[test]
fn at_the_cap_nobody_gets_more_than_the_limit_of_each_kind() {
    let texts = [
        "token-bucket 6/1h",
        "leaky-bucket 6/1h queue=5",
        "fixed-window 6/1d",
    ];
    for choice in [AtCapacity::InheritDebts, AtCapacity::RefuseNewcomers] {
        for capacity in [0, 1, 5, 40] {
            let (shop, rules) = (Shop::with(capacity, choice), texts.map(rule));
            let mut admitted = [[0_u64; 3]; 20];
            let mut random = Random::new(capacity as u64);
            for _ in 0..support::cases(20_000).max(4_000) {
                let (key, kind) = (random.below(20), random.below(3) as usize);
                let passes = shop.spend(&rules[kind], key).is_admitted();
                admitted[key as usize][kind] += u64::from(passes);
            }
            let most = admitted.iter().flatten().max();
            assert!(most <= Some(&6), "{choice:?} of {capacity}: {admitted:?}");
        }
    }
}

/// Each kind is forgotten when it says nothing any more, and not before.
#[test]
fn a_kind_is_remembered_for_as_long_as_it_matters_whatever_others_do() {
    let [long, short] = ["fixed-window 3/1d", "token-bucket 3/1s"].map(rule);
    let shop = Shop::with(2, AtCapacity::RefuseNewcomers);
    assert_eq!(shop.drain(&long, 1), 3);
    for _ in 0..50 {
        assert_eq!(shop.drain(&short, 1), 3);
        assert_eq!(shop.drain(&long, 1), 0);
        shop.clock.advance(Duration::from_secs(2));
    }
    assert_eq!(shop.store.len(), 2);
    shop.clock.advance(Duration::from_secs(86_400));
    assert_eq!(shop.drain(&long, 1), 3);
}

#[test]
fn callers_of_all_kinds_at_once_share_one_limit_of_each() {
    const THREADS: u64 = 4;
    let rules = RULES.map(rule);
    for [a, b, c] in [[0, 2, 3], [0, 1, 2], [4, 9, 10], [5, 7, 8]] {
        let rules = [&rules[a], &rules[b], &rules[c]];
        let (shop, admitted) = (Shop::new(100), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (shop, admitted) = (&shop, &admitted);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..2_000 {
                        let passes = shop.spend(rules[random.below(3) as usize], 1).is_admitted();
                        admitted.fetch_add(u64::from(passes), Relaxed);
                    }
                });
            }
        });
        let sum: u64 = rules.into_iter().map(alone).sum();
        assert_eq!(admitted.load(Relaxed), sum, "{rules:?}");
    }
}
