//! Counts the work of a script for a decision, with small and with large states. Nothing is timed.

use std::collections::BTreeMap;

use support::Random;
use tollgate::{
    AnyRule, Cost, Decision, Policy, Timestamp,
    key::Key,
    store::{
        Store,
        driver::{Ask, ScriptStore, Settlement},
    },
};

use super::interpreter::{Interpreter, Work};

/// A request to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Admit,
    Refuse,
    /// Each further equal call of a batch that is refused.
    RefuseFurther,
    Look,
    Settle,
}

use Act::{Admit, Look, Refuse, RefuseFurther, Settle};

type Works = BTreeMap<Act, Work>;

struct Subject {
    interpreter: Interpreter,
    store: ScriptStore<Interpreter, AnyRule>,
    rule: AnyRule,
    policy: Policy,
    now: u64,
}

impl Subject {
    fn new(rule: &str) -> Self {
        let now = 1_767_235_685_123_456;
        let interpreter = Interpreter::new();
        interpreter.set_time(now);
        Self {
            store: ScriptStore::new(interpreter.clone()),
            interpreter,
            rule: rule.parse().unwrap(),
            policy: Policy::new("api"),
            now,
        }
    }

    fn asks(&self, count: usize) -> Vec<Ask<'_, AnyRule>> {
        let ask = || Ask::new(&self.policy, &self.rule, Key::from(7), Cost::ONE);
        std::iter::repeat_with(ask).take(count).collect()
    }

    async fn acquire(&mut self, count: usize) -> Vec<Decision> {
        self.now += 10;
        let now = Timestamp::from_nanos(self.now * 1000);
        let calls = self.store.acquire_each_at(now, &self.asks(count)).await;
        let calls = calls.unwrap().into_iter();
        calls.map(|call| call.as_slice()[0]).collect()
    }

    async fn settle(&mut self, charged: &mut [Decision]) {
        let settlement = |decision: &mut Decision| {
            let charge = decision.take_charge().unwrap();
            Settlement::new(&self.policy, &self.rule, Key::from(7), charge, 0).unwrap()
        };
        let settlements = charged.iter_mut().map(settlement).collect();
        let now = Timestamp::from_nanos(self.now * 1000);
        let settled = self.store.settle_and_acquire_each_at(now, settlements, &[]);
        settled.await.unwrap();
    }

    /// Returns the work of what is done in `act`.
    async fn work(&mut self, act: impl AsyncFnOnce(&mut Self)) -> Work {
        let before = self.interpreter.work();
        self.interpreter.count(true);
        act(self).await;
        self.interpreter.count(false);
        let after = self.interpreter.work();
        Work {
            instructions: after.instructions - before.instructions,
            bytes: after.bytes - before.bytes,
        }
    }

    /// Makes so many calls, and returns the most work of each act.
    async fn works(mut self, calls: u64) -> Works {
        let (mut works, mut charged) = (Works::new(), Vec::new());
        for _ in 0..calls {
            let decision = self.acquire(1).await.remove(0);
            charged.extend(decision.is_admitted().then_some(decision));
        }
        if self.rule.to_string().starts_with("leaky") {
            // Every other one hangs up.
            let mut gone: Vec<_> = charged.iter().copied().skip(1).step_by(2).collect();
            for gone in gone.chunks_mut(50) {
                self.settle(gone).await;
            }
            for _ in 0..calls {
                if !self.acquire(1).await[0].is_admitted() {
                    break;
                }
            }
        }
        let mut most = |act: Act, work: Work| {
            let known = works.entry(act).or_default();
            known.instructions = known.instructions.max(work.instructions);
            known.bytes = known.bytes.max(work.bytes);
        };
        for _ in 0..5 {
            let mut is_refused = false;
            let refusal = self
                .work(async |own: &mut Self| is_refused = !own.acquire(1).await[0].is_admitted())
                .await;
            assert!(is_refused, "{}", self.rule);
            most(Refuse, refusal);
            let batch = self
                .work(async |own: &mut Self| drop(own.acquire(21).await))
                .await;
            let further = |batch: u64, one: u64| batch.saturating_sub(one) / 20;
            most(
                RefuseFurther,
                Work {
                    instructions: further(batch.instructions, refusal.instructions),
                    bytes: further(batch.bytes, refusal.bytes),
                },
            );
            let look = async |own: &mut Self| {
                own.interpreter.set_time(own.now);
                own.store.look(&own.asks(1)).await.unwrap();
            };
            most(Look, self.work(look).await);
        }
        // In random order, from all over the state.
        let mut random = Random::new(calls);
        for _ in 0..20 {
            if charged.is_empty() {
                break;
            }
            let place = random.below(charged.len() as u64) as usize;
            let mut gone = [charged.swap_remove(place)];
            let settle = async |own: &mut Self| own.settle(&mut gone).await;
            most(Settle, self.work(settle).await);
            let mut decisions = Vec::new();
            let admit = async |own: &mut Self| decisions = own.acquire(1).await;
            let admission = self.work(admit).await;
            if decisions[0].is_admitted() {
                most(Admit, admission);
            }
        }
        works
    }
}

/// A log is read in pieces of so many bytes.
const BLOCK: u64 = 256;

async fn works(rule: &str, calls: u64) -> Works {
    Subject::new(rule).works(calls).await
}

/// For each rule whose state can grow, a small and a large state: how many times as much each act
/// may work on the large one.
#[tokio::test]
async fn work_does_not_grow_with_what_a_key_has_used() {
    for ([small, large], most) in [
        (
            [("token-bucket 10/1d", 10), ("token-bucket 1000/1d", 1_000)],
            1,
        ),
        (
            [
                ("fixed-window 10/365d", 10),
                ("fixed-window 1000/365d", 1_000),
            ],
            1,
        ),
        (
            [
                ("sliding-window 10/365d", 10),
                ("sliding-window 100/365d", 100),
            ],
            1,
        ),
        (
            [
                ("cascade 5/1d > 5/1d", 10),
                ("cascade 500/1d > 500/1d", 1_000),
            ],
            1,
        ),
        (
            [
                ("three-color 5/1d peak=10/1d", 10),
                ("three-color 500/1d peak=1000/1d", 1_000),
            ],
            1,
        ),
        // Sixteen places are full in both.
        (
            [
                ("leaky-bucket 1/1h queue=100", 101),
                ("leaky-bucket 1/1h queue=500", 501),
            ],
            1,
        ),
        (
            [("sliding-log 200/1d", 200), ("sliding-log 2000/1d", 2_000)],
            1,
        ),
        (
            [
                ("sliding-log 200/1d & token-bucket 200/1d", 200),
                ("sliding-log 1500/1d & token-bucket 1500/1d", 1_500),
            ],
            1,
        ),
        // Work grows with the slices, of which a rule has a number that no client can change.
        (
            [
                ("sliding-window 10/365d slices=10", 10),
                ("sliding-window 10/365d slices=60", 10),
            ],
            10,
        ),
    ] {
        let few = works(small.0, small.1).await;
        let many = works(large.0, large.1).await;
        for (act, few) in &few {
            let many = many[act];
            for (what, few, many) in [
                ("instructions", few.instructions, many.instructions),
                ("bytes", few.bytes, many.bytes),
            ] {
                // What is searched in halves takes some more steps, and numbers more bytes. A
                // refusal is not searched for.
                let more = match act {
                    Admit | Settle => few,
                    Refuse | RefuseFurther | Look => few / 4,
                };
                assert!(
                    many <= most * (few + more) + BLOCK,
                    "{act:?} of {}: {few} {what}, and {many} of {}",
                    small.0,
                    large.0
                );
            }
        }
    }
}

/// While a limit is lowered, charges under the old one are settled under the new one.
#[tokio::test]
async fn a_settlement_under_a_lower_limit_works_no_more() {
    const CALLS: u64 = 1_000;
    let mut most = [0, 0];
    for (most, rule) in most
        .iter_mut()
        .zip(["sliding-log 1000/1d", "sliding-log 10/1d"])
    {
        let mut subject = Subject::new("sliding-log 1000/1d");
        let mut charged = Vec::new();
        for _ in 0..CALLS {
            charged.extend(subject.acquire(1).await);
        }
        subject.rule = rule.parse().unwrap();
        for gone in charged.chunks_mut(1).step_by(20) {
            let work = subject.work(async |own: &mut Subject| own.settle(gone).await);
            *most = work.await.instructions.max(*most);
        }
    }
    assert!(most[1] <= 2 * most[0], "{most:?}");
}

/// Compares each rule with a token bucket that the same driver decides.
#[tokio::test]
async fn no_rule_works_much_more_than_a_bucket() {
    // A bucket that starts otherwise is decided by the driver.
    let bucket = works("token-bucket 10/1d initial=9 keep=1h", 9).await;
    for (rule, calls) in [
        ("fixed-window 10/365d", 10),
        ("sliding-window 10/365d", 10),
        ("cascade 5/1d > 5/1d", 10),
        ("three-color 5/1d peak=10/1d", 10),
        ("leaky-bucket 1/1h queue=500", 501),
        ("sliding-log 10/1d", 10),
        ("sliding-log 1000/1d", 1_000),
    ] {
        let works = works(rule, calls).await;
        let of = |works: &Works, act| works.get(&act).map_or(0, |work| work.instructions);
        for (act, most) in [(Refuse, 6), (Look, 6), (Admit, 20), (Settle, 20)] {
            let (own, buckets) = (of(&works, act), of(&bucket, act));
            assert!(
                own <= most * buckets,
                "{act:?} of {rule}: {own}, {buckets} of a bucket"
            );
        }
        let further = of(&works, RefuseFurther);
        assert!(further <= of(&bucket, Refuse), "{rule}: {further}");
        assert!(works[&Refuse].bytes < 4_096, "{rule}: {:?}", works[&Refuse]);
    }
}
