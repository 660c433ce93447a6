//! The store in memory.

mod builder;
mod seed;
mod several;
mod stats;
mod table;

use std::{convert::Infallible, fmt, sync::Arc};

use super::{Ask, Backend, Check, Decisions, Never, Settlement, Store};
use crate::{
    algorithm::{Algorithm, Step},
    clock::{Clock, SystemClock, Timestamp},
    decision::Decision,
    key::Key,
    outcome::Policy,
};

pub use self::{
    builder::{AtCapacity, LocalBuilder},
    stats::Stats,
};

use self::{
    seed::Seed,
    stats::Counters,
    table::{Place, Shard, Slot, Table},
};

/// Remembers keys in this process: bounded, exact, and decided within the call.
///
/// Clones share their keys. The default holds a million keys.
///
/// # Memory
///
/// A state that says no more than no state at all is forgotten while the store works: each new key
/// looks at a few of the oldest ones of its neighbourhood. There is no pause, no background task,
/// and nothing is lost. At the [capacity](LocalBuilder::capacity) a new key is [turned
/// away](AtCapacity::RefuseNewcomers), or [admitted](AtCapacity::AdmitNewcomers), by choice;
/// the keys that are known stay limited either way, and [`stats`](Self::stats) tells how often it
/// came to that.
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
    inner: Arc<Inner<A::State, C>>,
}

struct Inner<S, C> {
    table: Table<S>,
    clock: C,
    seed: Seed,
    at_capacity: AtCapacity,
    counters: Counters,
}

impl<A: Algorithm> Local<A> {
    /// A store with a million keys at most, which turns newcomers away at that cap.
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
    /// The number of keys that are remembered.
    pub fn len(&self) -> usize {
        self.inner.table.len()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the store did since it was built, all clones together.
    pub fn stats(&self) -> Stats {
        let inner = &*self.inner;
        inner
            .counters
            .read(inner.table.len(), inner.table.capacity())
    }

    /// Forgets a key: it is like one that was never seen.
    pub fn reset(&self, policy: &Policy, key: &Key) {
        self.inner.table.remove(self.inner.place(policy, key));
    }

    /// Forgets all keys.
    pub fn clear(&self) {
        self.inner.table.clear();
    }
}

impl<S, C> Inner<S, C> {
    /// Where a key is kept.
    #[inline]
    fn place(&self, policy: &Policy, key: &Key) -> Place {
        self.table.place(self.seed.fingerprint(policy, key))
    }

    /// Inserts a newcomer, and counts it and what was forgotten on the way.
    ///
    /// # Errors
    ///
    /// Gives the slot back when the table is full.
    fn insert(
        &self,
        shard: &mut Shard<'_, S>,
        place: Place,
        slot: Slot<S>,
        now: Timestamp,
    ) -> Result<(), Slot<S>> {
        shard
            .insert(place, slot, now)
            .map(|forgotten| self.counters.grew(forgotten))
    }

    /// Looks for room elsewhere than in a newcomer's own shard; no shard may be locked.
    fn make_room(&self, now: Timestamp) {
        let forgotten = self.table.make_room(now);
        Counters::add(&self.counters.forgotten, forgotten);
    }

    /// The answer to a newcomer that finds the store full.
    fn full(&self, now: Timestamp) -> Decision {
        let admitted = match self.at_capacity {
            AtCapacity::RefuseNewcomers => {
                Counters::add(&self.counters.turned_away, 1);
                false
            }
            AtCapacity::AdmitNewcomers => {
                Counters::add(&self.counters.let_through, 1);
                true
            }
        };
        Decision::undecided(admitted, now, None)
    }

    /// Runs one step on a slot that is known, and counts what is rare.
    #[inline]
    fn step<A: Algorithm<State = S>>(
        &self,
        slot: &mut Slot<S>,
        ask: &Ask<'_, A>,
        now: Timestamp,
    ) -> Decision {
        let step = ask.rule().step(&mut slot.state, now, ask.cost());
        if matches!(step, Step::Restarted(_)) {
            Counters::add(&self.counters.restarted, 1);
        }
        if !matches!(step, Step::Kept(_)) {
            self.table.date(slot, ask.rule());
        }
        step.decision()
    }
}

impl<A: Algorithm, C: Clock> Local<A, C> {
    /// Spends the cost of one ask if its rule allows it: what [`acquire`](Store::acquire) does, without a list.
    #[inline]
    pub fn decide(&self, ask: &Ask<'_, A>) -> Decision {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let place = inner.place(ask.policy(), ask.key());
        let mut shard = inner.table.lock(place);
        match shard.get_mut(place) {
            Some(slot) => inner.step(slot, ask, now),
            None => {
                let mut slot = Slot::default();
                let decision = inner.step(&mut slot, ask, now);
                if slot.state.is_none() {
                    return decision;
                }
                match inner.insert(&mut shard, place, slot, now) {
                    Ok(()) => decision,
                    Err(slot) => {
                        drop(shard);
                        self.insert_late(place, slot, ask, now, decision)
                    }
                }
            }
        }
    }

    /// Inserts a newcomer that found the store full, once room was looked for elsewhere.
    #[cold]
    fn insert_late(
        &self,
        place: Place,
        slot: Slot<A::State>,
        ask: &Ask<'_, A>,
        now: Timestamp,
        decision: Decision,
    ) -> Decision {
        let inner = &*self.inner;
        inner.make_room(now);
        let mut shard = inner.table.lock(place);
        if let Some(known) = shard.get_mut(place) {
            // Another thread brought the key meanwhile: what was decided alone does not count.
            return inner.step(known, ask, now);
        }
        match inner.insert(&mut shard, place, slot, now) {
            Ok(()) => decision,
            Err(_) => inner.full(now),
        }
    }

    /// How a key stands under a rule. Changes nothing, and needs no room.
    pub fn look(&self, policy: &Policy, rule: &A, key: &Key) -> Decision {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let place = inner.place(policy, key);
        let shard = inner.table.read(place);
        let slot = shard.get(place);
        rule.look(slot.and_then(|slot| slot.state.as_ref()), now)
    }

    fn settle_one(&self, settlement: &Settlement<'_, A>, now: Timestamp) {
        let inner = &*self.inner;
        let Settlement {
            policy,
            rule,
            key,
            charge,
            actual,
        } = settlement;
        let place = inner.place(policy, key);
        let mut shard = inner.table.lock(place);
        if let Some(slot) = shard.get_mut(place) {
            rule.settle(&mut slot.state, charge, now, *actual);
            inner.table.date(slot, *rule);
            return;
        }
        let mut slot = Slot::default();
        rule.settle(&mut slot.state, charge, now, *actual);
        if slot.state.is_some() {
            inner.table.date(&mut slot, *rule);
            if inner.insert(&mut shard, place, slot, now).is_err() {
                Counters::add(&inner.counters.turned_away, 1);
            }
        }
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
            asks => self.decide_all(asks),
        }))
    }

    fn look(&self, asks: &[Ask<'_, A>]) -> Check<Self::Answer> {
        let look = |ask: &Ask<'_, A>| self.look(ask.policy(), ask.rule(), ask.key());
        Check::Ready(Ok(asks.iter().map(look).collect()))
    }

    fn settle(&self, settlements: &[Settlement<'_, A>]) -> Check<Self::Done> {
        let now = self.inner.clock.now();
        for settlement in settlements {
            self.settle_one(settlement, now);
        }
        Check::Ready(Ok(()))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.reset(policy, key);
        Check::Ready(Ok(()))
    }
}
