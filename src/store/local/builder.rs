//! The builder of a local store.

use std::sync::Arc;

use super::{
    Inner, Local,
    displaced::Displaced,
    fingerprint::Fingerprinter,
    kinds::Kinds,
    lazy_table::{LazyTable, MOST_LAZY_KEYS},
    map::Map,
    occupancy::Occupancy,
    stats::Counters,
};
use crate::{
    algorithm::Algorithm,
    store::engine::MonotoneClock,
    time::{Clock, SystemClock},
};

/// Builder of a [`Local`] store.
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

/// The treatment of a new key when the store is full of keys that have not expired.
///
/// Keys that are in the store stay limited with any choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtCapacity {
    /// Evicts a key nearby; the new key inherits a debt. The default.
    ///
    /// A new key evicts the key with the smallest debt among sixteen slots, and inherits that debt. The debt of the evicted key is
    /// recorded, and inherited by that key when it comes back, and by the few new keys that share the record. So no key is ever admitted
    /// above its limit, not even by leaving and coming back. A new key is served as far as its burst exceeds the inherited debt. If none
    /// of the sixteen slots can be taken, the new key itself is evicted at once, and the next new key inherits its debt. So a rule that
    /// [packs its states into one word](Local#memory) is never refused for lack of room.
    ///
    /// A settlement that gives units back to an evicted key has no effect. Limits of different algorithms, or of very
    /// different periods, inherit disproportionate debts from each other: give each of them its own store. From a debt, a
    /// [`SlidingWindow`](crate::SlidingWindow) reads the count of one slice only; the slices before it may have had any count. So a new key
    /// is refused until these slices have left the window: it can evict keys that have been idle for about a window.
    ///
    /// If several rules of different lengths charge a key, each rule limits it by what that rule has charged. After a longer rule's debt
    /// was evicted, that rule may not see the charges of a shorter one.
    ///
    /// The slowdown depends on the number of keys that matter at once, relative to the slots:
    ///
    /// | attacking keys per slot | clients from before get | later clients get |
    /// |---|---|---|
    /// | 1 | 97 % of their usual share | 91 % |
    /// | 2 | 50 % | 30 % |
    /// | 5 | 23 % | 7 % |
    ///
    /// [The benchmarks](crate::benchmarks) describe the measurement.
    ///
    /// A new key whose state is not [packed into one word](Local#memory) cannot inherit a debt, and is refused. So are all new keys at a capacity
    /// of 0, and after the process has run for ten years.
    #[default]
    InheritDebts,
    /// Refuses new keys and evicts none. Over HTTP the status is 503. The decision is
    /// [undecided](crate::Verdict::Undecided), because the client did not exceed its quota.
    RefuseNewcomers,
    /// Admits new keys without counting them. The decision is [undecided](crate::Verdict::Undecided). The service stays up, and a flood
    /// of new keys is admitted too.
    AdmitNewcomers,
}

impl Default for LocalBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalBuilder {
    /// Creates a builder with a capacity of a million keys, [inherited debts](AtCapacity::InheritDebts), and the system's clock.
    pub fn new() -> Self {
        Self {
            capacity: MOST_LAZY_KEYS,
            at_capacity: AtCapacity::default(),
            clock: SystemClock::default(),
        }
    }
}

impl<C> LocalBuilder<C> {
    /// Sets the maximum number of keys. With 0, the store keeps none.
    ///
    /// The first call reserves address space for the table, 23.6 bytes per key; beyond a million keys, building the store does. Memory is taken
    /// as keys arrive. A key whose state is not packed takes [more](Local#memory). The capacity does not bound the calls that a
    /// [`SlidingLog`](crate::algorithm::SlidingLog) records for each key.
    #[must_use]
    pub fn capacity(self, keys: usize) -> Self {
        Self {
            capacity: keys,
            ..self
        }
    }

    /// Sets the [capacity](Self::capacity) to the number of keys that fit into `bytes` with states [packed into one word](Local#memory).
    #[must_use]
    pub fn capacity_in_bytes(self, bytes: usize) -> Self {
        // 132 bytes per set of eight slots, 70 % of which are in use.
        self.capacity(bytes / 165 * 7)
    }

    /// Sets the treatment of a new key when the store is full.
    #[must_use]
    pub fn at_capacity(self, choice: AtCapacity) -> Self {
        Self {
            at_capacity: choice,
            ..self
        }
    }

    /// Replaces the system's clock.
    #[must_use]
    pub fn clock<D: Clock>(self, clock: D) -> LocalBuilder<D> {
        LocalBuilder {
            capacity: self.capacity,
            at_capacity: self.at_capacity,
            clock,
        }
    }

    /// Builds an empty store.
    ///
    /// # Panics
    ///
    /// If there is not enough memory for a table of this [capacity](Self::capacity), above a million keys.
    pub fn build<A: Algorithm>(self) -> Local<A, C>
    where
        C: Clock,
    {
        let clock = MonotoneClock::new(self.clock);
        Local {
            inner: Arc::new(Inner {
                table: LazyTable::new(self.capacity),
                map: Map::new(),
                occupancy: Occupancy::new(self.capacity),
                kinds: Kinds::default(),
                made: clock.now(),
                clock,
                seed: Fingerprinter::random(),
                at_capacity: self.at_capacity,
                counters: Counters::default(),
                displaced: Displaced::new(self.capacity),
            }),
        }
    }
}
