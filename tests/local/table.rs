//! Concurrent threads on a few keys of the store in memory: no key gets more than its rule allows,
//! and with room for all keys none gets less.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use support::Random;
use tollgate::{
    AnyRule, Charge, Cost, Policy,
    store::{
        AtCapacity, Local, LocalBuilder, Store,
        driver::{Ask, Check, Settlement},
    },
    time::{Clock, ManualClock},
};

const THREADS: u64 = 4;
const KEYS: u64 = 200;

/// The calls of each thread: usually so many, and at least so many that stores are full and limits
/// are reached.
fn calls(usual: u64, least: u64) -> u64 {
    support::cases(usual).max(least)
}

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

/// The units of one key, summed over all threads.
#[derive(Default)]
struct Account {
    admitted: AtomicU64,
    refunded: AtomicU64,
    resets: AtomicU64,
}

struct Setup {
    store: Local<AnyRule, ManualClock>,
    capacity: usize,
    policy: Policy,
    accounts: Vec<Account>,
}

impl Setup {
    fn new(clock: &ManualClock, capacity: usize, keys: u64) -> Self {
        let store = LocalBuilder::new()
            .capacity(capacity)
            .at_capacity(AtCapacity::InheritDebts)
            .clock(clock.clone())
            .build();
        Self {
            store,
            capacity,
            policy: Policy::default(),
            accounts: (0..keys).map(|_| Account::default()).collect(),
        }
    }

    fn account(&self, key: u64) -> &Account {
        &self.accounts[key as usize]
    }

    fn spend(&self, rule: &AnyRule, key: u64, cost: u64) -> Option<Charge> {
        let ask = Ask::new(&self.policy, rule, key.into(), Cost::new(cost).unwrap());
        let decision = self.store.decide(&ask);
        assert!(self.store.len() <= self.capacity);
        let admitted = if decision.is_admitted() { cost } else { 0 };
        self.account(key).admitted.fetch_add(admitted, Relaxed);
        { decision }.take_charge()
    }

    /// Spends all of these costs, or none.
    fn spend_all(&self, rule: &AnyRule, costs: &[(u64, u64)]) {
        let ask = |(key, cost): &(u64, u64)| {
            let cost = Cost::new(*cost).unwrap();
            Ask::new(&self.policy, rule, (*key).into(), cost)
        };
        let asks: Vec<_> = costs.iter().map(ask).collect();
        let Check::Ready(Ok(decisions)) = self.store.acquire(&asks) else {
            unreachable!("memory answers at once")
        };
        if decisions.is_admitted() {
            for (key, cost) in costs {
                self.account(*key).admitted.fetch_add(*cost, Relaxed);
            }
        }
    }

    fn settle(&self, rule: &AnyRule, key: u64, charge: Charge, actual: u64) {
        // Counted before the settlement, so that a concurrent charge of the refunded units is
        // within the bound.
        let refund = charge.cost.saturating_sub(actual);
        self.account(key).refunded.fetch_add(refund, Relaxed);
        let settlement = Settlement::new(&self.policy, rule, key.into(), charge, actual).unwrap();
        let done = self.store.settle(vec![settlement]);
        assert!(matches!(done, Check::Ready(Ok(()))));
        assert!(self.store.len() <= self.capacity);
    }

    fn reset(&self, key: u64) {
        self.account(key).resets.fetch_add(1, Relaxed);
        self.store.reset(&self.policy, &key.into());
    }

    /// Runs `work` concurrently in all threads, with their numbers.
    fn run(&self, work: impl Fn(&Self, u64, &mut Random) + Sync) {
        let (barrier, work) = (Barrier::new(THREADS as usize), &work);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    work(self, thread, &mut Random::new(thread));
                });
            }
        });
    }

    /// Spends the remaining units of each key, one by one.
    fn drain(&self, rule: &AnyRule) {
        for key in 0..self.accounts.len() as u64 {
            let spends = (0..1_000).take_while(|_| self.spend(rule, key, 1).is_some());
            assert!(spends.count() < 1_000, "key {key} is endless");
        }
    }
}

/// Runs random operations on a key.
fn anything(setup: &Setup, rule: &AnyRule, thread: u64, random: &mut Random) {
    // A few keys are hot, so that known and new keys conflict.
    let key = match random.below(2) {
        0 => random.below(8),
        _ => random.below(KEYS),
    };
    match random.below(20) {
        0 => {
            setup.store.look(&setup.policy, rule, &key.into());
        }
        1 if key % THREADS == thread => setup.reset(key),
        cost => {
            let cost = cost % 3 + 1;
            if let Some(charge) = setup.spend(rule, key, cost)
                && random.below(4) == 0
            {
                // From a full refund to more than was charged.
                setup.settle(rule, key, charge, random.below(cost + 3));
            }
        }
    }
}

#[test]
fn evicted_keys_that_return_gain_nothing() {
    let texts = [
        "token-bucket 60/1m burst=7",
        "leaky-bucket 60/1m queue=6",
        "fixed-window 7/1m",
    ];
    for (text, capacity) in texts
        .iter()
        .flat_map(|text| [10, 17, 40].map(|keys| (text, keys)))
    {
        let rule = rule(text);
        let setup = Setup::new(&ManualClock::default(), capacity, KEYS);
        setup.run(|setup, thread, random| {
            for _ in 0..calls(40_000, 8_000) {
                anything(setup, &rule, thread, random);
            }
        });
        setup.drain(&rule);
        for (key, account) in setup.accounts.iter().enumerate() {
            let most = 7 * (1 + account.resets.load(Relaxed)) + account.refunded.load(Relaxed);
            let admitted = account.admitted.load(Relaxed);
            assert!(admitted <= most, "{text}, key {key}: {admitted} of {most}");
        }
        assert!(setup.store.stats().evicted > 0, "the store was never full");
    }
}

#[test]
fn no_key_exceeds_its_limit_while_time_passes() {
    let rule = rule("token-bucket 3/1s");
    let clock = ManualClock::default();
    let begin = clock.now();
    let setup = Setup::new(&clock, 20, KEYS);
    setup.run(|setup, thread, random| {
        for call in 0..calls(60_000, 15_000) {
            if thread == 0 && call % 5_000 == 4_000 {
                // Otherwise the few keys that find room may always be in debt, and none is
                // forgotten.
                clock.advance(Duration::from_secs(1));
            } else if thread == 0 && call % 20 == 0 {
                // A token takes 333 ms, a full bucket a second.
                clock.advance(Duration::from_millis(random.below(20)));
            }
            anything(setup, &rule, thread, random);
        }
    });
    setup.drain(&rule);
    let elapsed = clock.now().saturating_since(begin).as_millis() as u64;
    for (key, account) in setup.accounts.iter().enumerate() {
        let given = 3 * account.resets.load(Relaxed) + account.refunded.load(Relaxed);
        let most = 3 + 3 * elapsed / 1_000 + given;
        let admitted = account.admitted.load(Relaxed);
        assert!(admitted <= most, "key {key}: {admitted} of {most}");
    }
    let stats = setup.store.stats();
    assert!(stats.forgotten > 0 && stats.evicted > 0, "{stats:?}");
}

/// A refund moves a key to another slot or out of the table, while other threads charge it.
#[test]
fn concurrently_refunded_units_are_spent_once() {
    for keys in [1, 3] {
        let rule = rule("token-bucket 1/1d burst=500");
        let setup = Setup::new(&ManualClock::default(), keys as usize, keys);
        setup.run(|setup, _, random| {
            for _ in 0..calls(40_000, 10_000) {
                let (key, cost) = (random.below(keys), 1 + random.below(3));
                if let Some(charge) = setup.spend(&rule, key, cost)
                    && random.below(3) > 0
                {
                    setup.settle(&rule, key, charge, random.below(cost));
                }
            }
        });
        setup.drain(&rule);
        for account in &setup.accounts {
            let refunded = account.refunded.load(Relaxed);
            assert_eq!(account.admitted.load(Relaxed), 500 + refunded);
        }
    }
}

/// One rule is kept in the table and one in the map, and keys move between them. Credit carries
/// over as time: an hour, in which a token takes 600 s under one rule and nearly 514 2/7 s under
/// the other.
#[test]
fn a_change_of_rules_gains_nothing() {
    let rules = ["token-bucket 6/1h", "token-bucket 7/1h initial=6 keep=0s"].map(rule);
    // In sevenths of a second.
    const PRICES: [u64; 2] = [4_200, 3_600];
    const HOUR: u64 = 25_200;
    for capacity in [10, 25, KEYS as usize] {
        let setup = Setup::new(&ManualClock::default(), capacity, KEYS);
        let taken: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let spend = |setup: &Setup, key: u64, rule: usize| {
            let charge = setup.spend(&rules[rule], key, 1);
            let price = charge.map_or(0, |_| PRICES[rule]);
            taken[key as usize].fetch_add(price, Relaxed);
        };
        setup.run(|setup, _, random| {
            for _ in 0..calls(20_000, 5_000) {
                let (key, rule) = (random.below(KEYS), random.below(2) as usize);
                spend(setup, key, rule);
            }
        });
        let elsewhere = setup.store.stats().turned_away;
        for (key, taken) in taken.iter().enumerate() {
            (0..14).for_each(|call| spend(&setup, key as u64, call % 2));
            let taken = taken.load(Relaxed);
            assert!(taken <= HOUR, "key {key}: {taken}");
            if capacity == KEYS as usize {
                assert_eq!(elsewhere, 0, "there is room for all");
                // A key that starts in the map starts with one token less.
                assert!(taken + 2 * PRICES[1] > HOUR, "key {key}: {taken}");
            }
        }
    }
}

/// States in the map. Single asks lock only a slot, and lists lock whole shards.
#[test]
fn lists_and_single_asks_spend_exactly_the_limit() {
    const LIMIT: u64 = 8_000;
    let texts = [
        "token-bucket 1/1d burst=8001 initial=8000",
        "fixed-window 8000/1d offset=1h",
        "sliding-window 8000/1d",
        "sliding-log 8000/1d",
    ];
    for rule in texts.map(rule) {
        let setup = Setup::new(&ManualClock::default(), KEYS as usize, 3);
        setup.run(|setup, _, dice| {
            for _ in 0..calls(10_000, 3_000) {
                let mut any = || (dice.below(3), 1 + dice.below(2));
                let costs = [any(), any(), any()];
                match dice.below(3) {
                    0 => setup.spend_all(&rule, &costs),
                    // Two asks, possibly of one key.
                    1 => setup.spend_all(&rule, &costs[1..]),
                    _ => {
                        let (key, cost) = costs[0];
                        setup.spend(&rule, key, cost);
                    }
                }
            }
        });
        setup.drain(&rule);
        for account in &setup.accounts {
            assert_eq!(account.admitted.load(Relaxed), LIMIT, "{rule}");
        }
    }
}

/// All rules are in the table with packed states of different periods, which replace each other in
/// one slot. Counts of the current window carry over.
#[test]
fn windows_of_several_lengths_lose_no_count() {
    let rules = [
        "fixed-window 90/1m",
        "fixed-window 90/1h",
        "fixed-window 90/1d",
    ]
    .map(rule);
    let setup = Setup::new(&ManualClock::default(), KEYS as usize, 3);
    setup.run(|setup, _, random| {
        for _ in 0..calls(40_000, 5_000) {
            let (key, rule) = (random.below(3), &rules[random.below(3) as usize]);
            setup.spend(rule, key, 1 + random.below(2));
        }
    });
    for rule in &rules {
        setup.drain(rule);
    }
    for (key, account) in setup.accounts.iter().enumerate() {
        assert_eq!(account.admitted.load(Relaxed), 90, "key {key}");
    }
}

/// A key under rules of all kinds, in turn, has the limit of each kind once.
#[test]
fn packed_states_of_other_kinds_are_never_misread() {
    let texts = [
        "token-bucket 9/1d",
        "leaky-bucket 9/1d queue=8",
        "fixed-window 9/1d",
    ];
    let rules = texts.map(rule);
    let setup = Setup::new(&ManualClock::default(), KEYS as usize, 2);
    setup.run(|setup, _, random| {
        for _ in 0..calls(40_000, 5_000) {
            setup.spend(&rules[random.below(3) as usize], random.below(2), 1);
        }
    });
    for rule in &rules {
        setup.drain(rule);
    }
    for account in &setup.accounts {
        assert_eq!(account.admitted.load(Relaxed), 3 * 9);
    }
    assert_eq!(setup.store.len(), 2 * rules.len());
}
