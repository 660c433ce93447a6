//! Threads on a few keys of the store in memory: no key gets more than its rule allows, and, with room for all keys,
//! none gets less.
#![cfg(feature = "test-util")]

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
    store::{Ask, AtCapacity, Check, Local, LocalBuilder, Settlement, Store},
    time::{Clock, ManualClock},
};

const THREADS: u64 = 4;
const KEYS: u64 = 200;

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

/// What happened to one key, in units, all threads together.
#[derive(Default)]
struct Account {
    admitted: AtomicU64,
    refunded: AtomicU64,
    resets: AtomicU64,
}

struct Shop {
    store: Local<AnyRule, ManualClock>,
    capacity: usize,
    policy: Policy,
    accounts: Vec<Account>,
}

impl Shop {
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

    /// Spends all of these costs, or nothing.
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
        // Before it is given back: who spends it meanwhile must not seem to have minted it.
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

    /// Runs `work` in all threads at once, with their numbers.
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

    /// Spends what each key has left, one by one.
    fn drain(&self, rule: &AnyRule) {
        for key in 0..self.accounts.len() as u64 {
            let spends = (0..1_000).take_while(|_| self.spend(rule, key, 1).is_some());
            assert!(spends.count() < 1_000, "key {key} is endless");
        }
    }
}

/// All that can be done to a key, at random.
fn anything(shop: &Shop, rule: &AnyRule, thread: u64, random: &mut Random) {
    // A few keys are hot, so that known keys and newcomers meet.
    let key = match random.below(2) {
        0 => random.below(8),
        _ => random.below(KEYS),
    };
    match random.below(20) {
        0 => {
            shop.store.look(&shop.policy, rule, &key.into());
        }
        1 if key % THREADS == thread => shop.reset(key),
        cost => {
            let cost = cost % 3 + 1;
            if let Some(charge) = shop.spend(rule, key, cost)
                && random.below(4) == 0
            {
                // From all back to more than was asked for.
                shop.settle(rule, key, charge, random.below(cost + 3));
            }
        }
    }
}

#[test]
fn nobody_gains_by_leaving_and_coming_back() {
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
        let shop = Shop::new(&ManualClock::default(), capacity, KEYS);
        shop.run(|shop, thread, random| {
            for _ in 0..40_000 {
                anything(shop, &rule, thread, random);
            }
        });
        shop.drain(&rule);
        for (key, account) in shop.accounts.iter().enumerate() {
            let most = 7 * (1 + account.resets.load(Relaxed)) + account.refunded.load(Relaxed);
            let admitted = account.admitted.load(Relaxed);
            assert!(admitted <= most, "{text}, key {key}: {admitted} of {most}");
        }
        assert!(shop.store.stats().evicted > 0, "the store was never full");
    }
}

#[test]
fn nobody_gains_while_time_passes() {
    let rule = rule("token-bucket 3/1s");
    let clock = ManualClock::default();
    let begin = clock.now();
    let shop = Shop::new(&clock, 20, KEYS);
    shop.run(|shop, thread, random| {
        for call in 0..60_000 {
            if thread == 0 && call % 20 == 0 {
                // A token takes 333 ms to come, a bucket a second to fill.
                clock.advance(Duration::from_millis(random.below(20)));
            }
            anything(shop, &rule, thread, random);
        }
    });
    shop.drain(&rule);
    let elapsed = clock.now().saturating_since(begin).as_millis() as u64;
    for (key, account) in shop.accounts.iter().enumerate() {
        let given = 3 * account.resets.load(Relaxed) + account.refunded.load(Relaxed);
        let most = 3 + 3 * elapsed / 1_000 + given;
        let admitted = account.admitted.load(Relaxed);
        assert!(admitted <= most, "key {key}: {admitted} of {most}");
    }
    let stats = shop.store.stats();
    assert!(stats.forgotten > 0 && stats.evicted > 0, "{stats:?}");
}

/// A refund moves a key to another slot, or out of the table, while others spend of it.
#[test]
fn what_is_refunded_meanwhile_is_spent_once() {
    for keys in [1, 3] {
        let rule = rule("token-bucket 1/1d burst=500");
        let shop = Shop::new(&ManualClock::default(), keys as usize, keys);
        shop.run(|shop, _, random| {
            for _ in 0..40_000 {
                let (key, cost) = (random.below(keys), 1 + random.below(3));
                if let Some(charge) = shop.spend(&rule, key, cost)
                    && random.below(3) > 0
                {
                    shop.settle(&rule, key, charge, random.below(cost));
                }
            }
        });
        shop.drain(&rule);
        for account in &shop.accounts {
            let refunded = account.refunded.load(Relaxed);
            assert_eq!(account.admitted.load(Relaxed), 500 + refunded);
        }
    }
}

/// One rule is kept in the table and one in the map, and keys change between them. Credit
/// carries over as time: an hour, of which the one takes 600 s for a token, and the other nearly 514 2/7 s.
#[test]
fn nobody_gains_by_a_change_of_rules() {
    let rules = ["token-bucket 6/1h", "token-bucket 7/1h initial=6 keep=0s"].map(rule);
    // In sevenths of a second.
    const PRICES: [u64; 2] = [4_200, 3_600];
    const HOUR: u64 = 25_200;
    for capacity in [10, 25, KEYS as usize] {
        let shop = Shop::new(&ManualClock::default(), capacity, KEYS);
        let taken: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let spend = |shop: &Shop, key: u64, rule: usize| {
            let charge = shop.spend(&rules[rule], key, 1);
            let price = charge.map_or(0, |_| PRICES[rule]);
            taken[key as usize].fetch_add(price, Relaxed);
        };
        shop.run(|shop, _, random| {
            for _ in 0..20_000 {
                let (key, rule) = (random.below(KEYS), random.below(2) as usize);
                spend(shop, key, rule);
            }
        });
        let elsewhere = shop.store.stats().turned_away;
        for (key, taken) in taken.iter().enumerate() {
            (0..14).for_each(|call| spend(&shop, key as u64, call % 2));
            let taken = taken.load(Relaxed);
            assert!(taken <= HOUR, "key {key}: {taken}");
            if capacity == KEYS as usize {
                assert_eq!(elsewhere, 0, "there is room for all");
                // A key that begins in the map begins with a token less.
                assert!(taken + 2 * PRICES[1] > HOUR, "key {key}: {taken}");
            }
        }
    }
}

/// States of the map, of which single asks lock only a slot, while lists lock whole shards.
#[test]
fn lists_and_single_asks_spend_exactly_what_there_is() {
    const LIMIT: u64 = 8_000;
    let texts = [
        "token-bucket 1/1d burst=8001 initial=8000",
        "fixed-window 8000/1d offset=1h",
        "sliding-window 8000/1d",
        "sliding-log 8000/1d",
    ];
    for rule in texts.map(rule) {
        let shop = Shop::new(&ManualClock::default(), KEYS as usize, 3);
        shop.run(|shop, _, dice| {
            for _ in 0..10_000 {
                let mut any = || (dice.below(3), 1 + dice.below(2));
                let costs = [any(), any(), any()];
                match dice.below(3) {
                    0 => shop.spend_all(&rule, &costs),
                    // Two that may be one key.
                    1 => shop.spend_all(&rule, &costs[1..]),
                    _ => {
                        let (key, cost) = costs[0];
                        shop.spend(&rule, key, cost);
                    }
                }
            }
        });
        shop.drain(&rule);
        for account in &shop.accounts {
            assert_eq!(account.admitted.load(Relaxed), LIMIT, "{rule}");
        }
    }
}

/// All of them in the table, each with words of its own, which follow each other in one slot. What was counted in the
/// window that goes on is carried over.
#[test]
fn windows_of_several_lengths_lose_no_count() {
    let rules = [
        "fixed-window 90/1m",
        "fixed-window 90/1h",
        "fixed-window 90/1d",
    ]
    .map(rule);
    let shop = Shop::new(&ManualClock::default(), KEYS as usize, 3);
    shop.run(|shop, _, random| {
        for _ in 0..40_000 {
            let (key, rule) = (random.below(3), &rules[random.below(3) as usize]);
            shop.spend(rule, key, 1 + random.below(2));
        }
    });
    for rule in &rules {
        shop.drain(rule);
    }
    for (key, account) in shop.accounts.iter().enumerate() {
        assert_eq!(account.admitted.load(Relaxed), 90, "key {key}");
    }
}

/// A key that rules of all kinds take turns on has the limit of each, once.
#[test]
fn marks_of_other_kinds_are_never_read_as_ones_own() {
    let texts = [
        "token-bucket 9/1d",
        "leaky-bucket 9/1d queue=8",
        "fixed-window 9/1d",
    ];
    let rules = texts.map(rule);
    let shop = Shop::new(&ManualClock::default(), KEYS as usize, 2);
    shop.run(|shop, _, random| {
        for _ in 0..40_000 {
            shop.spend(&rules[random.below(3) as usize], random.below(2), 1);
        }
    });
    for rule in &rules {
        shop.drain(rule);
    }
    for account in &shop.accounts {
        assert_eq!(account.admitted.load(Relaxed), 3 * 9);
    }
    assert_eq!(shop.store.len(), 2 * rules.len());
}
