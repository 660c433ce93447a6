//! A limiter with its keys loaded, which decides about a part of the visits.

use std::{
    hint::black_box,
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use support::{
    Random,
    bench::{Cost, together},
};
use tollgate::{
    Policy,
    algorithm::Algorithm,
    store::{Local, driver::Ask},
};

use super::keys::{BenchKey, Keys};

/// The visits of a race, of which each thread has its own share and decides about `each` in a turn.
pub(crate) struct Part {
    pub(crate) visits: Range<usize>,
    pub(crate) threads: usize,
    pub(crate) each: usize,
}

/// A limiter with its keys loaded.
pub(crate) struct Decider<'a> {
    /// The number of keys that were admitted when they were loaded.
    pub(crate) loaded: usize,
    decide: Box<dyn Fn(Range<usize>) -> usize + Sync + 'a>,
}

impl<'a> Decider<'a> {
    /// Loads all keys, in the same random order for every limiter. `decide` returns `true` if a key
    /// is admitted.
    // `decide` is called within the loop, where the compiler can inline it.
    pub(crate) fn new<K: Sync>(keys: &'a Keys<K>, decide: impl Fn(&K) -> bool + Sync + 'a) -> Self {
        let mut order: Vec<usize> = (0..keys.all.len()).collect();
        Random::new(4).shuffle(&mut order);
        let loaded = order.into_iter().filter(|n| decide(&keys.all[*n])).count();
        let decide = move |range: Range<usize>| {
            keys.visits[range]
                .iter()
                .filter(|key| black_box(decide(black_box(key))))
                .count()
        };
        Self {
            loaded,
            decide: Box::new(decide),
        }
    }

    /// Loads all keys into a store of ours.
    pub(crate) fn ours<A, K>(keys: &'a Keys<K>, rule: A, store: Local<A>) -> Self
    where
        A: Algorithm + 'a,
        K: BenchKey,
    {
        let policy = Policy::new("bench");
        Self::new(keys, move |key: &K| {
            let ask = Ask::new(&policy, &rule, key.ours(), tollgate::Cost::ONE);
            store.decide(&ask).is_admitted()
        })
    }

    /// Decides about a part of the visits, and returns the number of admitted ones.
    pub(crate) fn decide(&self, range: Range<usize>) -> usize {
        (self.decide)(range)
    }

    /// Takes the turn of round `n`. Returns the cost of a decision, and the number of admitted
    /// visits.
    pub(crate) fn turn(&self, part: &Part, round: usize) -> (Cost, usize) {
        let Part {
            visits,
            threads,
            each,
        } = part;
        let passed = AtomicUsize::new(0);
        let share = visits.len() / threads;
        let cost = together(*threads, *each, |thread| {
            let begin = visits.start + thread * share + round * each % (share - each + 1);
            passed.fetch_add(self.decide(begin..begin + each), Ordering::Relaxed);
        });
        (cost, passed.into_inner())
    }
}
