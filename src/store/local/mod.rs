//! The store in memory.
//!
//! A key is a fingerprint of 64 bits under a seed of this process. One hash serves table, shards
//! and map. It is fast and seeded, not SipHash, which alone costs half a decision; its output is
//! never shown, so an attacker can neither aim nor learn.
//!
//! A packed state lies in the `table`, where a known key is decided by loads and one
//! compare-exchange, any other state in the `map`. A map with locks alone would wait for two cache
//! misses in a row, and on a hot key for the lock.

mod decide;
mod evict;
mod lines;
mod map;
mod several;
mod state;
mod stats;
mod table;

use std::{
    convert::Infallible,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    ops::Deref,
    sync::{Arc, OnceLock},
};

// `tests/models` compiles the other files of this folder with loom's locks, so they import this map
// from here.
use dashmap::{DashMap, mapref::one::RefMut};
use foldhash::{SharedSeed, quality::FoldHasher};

pub(crate) use self::lines::Place;
#[cfg(feature = "tokio")]
pub(crate) use self::map::IdentityHasher;
pub use self::{lines::Lines, stats::LocalStats};
use self::{
    map::{Location, Map, Shard},
    stats::{Displaced, LocalCounters, Occupancy, StateKinds},
    table::{Claim, Table},
};
use crate::{
    algorithm::{
        Algorithm, InFlight, StateKind, fits_in_memory,
        packed::{PackedState, StoreTime},
    },
    error::Error,
    key::Key,
    policy::Policy,
    store::{Ask, Backend, Check, Decisions, Never, Settlement, Store, StoreId},
    time::{Clock, MonotoneClock, SystemClock, Timestamp},
};

/// A store in the memory of this process. It is bounded and exact, and decides without waiting.
///
/// Clones share their keys. By default, the store holds up to a million keys.
///
/// # Memory
///
/// When it packs the first state, the store reserves address space for a table of 24 bytes per key
/// of its capacity, and as much again when it gets the first state in two words. Without packed
/// states, and with a capacity of up to a million keys, it reserves none, and an empty store takes
/// about 50 kB. The table holds packed states of one or two words of 64 bits. It takes memory as
/// its keys grow in number, so few keys lie close together in a large store, too. These rules pack
/// their states, also within an [`AnyRule`](crate::AnyRule):
///
/// | rule | packs its states if |
/// |---|---|
/// | `TokenBucket` | it starts full and fills within two years |
/// | `LeakyBucket` | it drains within two years |
/// | two `TokenBucket`s as a pair or as `… & …`, a `Cascade` of two, `ThreeColor` | both buckets do; in two words |
/// | `FixedWindow` | its windows are those of the calendar without an offset, last at most two years, and their limit is below three per nanosecond |
/// | `SlidingWindow` | its limit and its slices [fit](crate::SlidingWindow#cost), such as up to 262,143 a minute in one slice, or 127 in four |
/// | `InFlight` | its limit is up to 4,095, and it has no maximal hold and no lease |
///
/// Any other state takes memory when its key is inserted. Later keys reuse the memory of expired
/// ones; a key whose calls are in flight does not expire. These states live in maps that double
/// when they are full, so the bytes per key vary within a range. In a store that also has packed
/// states, the table takes 24 more for each key of the capacity:
///
/// | rule | bytes per key |
/// |---|---|
/// | any that packs its states into one word | 23 to 24 |
/// | any that packs its states into two words | 46 to 47 |
/// | other `InFlight`; one with a maximal hold takes 16 to 32 more for each of up to 32 spans | 52 to 76 |
/// | other `FixedWindow` and `ThreeColor` | 53 to 113 |
/// | other `TokenBucket` and `LeakyBucket`, `WarmUp`, `WarmUpSpaced` | 63 to 128 |
/// | other `SlidingWindow`; one of n slices takes 8·(n + 1) more | 68 to 148 |
/// | other `Cascade` of two | 68 to 148 |
/// | `Cascade` of three | 118 to 198 |
/// | `SlidingLog` with up to four calls | 133 to 213 |
/// | `AnyRule` of one other rule, without the boxed part: slices, the third level of a cascade, calls | 78 to 168 |
/// | `AnyRule` of two other rules, `… & …`; each rule more takes 48 | 173 to 263 |
///
/// The capacity bounds the number of keys, not the number of calls that a
/// [`SlidingLog`](crate::algorithm::SlidingLog) records for each. A log takes 16 to 32 bytes for
/// each call admitted in the last window, and at most 64 while the traffic of its key declines. So
/// a log can take up to 32 times its limit in bytes, per key. For high limits of many keys, use a
/// sliding window.
///
/// An expired state is one that decides like no state at all. A packed one stays until its slot is
/// needed: a new key takes a free slot, or at the capacity the slot that expired first among
/// sixteen. Any other expired state stays for a minute, or until the capacity is reached. There is
/// no pause and no background task, and no information is lost. A key that several rules have
/// charged expires when none of these rules sees a debt in it: a longer rule's debt is kept even if
/// a shorter rule was asked last. But a call under the shorter rule writes the state in the memory
/// [of that rule](crate::Limit::rule). A settlement that refunds units to such a key under one rule
/// does not make it expire sooner.
///
/// At the [capacity](LocalBuilder::capacity), a new key [inherits debts](AtCapacity::InheritDebts),
/// is [refused](AtCapacity::RefuseNewcomers), or is [admitted](AtCapacity::AdmitNewcomers), by
/// configuration. The first two never admit a key above its limit. [`stats`](Self::stats) counts
/// these cases. [The benchmarks](crate::benchmarks) show which clients a flood of keys slows, and
/// by how much.
///
/// # Rules of several kinds on one key
///
/// A key has one state per [kind](crate::algorithm::Algorithm::state_kind) of rule that charges it.
/// Each state counts as one key of the capacity. So an [`AnyRule`](crate::AnyRule) chosen per
/// request may be of any algorithm: a client gets at most the limit of each rule, in any order of
/// the rules. [`reset`](Self::reset) removes the states of all kinds.
///
/// # Several asks at once
///
/// They are decided under the locks of all their keys. A request with several asks takes about as
/// long as its asks one by one. A state is copied only if several asks name its key, because the
/// first may be admitted and the second refused.
///
/// # Time
///
/// The time of a store never decreases. If its clock steps back, the store's time stands still
/// until the clock has caught up.
///
/// # Keys
///
/// The store keeps a fingerprint of each key: 64 bits of a hash, under a random seed of this
/// process. Among a million live keys, the probability that a new key collides with any of them,
/// and shares its budget, is 1 in 1.8·10¹³. Because of the seed, a client cannot choose the key
/// that it collides with.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{LocalBuilder, driver::Ask};
///
/// let store = LocalBuilder::new().capacity(10_000).build();
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(2));
/// let ask = Ask::new(&policy, &rule, "alice".into(), Cost::ONE);
///
/// assert!(store.decide(&ask).is_admitted());
/// assert!(store.decide(&ask).is_admitted());
/// assert!(!store.decide(&ask).is_admitted());
/// assert_eq!(store.len(), 1);
/// ```
#[doc(alias("in-memory", "memory", "InMemory"))]
pub struct Local<A: Algorithm, C = SystemClock> {
    inner: Arc<LocalInner<A::State, C>>,
}

impl<A: Algorithm> Local<A> {
    /// Creates a store of up to a million keys. At this capacity, new keys [inherit
    /// debts](AtCapacity::InheritDebts).
    pub fn new() -> Self {
        LocalBuilder::new().build()
    }
}

impl<A: Algorithm> Default for Local<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl_clone!([A: Algorithm, C] Local<A, C>, { inner });
impl_debug!([A: Algorithm, C] Local<A, C>, |it| stats = it.stats());

impl<A: Algorithm, C> Local<A, C> {
    /// Returns the number of keys, including expired ones not yet reclaimed. A key counts once for
    /// each kind of rule that charged it.
    pub fn len(&self) -> usize {
        self.inner.occupancy.keys()
    }

    /// Returns `true` if the store contains no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counts since the store was built, of all clones together.
    pub fn stats(&self) -> LocalStats {
        let LocalInner {
            occupancy,
            counters,
            lines,
            ..
        } = &*self.inner;
        counters.read(occupancy.keys(), occupancy.capacity(), lines.waiting())
    }

    /// Removes the states of a key, of all kinds, but for what calls [in flight](crate::InFlight)
    /// hold. Its next request is that of a new key, and may inherit a debt.
    pub fn reset(&self, policy: &Policy, key: &Key) {
        let inner = &*self.inner;
        for kind in inner.kinds.iter().filter(|kind| *kind != InFlight::STATES) {
            let location = inner.locate(policy, key, kind);
            inner.remove(&mut inner.map.lock(location), location);
        }
    }

    /// Removes all keys, all inherited debts, and what calls [in flight](crate::InFlight) hold:
    /// those that go on give back what others hold by then, so clear a store without calls.
    pub fn clear(&self) {
        let inner = &*self.inner;
        inner
            .occupancy
            .give(inner.map.clear() + inner.table.clear());
        inner.lines.call_all();
    }
}

impl<A: Algorithm, C> Backend for Local<A, C> {
    type Error = Infallible;

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.inner))
    }

    fn lines(&self) -> Option<&Arc<Lines>> {
        Some(&self.inner.lines)
    }
}

impl<A: Algorithm, C: Clock> Store<A> for Local<A, C> {
    type Answer = Never<Result<Decisions, Infallible>>;
    type Done = Never<Result<(), Infallible>>;

    /// Decides several asks under the locks of all their keys, so no other call sees a part of them
    /// spent.
    // Always inlined, as `decide` is.
    #[inline(always)]
    fn acquire(&self, asks: &[Ask<'_, A>]) -> Check<Self::Answer> {
        Check::Ready(Ok(match asks {
            [ask] => self.decide(ask).into(),
            asks => {
                let policies = asks.iter().map(|ask| ask.policy().digest());
                self.decide_all(asks).of_policies(policies)
            }
        }))
    }

    fn look(&self, asks: &[Ask<'_, A>]) -> Check<Self::Answer> {
        let look = |ask: &Ask<'_, A>| self.look(ask.policy(), ask.rule(), ask.key());
        Check::Ready(Ok(asks.iter().map(look).collect()))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, A>>) -> Check<Self::Done> {
        for settlement in settlements {
            self.inner.settle_and_call(settlement);
        }
        Check::Ready(Ok(()))
    }

    #[inline]
    fn settle_one(&self, settlement: Settlement<'_, A>) -> Check<Self::Done> {
        self.inner.settle_and_call(settlement);
        Check::Ready(Ok(()))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.reset(policy, key);
        Check::Ready(Ok(()))
    }

    fn fits(&self, rule: &A) -> Result<(), Error> {
        fits_in_memory(rule)
    }
}

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
    /// A new key evicts the key with the smallest debt among sixteen slots, and inherits that debt.
    /// The debt of the evicted key is recorded, and inherited by that key when it comes back, and
    /// by the few new keys that share the record. So no key is ever admitted above its limit, not
    /// even by leaving and coming back. A new key is served as far as its burst exceeds the
    /// inherited debt. If none of the sixteen slots can be taken, the new key itself is evicted at
    /// once, and the next new key inherits its debt. So a rule that [packs its states into one
    /// word](Local#memory) is never refused for lack of room, but for [calls in
    /// flight](crate::InFlight), which neither inherit nor leave debts.
    ///
    /// A settlement that refunds units to an evicted key has no effect. Limits of different
    /// algorithms, or of very different periods, inherit disproportionate debts from each other:
    /// give each of them its own store. From a debt, a [`SlidingWindow`](crate::SlidingWindow)
    /// reads the count of one slice only; the slices before it may have had any count. So a new key
    /// is refused until these slices have left the window: it can evict keys that have been idle
    /// for about a window.
    ///
    /// If several rules of different lengths charge a key, its usage is counted in the memory of
    /// the rule [that was asked last](crate::Limit::rule). After a longer rule's debt was evicted,
    /// that rule may not see the charges of a shorter one.
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
    /// A new key of calls in flight, or one whose state is not [packed into one
    /// word](Local#memory), cannot inherit a debt, and is refused. So are all new keys at a
    /// capacity of 0, and after the process has run for ten years.
    #[default]
    InheritDebts,
    /// Refuses new keys and evicts none. Over HTTP the status is 503. The decision is
    /// [undecided](crate::Verdict::Undecided), because the client did not exceed its quota.
    RefuseNewcomers,
    /// Admits new keys without counting them. The decision is
    /// [undecided](crate::Verdict::Undecided). The service stays up, and a flood of new keys is
    /// admitted too.
    AdmitNewcomers,
}

impl Default for LocalBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalBuilder {
    /// Creates a builder with a capacity of a million keys, [inherited
    /// debts](AtCapacity::InheritDebts), and the system's clock.
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
    /// The first packed state reserves address space for the table, 23.6 bytes per key; beyond a
    /// million keys, building the store does. Memory is taken as keys arrive. A key whose state is
    /// not packed takes [more](Local#memory). The capacity does not bound the calls that a
    /// [`SlidingLog`](crate::algorithm::SlidingLog) records for each key.
    #[must_use]
    pub fn capacity(self, keys: usize) -> Self {
        Self {
            capacity: keys,
            ..self
        }
    }

    /// Sets the [capacity](Self::capacity) to the number of keys that fit into `bytes` with states
    /// [packed into one word](Local#memory).
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
    /// If there is not enough memory for a table of this [capacity](Self::capacity), above a
    /// million keys.
    pub fn build<A: Algorithm>(self) -> Local<A, C>
    where
        C: Clock,
    {
        let clock = MonotoneClock::new(self.clock);
        let seed = Fingerprinter::random();
        Local {
            inner: Arc::new(LocalInner {
                table: LazyTable::new(self.capacity),
                map: Map::new(),
                occupancy: Occupancy::new(self.capacity),
                kinds: StateKinds::default(),
                made: clock.now(),
                clock,
                seed,
                lines: Arc::new(Lines::new(seed)),
                at_capacity: self.at_capacity,
                counters: LocalCounters::default(),
                displaced: Displaced::new(self.capacity),
            }),
        }
    }
}

struct LocalInner<S, C> {
    /// The packed states.
    table: LazyTable,
    /// All other states.
    map: Map<S>,
    occupancy: Occupancy,
    kinds: StateKinds,
    clock: MonotoneClock<C>,
    seed: Fingerprinter,
    at_capacity: AtCapacity,
    counters: LocalCounters,
    displaced: Displaced,
    lines: Arc<Lines>,
    made: Timestamp,
}

/// The number of shards of the [map](map::Map). Many small ones rather than few large ones: a shard
/// that grows moves its slots at once.
const SHARDS: usize = 128;

impl<S: Clone, C: Clock> LocalInner<S, C> {
    /// Corrects a charge, and calls the first call that waits for the key.
    #[inline]
    fn settle_and_call<A: Algorithm<State = S>>(&self, settlement: Settlement<'_, A>) {
        self.settle(&settlement);
        if self.lines.waiting() > 0 {
            let line = self.lines.line_of(settlement.policy, &settlement.key);
            self.lines.call_first_in(line);
        }
    }
}

impl<S, C> LocalInner<S, C> {
    /// Returns the location of a key's state of a kind.
    #[inline]
    fn locate(&self, policy: &Policy, key: &Key, kind: StateKind) -> Location {
        self.map.locate(self.seed.fingerprint(policy, key, kind))
    }

    /// Removes a key whose shard is locked. Returns `true` if it was there.
    fn remove(&self, shard: &mut Shard<'_, S>, location: Location) -> bool {
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

/// A table that is created when the first state is packed.
///
/// A layer begins with a store of its own, which a user may replace before it is ever called. The
/// table is the largest part of a store, and a C library that takes its memory from a heap clears
/// all of it at once. Logs and warm-ups, for example, never pack their states.
struct LazyTable {
    keys: usize,
    table: OnceLock<Table>,
}

/// The largest number of keys whose table waits for the first call. A larger table is created with
/// the store, so that a capacity for which there is no memory is reported at the start, and not by
/// a request.
const MOST_LAZY_KEYS: usize = 1_000_000;

impl LazyTable {
    /// Creates the table of a store for `keys` keys, or delays that to the first use.
    ///
    /// # Panics
    ///
    /// If the table is created here, and there is not enough memory for it.
    fn new(keys: usize) -> Self {
        let table = Self {
            keys,
            table: OnceLock::new(),
        };
        if keys > MOST_LAZY_KEYS {
            let _: &Table = &table;
        }
        table
    }

    /// Claims the slot of a key, as [`Table::claim`] does. A table that was never used has none,
    /// and is not created.
    fn claim(&self, key: u64) -> Option<Claim<'_>> {
        self.table.get()?.claim(key)
    }

    /// Returns the usage that a key inherits, as [`Table::inherited_usage`] does.
    fn inherited_usage(&self, key: u64) -> Option<PackedState> {
        self.table.get()?.inherited_usage(key)
    }

    /// Removes expired keys, as [`Table::sweep`] does.
    fn sweep(&self, now: StoreTime) -> usize {
        self.table.get().map_or(0, |table| table.sweep(now))
    }

    /// Vacates all slots of a table that was used, and removes all inherited usage. Returns how
    /// many keys there were.
    fn clear(&self) -> usize {
        self.table.get().map_or(0, Table::clear)
    }
}

impl Deref for LazyTable {
    type Target = Table;

    // Always inlined: every decision reads the table.
    #[inline(always)]
    fn deref(&self) -> &Table {
        self.table.get_or_init(|| Table::new(self.keys))
    }
}

/// Hashes keys under the seed of a store.
///
/// The hash is fast and well mixed, but it is not a message authentication code. Its seeds (this
/// one of 64 bits, and four words of the process) are secret, and no decision reveals a bit of a
/// hash. So a client can neither aim at the key of another client nor fill one shard.
#[derive(Clone, Copy)]
pub(crate) struct Fingerprinter {
    own: u64,
    process: &'static SharedSeed,
}

impl Fingerprinter {
    pub(crate) fn random() -> Self {
        // The standard library's keys come from the operating system.
        let own = RandomState::new().hash_one(0_u64);
        Self {
            own,
            process: SharedSeed::global_random(),
        }
    }

    /// Creates a fingerprinter that is equal in each process. For simulations and tests, where no
    /// client aims at the key of another.
    #[cfg(feature = "tokio")]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self {
            own: seed,
            process: SharedSeed::global_fixed(),
        }
    }

    #[inline]
    pub(crate) fn fingerprint(self, policy: &Policy, key: &Key, kind: StateKind) -> u64 {
        // A typed rule's kind is a constant.
        let seed = self.own ^ policy.digest() ^ kind.as_u64();
        let mut hasher = FoldHasher::with_seed(seed, self.process);
        key.hash(&mut hasher);
        // No fingerprint is 0, which marks a free slot.
        hasher.finish().max(1)
    }
}
