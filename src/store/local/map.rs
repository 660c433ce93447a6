//! States of any size, by fingerprint: shards with a lock each, and the queue in which slots are
//! looked at for forgetting.
//!
//! Invariant, of each shard under its lock: a fingerprint stands in the queue exactly once if it is in
//! the shard, and not at all otherwise.
//!
//! Locks: a shard's queue is locked only under the shard's write lock, and several shards only in
//! ascending order. A shard's lock is also that of all its keys' coming and going in the
//! [table](super::table).

use std::{
    collections::VecDeque,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use dashmap::{DashMap, RwLockWriteGuard, SharedValue};
use hashbrown::raw::RawTable;

use crate::{algorithm::Algorithm, clock::Timestamp};

/// What is kept of one key.
pub(super) struct Slot<S> {
    pub(super) state: Option<S>,
    /// By the rule that wrote last.
    forgettable_at: Coarse,
}

impl<S> Slot<S> {
    /// A slot that is not dated yet.
    pub(super) fn of(state: S) -> Self {
        Self {
            state: Some(state),
            forgettable_at: Coarse::NEVER,
        }
    }
}

/// An instant since the table was made, rounded up: forgetting may come late, never early.
///
/// For the first nine years in units of 2²⁷ ns (134 ms), later ones in units of 2³³ ns (9 s) with the
/// highest bit set. The last one is never.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Coarse(u32);

impl Coarse {
    const FINE: u32 = 27;
    const LATE: u32 = 33;
    const IS_LATE: u32 = 1 << 31;
    const NEVER: Self = Self(u32::MAX);

    #[inline]
    fn until(instant: Timestamp, base: Timestamp) -> Self {
        let since = instant.as_nanos().saturating_sub(base.as_nanos());
        let fine = (since >> Self::FINE) + 1;
        if fine < u64::from(Self::IS_LATE) {
            return Self(fine as u32);
        }
        // 31 bits, and one more for the last one.
        let late = (since >> Self::LATE) as u32;
        Self(late.saturating_add(1).saturating_add(Self::IS_LATE))
    }

    fn is_past(self, now: Timestamp, base: Timestamp) -> bool {
        let until = if self.0 < Self::IS_LATE {
            u64::from(self.0) << Self::FINE
        } else {
            u64::from(self.0 - Self::IS_LATE) << Self::LATE
        };
        let since = now.as_nanos().saturating_sub(base.as_nanos());
        self != Self::NEVER && until <= since
    }
}

/// Where a fingerprint belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) fingerprint: u64,
    pub(super) shard: usize,
}

pub(super) struct Map<S> {
    map: DashMap<u64, Slot<S>, BuildHasherDefault<Identity>>,
    queues: Box<[Mutex<VecDeque<u64>>]>,
    /// When the store was made.
    base: Timestamp,
    /// How many there are.
    keys: AtomicUsize,
    /// The shard at which the next search for room begins.
    next: AtomicUsize,
}

/// Many small shards rather than few large ones: a shard that grows moves its slots at once.
const SHARDS: usize = 128;
/// Old slots that an insertion looks at. Two per new one, so that forgetting outruns inserting.
const LOOKS: usize = 2;
/// Slots that a newcomer looks at in another shard when the store is full.
const SEARCHED_SLOTS: usize = 4;

impl<S> Map<S> {
    pub(super) fn new(base: Timestamp) -> Self {
        let map = DashMap::with_capacity_and_hasher_and_shard_amount(
            0,
            BuildHasherDefault::default(),
            SHARDS,
        );
        Self {
            map,
            queues: (0..SHARDS).map(|_| Mutex::default()).collect(),
            base,
            keys: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// Notes until when a slot matters, after a write by `rule`.
    #[inline]
    pub(super) fn date<A: Algorithm<State = S>>(&self, slot: &mut Slot<S>, rule: &A) {
        slot.forgettable_at = match &slot.state {
            Some(state) => Coarse::until(rule.forgettable_at(state), self.base),
            None => Coarse(0),
        };
    }

    #[inline]
    pub(super) fn place(&self, fingerprint: u64) -> Place {
        let shard = self.map.determine_shard(fingerprint as usize);
        Place { fingerprint, shard }
    }
}

type Slots<S> = RawTable<(u64, SharedValue<Slot<S>>)>;

impl<S> Map<S> {
    /// Locks the shard of a place for writing.
    #[inline]
    pub(super) fn lock(&self, place: Place) -> Shard<'_, S> {
        self.lock_shard(place.shard)
    }

    #[inline]
    pub(super) fn lock_shard(&self, shard: usize) -> Shard<'_, S> {
        Shard {
            slots: self.map.shards()[shard].write(),
            map: self,
            shard,
        }
    }

    /// Forgets everything; tells how many keys there were.
    pub(super) fn clear(&self) -> usize {
        (0..SHARDS)
            .map(|shard| {
                let mut shard = self.lock_shard(shard);
                let removed = shard.slots.len();
                shard.slots.clear();
                shard.queue().clear();
                self.keys.fetch_sub(removed, Ordering::Relaxed);
                removed
            })
            .sum()
    }

    /// Looks for slots to forget in the next shard, unless somebody has locked it; tells how many it forgot.
    ///
    /// The work is bounded: an attacker who fills the store makes each newcomer look at
    /// four slots, not at all of them. Safe under the lock of another shard, for it waits for none.
    pub(super) fn make_room(&self, now: Timestamp) -> usize {
        // Relaxed: a key that is missed now is found by the next newcomer.
        if self.keys.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        self.map.shards()[shard].try_write().map_or(0, |slots| {
            let mut shard = Shard {
                slots,
                map: self,
                shard,
            };
            shard.forget(SEARCHED_SLOTS, now)
        })
    }
}

/// A shard that is locked.
pub(super) struct Shard<'a, S> {
    slots: RwLockWriteGuard<'a, Slots<S>>,
    map: &'a Map<S>,
    shard: usize,
}

impl<S> Shard<'_, S> {
    #[inline]
    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Slot<S>> {
        if self.slots.is_empty() {
            return None;
        }
        let fingerprint = place.fingerprint;
        self.slots
            .get_mut(fingerprint, |(stored, _)| *stored == fingerprint)
            .map(|(_, slot)| slot.get_mut())
    }

    /// Inserts a slot that is not there.
    pub(super) fn insert(&mut self, place: Place, slot: Slot<S>) {
        let fingerprint = place.fingerprint;
        let entry = (fingerprint, SharedValue::new(slot));
        self.slots.insert(fingerprint, entry, |(stored, _)| *stored);
        self.queue().push_back(fingerprint);
        self.map.keys.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a slot out.
    pub(super) fn remove(&mut self, place: Place) -> Option<Slot<S>> {
        let slot = self.take(place.fingerprint)?;
        self.queue().retain(|queued| *queued != place.fingerprint);
        Some(slot)
    }

    /// Forgets what says nothing any more among the few slots that were looked at longest ago;
    /// tells how many.
    pub(super) fn forget_some(&mut self, now: Timestamp) -> usize {
        self.forget(LOOKS, now)
    }

    fn forget(&mut self, looks: usize, now: Timestamp) -> usize {
        let mut forgotten = 0;
        for _ in 0..looks.min(self.slots.len()) {
            let Some(fingerprint) = self.queue().pop_front() else {
                break;
            };
            let base = self.map.base;
            let slot = self
                .slots
                .get(fingerprint, |(stored, _)| *stored == fingerprint);
            if slot.is_some_and(|(_, slot)| !slot.get().forgettable_at.is_past(now, base)) {
                self.queue().push_back(fingerprint);
            } else {
                forgotten += usize::from(self.take(fingerprint).is_some());
            }
        }
        forgotten
    }

    /// Takes a slot out of the shard, but not out of the queue.
    fn take(&mut self, fingerprint: u64) -> Option<Slot<S>> {
        let (_, slot) = self
            .slots
            .remove_entry(fingerprint, |(stored, _)| *stored == fingerprint)?;
        self.map.keys.fetch_sub(1, Ordering::Relaxed);
        Some(slot.into_inner())
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<u64>> {
        // A panic while the lock was held leaves at worst a fingerprint that is not looked at.
        self.map.queues[self.shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes on what is a hash already.
#[derive(Clone, Copy, Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are hashed as `u64`")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn coarse_instants_are_late_by_at_most_a_unit(
            base in 0..u64::MAX >> 1, shift in 0..64_u32, since: u64, later: u64,
        ) {
            let at = |nanos: u64| Timestamp::from_nanos(base.saturating_add(nanos));
            let since = since >> shift;
            let coarse = Coarse::until(at(since), at(0));
            let now = since.saturating_sub(1).min(later);
            prop_assert!(!coarse.is_past(at(now), at(0)) || since == 0);
            let late = if since < 1 << 58 { 1 << 27 } else { 1 << 33 };
            let past = since.saturating_add(late);
            // The last units before the end of time are never.
            prop_assert!(coarse.is_past(at(past), at(0)) || past >= (u64::MAX >> 1) - (1 << 34));
        }
    }
}
