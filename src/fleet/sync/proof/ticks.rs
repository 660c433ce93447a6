//! B7: a tick makes one call of bounded size, however many keys have something to push, and none of
//! them is left behind.

use super::{PERIOD, at, bound, bounded::schedules, rules::bucket};
use crate::{
    TokenBucket,
    decision::Cost,
    fleet::sync::{Bound, Due, KeyView, MAX_DELTAS, Schedule, ViewOutcome, together},
    random::Random,
};

const TICK: u64 = PERIOD / 20;

/// Many keys of one node, each with what the schedule knows of it.
struct Node {
    rule: TokenBucket,
    bound: Bound,
    keys: Vec<(KeyView<TokenBucket>, Due)>,
    schedule: Schedule,
    number: u64,
}

/// The calls of a schedule.
#[derive(Debug, Default)]
struct Calls {
    /// The most deltas of a call.
    deltas: usize,
    /// Reads that were sent before a write of the same call.
    early_reads: usize,
    /// The longest time, in ticks, from the instant at which a key was due to its call.
    ticks_late: u64,
}

impl Node {
    fn new(keys: usize) -> Self {
        let (rule, _) = bucket(10, 100);
        let view = |_| (KeyView::new(rule, at(0)), Due::NEVER);
        Self {
            keys: (0..keys).map(view).collect(),
            bound: bound(50),
            schedule: Schedule::default(),
            number: 0,
            rule,
        }
    }

    /// Does something with a key, and notes when it is due.
    fn with<T>(
        &mut self,
        key: usize,
        change: impl FnOnce(&mut KeyView<TokenBucket>, &TokenBucket, &Bound) -> T,
    ) -> T {
        let (view, noted) = &mut self.keys[key];
        let result = change(view, &self.rule, &self.bound);
        let due = Due {
            at: view.due(),
            is_write: view.unsynced() > 0,
        };
        self.schedule.change(key as u64, *noted, due);
        *noted = due;
        result
    }

    fn call(&mut self, key: usize, now: u64) -> ViewOutcome {
        self.with(key, |view, rule, bound| {
            view.acquire(rule, at(now), (Cost::ONE, false), bound)
        })
    }

    /// Makes the call of a tick, which is answered at once.
    fn tick(&mut self, now: u64, most: usize, calls: &mut Calls) {
        let mut sent = Vec::new();
        let (mut has_read, mut deltas) = (false, 0);
        let keys = together(most, || {
            let (due, key) = self.schedule.take(at(now))?;
            let key = key as usize;
            self.keys[key].1 = Due::NEVER;
            let late = at(now).nanos_since(due) / TICK;
            calls.ticks_late = calls.ticks_late.max(late);
            self.number += 1;
            let number = self.number;
            let view = &mut self.keys[key].0;
            view.clear_due();
            let pushed = view.send(at(now), || number).len();
            calls.early_reads += usize::from(pushed > 0 && has_read);
            has_read |= pushed == 0;
            deltas += pushed.max(1);
            sent.push(key);
            Some((key, pushed.max(1)))
        });
        assert_eq!(keys, sent);
        calls.deltas = calls.deltas.max(deltas);
        for key in keys {
            self.with(key, |view, _, bound| {
                view.answered((at(now), at(now), at(now)), None, bound);
            });
        }
    }
}

fn play(seed: u64, most: usize) -> (usize, Calls) {
    let mut random = Random::new(seed);
    let keys = 1 + (random.up_to(3000) >> random.up_to(6)) as usize;
    let (mut node, mut calls, mut now) = (Node::new(keys), Calls::default(), 0);
    for _ in 0..20 {
        for _ in 0..random.up_to(keys as u64) {
            let key = random.up_to(keys as u64 - 1) as usize;
            let _ = node.call(key, now);
        }
        now += TICK;
        node.tick(now, most, &mut calls);
        assert!(node.schedule.len() <= keys, "seed {seed}");
    }
    (keys, calls)
}

#[test]
fn a_tick_is_one_call_of_bounded_size() {
    for seed in 0..schedules(1) / 4 {
        let (keys, calls) = play(seed, MAX_DELTAS);
        assert!(calls.deltas <= MAX_DELTAS + 16, "seed {seed}: {calls:?}");
        assert_eq!(calls.early_reads, 0, "seed {seed}");
        // As soon as all keys before it are pushed: those that push may be pushed twice meanwhile.
        let turns = (2 * keys).div_ceil(MAX_DELTAS) as u64;
        assert!(
            calls.ticks_late <= turns,
            "seed {seed}: {keys} keys, {calls:?}"
        );
    }
    let is_too_large = |seed| play(seed, usize::MAX).1.deltas > MAX_DELTAS + 16;
    assert!(
        (0..100).any(is_too_large),
        "a call of all keys is not noticed"
    );
}
