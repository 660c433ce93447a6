//! Calls in flight in a small store that other keys fill, under rules that keep their states in
//! different places: never more than the limit, and nothing is lost.

use std::{
    array,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use support::Random;
use tollgate::{
    AnyRule, Charge, Cost, Policy,
    store::{
        AtCapacity, Local, LocalBuilder, Store,
        driver::{Ask, Check, Settlement},
    },
    time::ManualClock,
};

const THREADS: u64 = 3;
const KEYS: usize = 6;
const LIMIT: u64 = 3;

/// A call that goes on, with the rule that admitted it.
struct Call<'a> {
    key: usize,
    rule: &'a AnyRule,
    charge: Charge,
}

struct Server {
    store: Local<AnyRule, ManualClock>,
    policy: Policy,
    /// The first is packed, the second is not; one state is that of both.
    rules: [AnyRule; 2],
    rate: (Policy, AnyRule),
    /// The units that calls hold of each key, counted by the calls.
    held: [AtomicU64; KEYS],
}

impl Server {
    fn new(capacity: usize, choice: AtCapacity) -> Self {
        let rule = |text: &str| text.parse().unwrap();
        Self {
            store: LocalBuilder::new()
                .capacity(capacity)
                .at_capacity(choice)
                .clock(ManualClock::default())
                .build(),
            policy: Policy::new("calls"),
            rules: [rule("in-flight 3"), rule("in-flight 3 max-hold=1h")],
            rate: (Policy::new("rate"), rule("token-bucket 1/1h burst=2")),
            held: array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn ask<'a>(&'a self, rule: &'a AnyRule, key: usize) -> Ask<'a, AnyRule> {
        Ask::new(&self.policy, rule, (key as u64).into(), Cost::ONE)
    }

    /// Begins a call of each key, or none. Each key is named once.
    fn begin<'a>(&'a self, rule: &'a AnyRule, keys: &[usize], calls: &mut Vec<Call<'a>>) {
        let asks: Vec<_> = keys.iter().map(|key| self.ask(rule, *key)).collect();
        let Check::Ready(Ok(decisions)) = self.store.acquire(&asks) else {
            panic!("a store in memory does not wait")
        };
        if !decisions.is_admitted() {
            return;
        }
        for (key, decision) in keys.iter().zip(decisions.as_slice()) {
            // A key without room may be let through, and then holds nothing.
            let Some(charge) = decision.clone().take_charge() else {
                continue;
            };
            let held = self.held[*key].fetch_add(1, Relaxed) + 1;
            assert!(held <= LIMIT, "{held} calls of key {key}");
            let key = *key;
            calls.push(Call { key, rule, charge });
        }
    }

    fn end(&self, call: Call<'_>) {
        let Call { key, rule, charge } = call;
        self.held[key].fetch_sub(1, Relaxed);
        let key = (key as u64).into();
        let settlement = Settlement::new(&self.policy, rule, key, charge, 0).unwrap();
        assert!(matches!(
            self.store.settle_one(settlement),
            Check::Ready(Ok(()))
        ));
    }

    fn run(&self, seed: u64) -> u64 {
        let (mut random, mut calls, mut began) = (Random::new(seed), Vec::new(), 0);
        for step in 0..2_000_u64 {
            let before = calls.len();
            let rule = &self.rules[usize::from(random.below(4) == 0)];
            let key = random.below(KEYS as u64) as usize;
            match random.below(8) {
                0..=2 => self.begin(rule, &[key], &mut calls),
                3 => self.begin(rule, &[key, (key + 1) % KEYS], &mut calls),
                4 => {
                    // Other keys come, and stay.
                    let (policy, rule) = &self.rate;
                    let key = (seed << 32 | step).into();
                    self.store.decide(&Ask::new(policy, rule, key, Cost::ONE));
                }
                _ if calls.is_empty() => {}
                _ => self.end(calls.swap_remove(random.below(before as u64) as usize)),
            }
            began += calls.len().saturating_sub(before) as u64;
        }
        calls.into_iter().for_each(|call| self.end(call));
        began
    }
}

#[test]
fn calls_hold_what_there_is_and_give_it_back() {
    let choices = [
        AtCapacity::InheritDebts,
        AtCapacity::RefuseNewcomers,
        AtCapacity::AdmitNewcomers,
    ];
    let mut began = 0;
    for round in 0..60_u64 {
        // From a store that is full at once to one that grows all the time.
        let capacity = [4, 12, 30, 200, 2_000][round as usize % 5];
        let server = Server::new(capacity, choices[round as usize / 5 % 3]);
        let start = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (server, start) = (&server, &start);
                    scope.spawn(move || {
                        start.wait();
                        server.run(1 + round * THREADS + thread)
                    })
                })
                .collect();
            began += threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum::<u64>();
        });
        for key in 0..KEYS {
            let key = (key as u64).into();
            for rule in &server.rules {
                let look = server.store.look(&server.policy, rule, &key);
                assert_eq!(look.remaining(), Some(LIMIT), "round {round}: {look:?}");
            }
        }
    }
    assert!(began > 30_000, "{began} calls");
}
