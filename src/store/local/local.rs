//! The store in memory and its implementation of [`Store`].

use std::{convert::Infallible, fmt, sync::Arc};

use super::{
    AtCapacity, LocalBuilder, Stats,
    displaced::Displaced,
    fingerprint::Fingerprinter,
    kinds::Kinds,
    lazy_table::LazyTable,
    map::{Location, Map, Shard},
    occupancy::Occupancy,
    stats::Counters,
};
use crate::{
    algorithm::{Algorithm, StateKind},
    key::Key,
    policy::Policy,
    store::{
        Ask, Backend, Check, Decisions, Never, Settlement, Store, StoreId, engine::MonotoneClock,
    },
    time::{Clock, SystemClock, Timestamp},
};

/// A store in the memory of this process. It is bounded and exact, and decides without waiting.
///
/// Clones share their keys. By default, the store holds up to a million keys.
///
/// # Memory
///
/// At its first call, the store reserves address space for a table of 24 bytes per key of its capacity, and as much again when it gets the
/// first state in two words. A store that is never called takes about 50 kB. The table holds packed states of one or two words of 64 bits. It takes memory as its keys grow in number, so
/// few keys lie close together in a large store, too.
/// These rules pack their states, also within an [`AnyRule`](crate::AnyRule):
///
/// | rule | packs its states if |
/// |---|---|
/// | `TokenBucket` | it starts full and fills within two years, and an interval that is not a whole number of thirds of a nanosecond has at least 100 of them |
/// | `LeakyBucket` | its interval is at least a nanosecond, and it drains within two years |
/// | two `TokenBucket`s as a pair or as `… & …`, a `Cascade` of two, `ThreeColor` | both buckets do; in two words |
/// | `FixedWindow` | its windows are those of the calendar without an offset, last at most two years, and their limit is below three per nanosecond |
/// | `SlidingWindow` | its limit and its slices [fit](crate::SlidingWindow#cost), such as up to 262,143 a minute in one slice, or 127 in four |
///
/// Any other state takes memory when its key is inserted. Later keys reuse the memory of expired ones. These states live in maps that double
/// when they are full, so the bytes per key vary within a range:
///
/// | rule | bytes per key, with 24 of the table |
/// |---|---|
/// | any that packs its states into one word | 23 to 24 |
/// | any that packs its states into two words | 46 to 47 |
/// | other `FixedWindow` | 77 to 137 |
/// | other `LeakyBucket` and `ThreeColor`, `WarmUp`, `WarmUpSpaced` | 87 to 152 |
/// | other `TokenBucket` | 92 to 172 |
/// | other `SlidingWindow`; one of n slices takes 8·(n + 1) more | 92 to 172 |
/// | other `Cascade` of two | 102 to 192 |
/// | `Cascade` of three | 162 to 252 |
/// | `SlidingLog` with up to four calls | 157 to 237 |
/// | `AnyRule` of one other rule, without the boxed part: slices, the third level of a cascade, calls | 102 to 192 |
/// | `AnyRule` of two other rules, `… & …`; each rule more takes 48 | 197 to 287 |
///
/// The capacity bounds the number of keys, not the number of calls that a [`SlidingLog`](crate::algorithm::SlidingLog) records for each. A log
/// takes 16 to 32 bytes for each call admitted in the last window, and at most 64 while the traffic of its key declines. So a log can take
/// up to 32 times its limit in bytes, per key. For high limits of many keys, use a sliding window.
///
/// An expired state is one that decides like no state at all. A packed one stays until its slot is needed: a new key takes a free slot, or at
/// the capacity the slot that expired first among sixteen. Any other expired state stays for a minute, or until the
/// capacity is reached. There is no pause and no background task, and no information is lost. A key that several rules have charged
/// expires when none of these rules sees a debt in it: a longer rule's debt is kept even if a shorter rule was asked last. A settlement
/// that gives units back to such a key under one rule does not make it expire sooner.
///
/// At the [capacity](LocalBuilder::capacity), a new key [inherits debts](AtCapacity::InheritDebts), is
/// [refused](AtCapacity::RefuseNewcomers), or is [admitted](AtCapacity::AdmitNewcomers), by configuration. The first two never admit
/// a key above its limit. [`stats`](Self::stats) counts these cases. [The benchmarks](crate::benchmarks) show which clients a flood of keys
/// slows, and by how much.
///
/// # Rules of several kinds on one key
///
/// A key has one state per [kind](crate::algorithm::Algorithm::state_kind) of rule that charges it. Each state counts as one key of the
/// capacity. So an [`AnyRule`](crate::AnyRule) chosen per request may be of any algorithm: a client gets at most the limit of
/// each rule, in any order of the rules. [`reset`](Self::reset) removes the states of all kinds.
///
/// # Several asks at once
///
/// They are decided under the locks of all their keys. A request with several asks takes about as long as its asks one by one. A
/// state is copied only if several asks name its key, because the first may be admitted and the second refused.
///
/// # Time
///
/// The time of a store never decreases. If its clock steps back, the store's time stands still until the clock has caught up.
///
/// # Keys
///
/// The store keeps a fingerprint of each key: 64 bits of a hash, under a random seed of this process. Among a million live keys, the
/// probability that a new key collides with any of them, and shares its budget, is 1 in 1.8·10¹³. Because of the seed, a client cannot
/// choose the key that it collides with.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Ask, LocalBuilder};
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
pub struct Local<A: Algorithm, C = SystemClock> {
    pub(super) inner: Arc<Inner<A::State, C>>,
}

pub(super) struct Inner<S, C> {
    /// The packed states.
    pub(super) table: LazyTable,
    /// All other states.
    pub(super) map: Map<S>,
    pub(super) occupancy: Occupancy,
    pub(super) kinds: Kinds,
    pub(super) clock: MonotoneClock<C>,
    pub(super) seed: Fingerprinter,
    pub(super) at_capacity: AtCapacity,
    pub(super) counters: Counters,
    pub(super) displaced: Displaced,
    pub(super) made: Timestamp,
}

impl<A: Algorithm> Local<A> {
    /// Creates a store of up to a million keys. At this capacity, new keys [inherit debts](AtCapacity::InheritDebts).
    pub fn new() -> Self {
        LocalBuilder::new().build()
    }
}

impl<A: Algorithm> Default for Local<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Algorithm, C> Clone for Local<A, C> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<A: Algorithm, C> fmt::Debug for Local<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<A: Algorithm, C> Local<A, C> {
    /// Returns the number of keys, including expired ones not yet reclaimed. A key counts once for each kind of rule that charged it.
    pub fn len(&self) -> usize {
        self.inner.occupancy.keys()
    }

    /// Returns `true` if the store contains no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counts since the store was built, of all clones together.
    pub fn stats(&self) -> Stats {
        let Inner {
            occupancy,
            counters,
            ..
        } = &*self.inner;
        counters.read(occupancy.keys(), occupancy.capacity())
    }

    /// Removes the states of a key, of all kinds. Its next request is that of a new key, and may inherit a debt.
    pub fn reset(&self, policy: &Policy, key: &Key) {
        let inner = &*self.inner;
        for kind in inner.kinds.iter() {
            let location = inner.locate(policy, key, kind);
            inner.remove(&mut inner.map.lock(location), location);
        }
    }

    /// Removes all keys and all inherited debts.
    pub fn clear(&self) {
        let inner = &*self.inner;
        inner
            .occupancy
            .give(inner.map.clear() + inner.table.clear());
    }
}

impl<S, C> Inner<S, C> {
    /// Returns the location of a key's state of a kind.
    #[inline]
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

impl<A: Algorithm, C> Backend for Local<A, C> {
    type Error = Infallible;

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.inner))
    }
}

impl<A: Algorithm, C: Clock> Store<A> for Local<A, C> {
    type Answer = Never<Result<Decisions, Infallible>>;
    type Done = Never<Result<(), Infallible>>;

    /// Decides several asks under the locks of all their keys, so no other call sees a part of them spent.
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
            self.inner.settle(settlement);
        }
        Check::Ready(Ok(()))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.reset(policy, key);
        Check::Ready(Ok(()))
    }
}
