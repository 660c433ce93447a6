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

use super::slot::Slot;
use crate::clock::Timestamp;

/// Where a fingerprint belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) fingerprint: u64,
    pub(super) shard: usize,
}

pub(super) struct Map<S> {
    map: DashMap<u64, Slot<S>, BuildHasherDefault<Identity>>,
    queues: Box<[Mutex<VecDeque<u64>>]>,
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
    pub(super) fn new() -> Self {
        let map = DashMap::with_capacity_and_hasher_and_shard_amount(
            0,
            BuildHasherDefault::default(),
            SHARDS,
        );
        Self {
            map,
            queues: (0..SHARDS).map(|_| Mutex::default()).collect(),
            keys: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
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
            let slot = self
                .slots
                .get(fingerprint, |(stored, _)| *stored == fingerprint);
            if slot.is_some_and(|(_, slot)| !slot.get().is_forgettable(now)) {
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
