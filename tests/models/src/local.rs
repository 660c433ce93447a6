//! Stand-in for `src/store/local/mod.rs`, with predictable fingerprints.

use std::sync::Arc;

use loom::sync::Mutex;

use super::{
    map::{Location, Map, Shard},
    stats::{Displaced, LocalCounters, Occupancy, StateKinds},
    table,
};
use crate::{
    algorithm::{
        Algorithm, PackedAlgorithm, StateKind,
        packed::{InMemory, PackedKind, PackedState, StoreTime},
    },
    decision::{Charge, Cost, Decision},
    key::Key,
    policy::Policy,
    store::{Ask, Settlement},
    time::{Clock, MonotoneClock, TestClock, Timestamp},
};

/// The number of sets of a small table, which is the minimum.
const SETS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AtCapacity {
    InheritDebts,
    RefuseNewcomers,
    AdmitNewcomers,
}

pub struct Local<A: Algorithm, C> {
    pub(super) inner: Arc<LocalInner<A::State, C>>,
}

pub(super) struct LocalInner<S, C> {
    pub(super) table: table::Table,
    pub(super) map: Map<S>,
    pub(super) occupancy: Occupancy,
    pub(super) kinds: StateKinds,
    pub(super) clock: MonotoneClock<C>,
    pub(super) seed: Fingerprinter,
    pub(super) at_capacity: AtCapacity,
    pub(super) counters: LocalCounters,
    pub(super) displaced: Displaced,
    pub(super) made: Timestamp,
}

pub(super) struct Fingerprinter;

impl Fingerprinter {
    /// Returns a fingerprint whose shard depends on the key and not on the kind. Its sets depend on
    /// neither.
    pub(super) fn fingerprint(&self, _: &Policy, key: &Key, kind: StateKind) -> u64 {
        key.0 ^ key.0 << 55 ^ (kind.as_u64() & 0xff) << 8
    }
}

impl<A: Algorithm> Clone for Local<A, TestClock> {
    fn clone(&self) -> Self {
        let inner = Arc::clone(&self.inner);
        Self { inner }
    }
}

impl<A: Algorithm> Local<A, TestClock> {
    /// Creates a store whose table has two sets, for any capacity up to twelve keys.
    pub fn new(capacity: usize, at_capacity: AtCapacity, clock: &TestClock) -> Self {
        let table = table::Table::new(capacity);
        Self::of_table(table, capacity, at_capacity, clock)
    }

    /// Creates a store for two keys, whose table has one set that can be split.
    pub fn of_one_set(clock: &TestClock) -> Self {
        let table = table::Table::beginning_with(1, 2).unwrap();
        Self::of_table(table, 2, AtCapacity::InheritDebts, clock)
    }

    fn of_table(
        table: table::Table,
        capacity: usize,
        at_capacity: AtCapacity,
        clock: &TestClock,
    ) -> Self {
        let inner = LocalInner {
            table,
            map: Map::new(),
            occupancy: Occupancy::new(capacity),
            kinds: StateKinds::default(),
            clock: MonotoneClock::new(clock.clone()),
            seed: Fingerprinter,
            at_capacity,
            counters: LocalCounters::default(),
            displaced: Displaced::new(capacity),
            made: Timestamp::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Spends one. Returns `true` if that was admitted.
    pub fn spend(&self, rule: &A, key: u64) -> bool {
        self.ask(rule, key, 1).is_admitted()
    }

    /// Spends a cost above zero.
    pub fn ask(&self, rule: &A, key: u64, cost: u64) -> Decision {
        let cost = Cost::new(cost).unwrap_or(Cost::ONE);
        self.decide(&Ask::new(&Policy, rule, Key(key), cost))
    }

    /// Spends the cost of each key under its rule, or nothing. Returns `true` if that was admitted.
    pub fn spend_together(&self, asks: &[(&A, u64, u64)]) -> bool {
        let ask = |(rule, key, cost)| {
            let cost = Cost::new(cost).unwrap_or(Cost::ONE);
            Ask::new(&Policy, rule, Key(key), cost)
        };
        let asks: Vec<_> = asks.iter().copied().map(ask).collect();
        self.decide_all(&asks).is_admitted()
    }

    /// Spends one under each key, or nothing.
    pub fn spend_all(&self, rule: &A, keys: &[u64]) -> bool {
        let ask = |key: &u64| Ask::new(&Policy, rule, Key(*key), Cost::ONE);
        let asks: Vec<_> = keys.iter().map(ask).collect();
        self.decide_all(&asks).is_admitted()
    }

    pub fn look_at(&self, rule: &A, key: u64) -> Decision {
        self.look(&Policy, rule, &Key(key))
    }

    pub fn remaining(&self, rule: &A, key: u64) -> Option<u64> {
        self.look_at(rule, key).remaining()
    }

    /// Refunds one token that was spent while the clock stood still.
    pub fn refund(&self, rule: &A, key: u64) {
        self.settle(rule, key, 0);
    }

    /// Corrects a charge of one, made while the clock stood still.
    pub fn settle(&self, rule: &A, key: u64, actual: u64) {
        let charge = Charge::new(self.inner.clock.now(), 1).with_delay(None);
        self.inner.settle(&Settlement {
            policy: &Policy,
            rule,
            key: Key(key),
            charge,
            actual,
            is_grant: false,
        });
    }

    /// Splits the set.
    pub fn grow(&self) -> bool {
        self.inner.table.grow()
    }

    /// Returns `true` if all keys are in the table.
    pub fn are_all_in_table(&self, keys: &[u64], rule: &A) -> bool {
        keys.iter().all(|key| {
            let location = self.inner.locate(&Policy, &Key(*key), rule.state_kind());
            let _shard = self.inner.map.lock(location);
            self.inner.table.claim(location.fingerprint).is_some()
        })
    }

    pub fn len(&self) -> usize {
        self.inner.occupancy.keys()
    }

    /// Removes expired keys, as a new key does when the store is full.
    pub fn sweep(&self) {
        let now = self.inner.store_time();
        let forgotten = (0..SETS).map(|_| self.inner.table.sweep(now)).sum();
        self.inner.count_expired(forgotten);
    }

    pub fn reset(&self, key: u64) {
        for kind in self.inner.kinds.iter() {
            let location = self.inner.locate(&Policy, &Key(key), kind);
            self.inner
                .remove(&mut self.inner.map.lock(location), location);
        }
    }
}

impl<S, C> LocalInner<S, C> {
    pub(super) fn locate(&self, policy: &Policy, key: &Key, kind: StateKind) -> Location {
        self.map.locate(self.seed.fingerprint(policy, key, kind))
    }

    /// Removes a key whose shard is locked. Returns `true` if it was there.
    pub(super) fn remove(&self, shard: &mut Shard<'_, S>, location: Location) -> bool {
        let removed = match self.table.claim(location.fingerprint) {
            Some(claim) => {
                claim.vacate();
                true
            }
            None => shard.remove(location),
        };
        self.occupancy.give(usize::from(removed));
        removed
    }
}

/// The table by itself: two sets, and a lock per key instead of the shards of the map.
pub struct Table {
    table: table::Table,
    locks: [Mutex<()>; 4],
}

/// Returns the time `nanos` nanoseconds after the table was made.
fn at(nanos: u64) -> StoreTime {
    StoreTime::new(Timestamp::from_nanos(nanos), Timestamp::default())
}

impl Default for Table {
    fn default() -> Self {
        Self {
            table: table::Table::new(1),
            locks: std::array::from_fn(|_| Mutex::new(())),
        }
    }
}

impl Table {
    /// Creates a table of one set, which can be split.
    pub fn of_one_set() -> Self {
        Self {
            table: table::Table::beginning_with(1, 2).unwrap(),
            ..Self::default()
        }
    }

    /// Splits the set.
    pub fn grow(&self) -> bool {
        self.table.grow()
    }

    fn locked<T>(&self, key: u64, work: impl FnOnce(&table::Table) -> T) -> T {
        let Ok(_lock) = self.locks[key as usize % self.locks.len()].lock() else {
            unreachable!("a model ends with its first panic")
        };
        work(&self.table)
    }

    /// Spends under a key in the table, without a lock.
    pub fn spend(&self, rule: &impl Algorithm, key: u64, cost: u64, now: u64) -> Option<Decision> {
        let cost = Cost::new(cost)?;
        match rule.packed_rule()?.algorithm() {
            PackedAlgorithm::Bucket(packed_rule) => {
                self.table.step(key, packed_rule, || at(now), cost)
            }
            PackedAlgorithm::Queue(packed_rule) => {
                self.table.step(key, packed_rule, || at(now), cost)
            }
            PackedAlgorithm::Window(packed_rule) => {
                self.table.step(key, packed_rule, || at(now), cost)
            }
            PackedAlgorithm::Slices(packed_rule) => {
                self.table.step(key, packed_rule, || at(now), cost)
            }
        }
    }

    fn word(
        &self,
        rule: &impl Algorithm,
        before: Option<PackedState>,
        cost: u64,
        now: u64,
    ) -> Option<table::Word> {
        let packed_rule = rule.packed_rule()?;
        let (packed, _) = packed_rule.step(before, at(now), Cost::new(cost)?);
        self.table.word(packed?, packed_rule.packed_kind())
    }

    /// Scans the sets of a new key.
    fn scan<'a>(
        table: &'a table::Table,
        rule: &impl Algorithm,
        key: u64,
        now: u64,
    ) -> table::SetScan<'a> {
        let floor = rule
            .packed_rule()
            .map(|packed_rule| packed_rule.floor(at(now)));
        table.scan(key, at(now), floor.unwrap_or_else(|| at(now).packed()))
    }

    /// Spends under a key, and inserts it if it is new. Returns `false` if there was no slot for
    /// it.
    pub fn arrive(&self, rule: &impl Algorithm, key: u64, cost: u64, now: u64) -> bool {
        self.locked(key, |table| {
            if let Some(claim) = table.claim(key) {
                if let Some(word) = self.word(rule, Some(claim.word().packed()), cost, now) {
                    claim.advance(word);
                }
                return true;
            }
            let scan = Self::scan(table, rule, key, now);
            let word = self.word(rule, None, cost, now);
            // The slot of an expired key first, as at the capacity.
            word.is_some_and(|word| {
                table.place_expired(&scan, word.into()).is_some()
                    || table.place_free(&scan, word.into()).is_some()
            })
        })
    }

    /// Spends under a new key that evicts the key with the smallest usage and inherits it. Returns
    /// `true` if a key was evicted.
    pub fn evict(&self, rule: &impl Algorithm, key: u64, cost: u64, now: u64) -> bool {
        self.locked(key, |table| {
            let scan = Self::scan(table, rule, key, now);
            let word = self.word(rule, scan.smallest_usage(), cost, now);
            word.is_some_and(|word| table.evict(&scan, word).is_some())
        })
    }

    /// Returns the remaining units of a key, by its own state or by the usage evicted from its
    /// sets.
    pub fn remaining(&self, rule: &impl Algorithm, key: u64, now: u64) -> Option<u64> {
        let (packed, packed_kind) = self.locked(key, |table| match table.claim(key) {
            Some(claim) => Some((claim.word().packed(), table.packed_kind(claim.word()))),
            None => Some((table.inherited_usage(key)?, PackedKind::DEBT)),
        })?;
        let state = rule.unpack(packed, packed_kind, at(now));
        rule.look(state.as_ref(), Timestamp::from_nanos(now))
            .remaining()
    }

    /// Returns `true` if a key has a slot.
    pub fn knows(&self, key: u64) -> bool {
        self.locked(key, |table| table.claim(key).is_some())
    }

    /// Removes a key.
    pub fn forget(&self, key: u64) {
        self.locked(key, |table| {
            if let Some(claim) = table.claim(key) {
                claim.vacate();
            }
        });
    }

    /// Takes a number for the packed kind of a rule.
    pub fn take_kind(&self, rule: &impl Algorithm) {
        let _ = self.word(rule, None, 1, 0);
    }

    /// Removes expired keys. Returns how many.
    pub fn sweep(&self, now: u64) -> usize {
        (0..SETS).map(|_| self.table.sweep(at(now))).sum()
    }
}
