//! How a local store is set up.

use std::sync::{Arc, atomic::AtomicU64};

use super::{
    Inner, Local, fingerprint::Fingerprinter, kinds::Kinds, map::Map, occupancy::Occupancy,
    stats::Counters, table::Table,
};
use crate::{
    algorithm::Algorithm,
    time::{Clock, SystemClock},
};

/// Sets up a [`Local`] store.
///
/// ```
/// use tollgate::{TokenBucket, store::{AtCapacity, Local, LocalBuilder}};
///
/// let store: Local<TokenBucket> = LocalBuilder::new()
///     .capacity(100_000)
///     .at_capacity(AtCapacity::AdmitNewcomers)
///     .build();
/// assert_eq!(store.stats().capacity, 100_000);
/// ```
#[derive(Clone, Debug)]
pub struct LocalBuilder<C = SystemClock> {
    capacity: usize,
    at_capacity: AtCapacity,
    clock: C,
}

/// What happens to a new key when the store is full of keys that still matter.
///
/// Keys that are known stay limited, whatever is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtCapacity {
    /// A newcomer takes the place of the smallest debt among sixteen and inherits the largest
    /// debt that was ever pushed out there: no key is ever admitted above its limit,
    /// also by leaving and coming back, and newcomers are served as far as their burst exceeds what they
    /// inherit. Where none of the sixteen can be taken, the newcomer is pushed out at once, and who comes next inherits what it owes:
    /// no rule that [packs its states](Local#memory) answers that there is no occupancy. What a settlement gives back to a
    /// key that was pushed out is lost. Limits of different algorithms
    /// or of very different periods inherit more from each other than is fair: give those a store each. The default.
    ///
    /// A key that several rules of different lengths charge is held to each of them by what that rule has charged. What a shorter
    /// one charges after a longer one's debt was pushed out, the longer one may not see.
    ///
    /// Who is slowed, and how much, depends on how many keys matter at once: with as many attackers as places, clients from before
    /// still get 96 % of what they would, and clients that come later 91 %; with twice as many 50 % and 32 %; with five times 24 % and 6 %.
    /// How that was measured, [the benchmarks](crate::benchmarks) tell.
    ///
    /// A newcomer whose state is not [packed](Local#memory) cannot inherit a debt, and is turned away. So are all newcomers at a capacity
    /// of 0, and after ten years of one process.
    #[default]
    InheritDebts,
    /// Newcomers are turned away, over HTTP with 503: the gate stays shut, and nobody is pushed out. The
    /// decision is [undecided](crate::Verdict::Undecided), for the client did not exceed its quota.
    RefuseNewcomers,
    /// Newcomers pass without being counted, undecided: the service stays up, and a flood of new keys
    /// passes too.
    AdmitNewcomers,
}

impl Default for LocalBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalBuilder {
    /// A million keys, debts inherited beyond, and the system's clock.
    pub fn new() -> Self {
        Self {
            capacity: 1_000_000,
            at_capacity: AtCapacity::default(),
            clock: SystemClock::default(),
        }
    }
}

impl<C> LocalBuilder<C> {
    /// The greatest number of keys that are remembered at once; 0 remembers none.
    ///
    /// Address space for the table, 21.3 bytes a key, is reserved when the store is built; memory is
    /// taken where keys come. A key whose state is not packed takes [more](Local#memory). Not bounded by it
    /// are the calls that a [`SlidingLog`](crate::algorithm::SlidingLog) remembers of each key.
    #[must_use]
    pub fn capacity(self, keys: usize) -> Self {
        Self {
            capacity: keys,
            ..self
        }
    }

    /// Sets the [capacity](Self::capacity) to the number of keys with [packed](Local#memory) states that fit into so many bytes.
    #[must_use]
    pub fn capacity_in_bytes(self, bytes: usize) -> Self {
        self.capacity(bytes / 64 * 3)
    }

    /// What happens to a new key when the store is full.
    #[must_use]
    pub fn at_capacity(self, choice: AtCapacity) -> Self {
        Self {
            at_capacity: choice,
            ..self
        }
    }

    /// Another clock than the system's.
    #[must_use]
    pub fn clock<D: Clock>(self, clock: D) -> LocalBuilder<D> {
        LocalBuilder {
            capacity: self.capacity,
            at_capacity: self.at_capacity,
            clock,
        }
    }

    /// The store, empty.
    ///
    /// # Panics
    ///
    /// When there is no memory for a table of this [capacity](Self::capacity).
    pub fn build<A: Algorithm>(self) -> Local<A, C>
    where
        C: Clock,
    {
        let now = self.clock.now();
        Local {
            inner: Arc::new(Inner {
                table: Table::new(self.capacity),
                map: Map::new(),
                occupancy: Occupancy::new(self.capacity),
                kinds: Kinds::default(),
                made: now,
                latest: AtomicU64::new(now.as_nanos()),
                clock: self.clock,
                seed: Fingerprinter::random(),
                at_capacity: self.at_capacity,
                counters: Counters::default(),
            }),
        }
    }
}
