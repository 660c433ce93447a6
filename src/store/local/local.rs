//! The store in memory: its page, its parts, and its implementation of [`Store`].

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

use super::{
    AtCapacity, LocalBuilder, Stats,
    fingerprint::Fingerprinter,
    kinds::Kinds,
    map::{Location, Map, Shard},
    occupancy::Occupancy,
    stats::Counters,
    table::Table,
};
use crate::{
    algorithm::{Algorithm, StateKind},
    key::Key,
    policy::Policy,
    store::{Ask, Backend, Check, Decisions, Never, Settlement, Store},
    time::{Clock, SystemClock, Timestamp},
};

/// Remembers keys in this process: bounded, exact, and decided within the call.
///
/// Clones share their keys. The default holds a million keys.
///
/// # Memory
///
/// A table of 21 bytes for each key of the capacity is reserved when the store is built. It holds packed states, of 64 bits each.
/// These rules pack their states, also as an [`AnyRule`](crate::AnyRule):
///
/// | rule | packs its states if |
/// |---|---|
/// | `TokenBucket` | it starts full and fills within two years, and an interval that is not a whole number of thirds of a nanosecond has at least 100 of them |
/// | `LeakyBucket` | its interval is at least a nanosecond, and it drains within two years |
/// | `FixedWindow` | its windows are those of the calendar without an offset, last at most two years, and their limit is below three per nanosecond |
///
/// All other states take memory when their keys are inserted, and later keys reuse that of forgotten ones. Their tables double
/// when they are full, so the bytes of a key vary within a range:
///
/// | rule | bytes per key, with 21 of the table |
/// |---|---|
/// | any that packs its states | 21 to 22 |
/// | other `FixedWindow` | 75 to 135 |
/// | other `LeakyBucket`, `WarmUp`, `WarmUpSpaced`, `ThreeColor` | 85 to 150 |
/// | other `TokenBucket` | 90 to 170 |
/// | `SlidingWindow`; one of n slices takes 8·(n + 1) more | 90 to 170 |
/// | `Cascade` of two | 100 to 190 |
/// | `Cascade` of three | 160 to 250 |
/// | `SlidingLog` with up to four calls | 155 to 235 |
/// | `AnyRule` of one other rule, without the boxed part: slices, the third level of a cascade, calls | 100 to 190 |
/// | `AnyRule` of two rules, `… & …`; each rule more takes 48 | 195 to 285 |
///
/// The capacity bounds the keys, not the calls that a [`SlidingLog`](crate::algorithm::SlidingLog) remembers of each: 16 to 32 bytes for
/// each call that passed in the last window, 64 at most while a key calms down. So a log takes up to 32 times its limit for each
/// key; for high limits of many keys take a sliding window.
///
/// A state that says no more than no state at all gives its place to the next newcomer that belongs there. There is no pause,
/// no background task, and nothing is lost. A key that several rules have charged is remembered until none of them
/// sees a debt: a longer rule's debt is not forgotten because a shorter one was asked last. What is given back to such a key
/// under one rule makes it no sooner forgotten.
///
/// At the [capacity](LocalBuilder::capacity) a newcomer [inherits debts](AtCapacity::InheritDebts), is [turned
/// away](AtCapacity::RefuseNewcomers), or [admitted](AtCapacity::AdmitNewcomers), by choice; nobody is ever admitted
/// above its limit by the first two. [`stats`](Self::stats) tells how often it came to that, and
/// [the benchmarks](crate::benchmarks) whom a flood slows, and by how much.
///
/// # Rules of several kinds on one key
///
/// A key has a state of each [kind](crate::algorithm::Algorithm::state_kind) of rule that charges it, and each takes a place of the
/// capacity. So an [`AnyRule`](crate::AnyRule) chosen per request may be of any algorithm: a client gets at most the limit of
/// each, in whatever order the rules come. [`reset`](Self::reset) forgets the states of all kinds.
///
/// # Several asks at once
///
/// They are decided where their states lie, under the locks of all their keys: a request costs about what its asks cost one by one. A
/// state is copied only where several of the asks name one key, for the first may pass and the second be refused.
///
/// # Time
///
/// The time of a store never falls: where its clock steps back, it stands still until the clock has caught up.
///
/// # Keys
///
/// What is kept of a key is a fingerprint of 64 bits under a seed that this process drew. Among
/// a million live keys, the odds that a new one meets any of them, and shares its budget, are 1 in
/// 1.8·10¹³; the seed keeps a client from choosing whom it meets.
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
    /// Packed states.
    pub(super) table: Table,
    /// All others.
    pub(super) map: Map<S>,
    pub(super) occupancy: Occupancy,
    pub(super) kinds: Kinds,
    pub(super) clock: C,
    pub(super) seed: Fingerprinter,
    pub(super) at_capacity: AtCapacity,
    pub(super) counters: Counters,
    pub(super) made: Timestamp,
    /// The latest time that a clock which may step back has told, in nanoseconds.
    pub(super) latest: AtomicU64,
}

impl<A: Algorithm> Local<A> {
    /// A store with a million keys at most; at that cap newcomers [inherit debts](AtCapacity::InheritDebts).
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
    /// The number of keys that are remembered, each counted once for each kind of rule that charged it; some of them may say
    /// nothing any more.
    pub fn len(&self) -> usize {
        self.inner.occupancy.keys()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the store did since it was built, all clones together.
    pub fn stats(&self) -> Stats {
        let Inner {
            occupancy,
            counters,
            ..
        } = &*self.inner;
        counters.read(occupancy.keys(), occupancy.capacity())
    }

    /// Forgets a key, whatever kinds of rules have charged it: it is like one that was never seen, and inherits what
    /// newcomers inherit.
    pub fn reset(&self, policy: &Policy, key: &Key) {
        let inner = &*self.inner;
        for kind in inner.kinds.iter() {
            let location = inner.locate(policy, key, kind);
            inner.remove(&mut inner.map.lock(location), location);
        }
    }

    /// Forgets all keys, and all debts.
    pub fn clear(&self) {
        let inner = &*self.inner;
        inner
            .occupancy
            .give(inner.map.clear() + inner.table.clear());
    }
}

impl<S, C> Inner<S, C> {
    /// The place of a key's state of a kind.
    #[inline]
    pub(super) fn locate(&self, policy: &Policy, key: &Key, kind: StateKind) -> Location {
        self.map.locate(self.seed.fingerprint(policy, key, kind))
    }

    /// Forgets a key whose shard is locked; tells whether it was there.
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
}

impl<A: Algorithm, C: Clock> Store<A> for Local<A, C> {
    type Answer = Never<Result<Decisions, Infallible>>;
    type Done = Never<Result<(), Infallible>>;

    /// Several asks are decided under the locks of all their keys: nobody sees them half spent.
    #[inline]
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
