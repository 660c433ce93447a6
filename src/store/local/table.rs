//! Slots by fingerprint, in shards with a lock each, and the queue in which they are looked at for
//! forgetting.
//!
//! Invariants, of each shard under its lock:
//!
//! - a fingerprint stands in the queue exactly once if it is in the map, and not at all otherwise;
//! - `len` counts the slots of all shards, never more than `capacity`: a slot is counted before it
//!   is inserted and until after it is removed.
//!
//! Locks: a shard's queue is locked only under the shard's write lock, and several shards only in
//! ascending order.

use std::{
    collections::VecDeque,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use dashmap::{DashMap, RwLockReadGuard, RwLockWriteGuard, SharedValue};
use hashbrown::raw::RawTable;

use crate::{algorithm::Algorithm, clock::Timestamp};

/// What is kept of one key.
pub(super) struct Slot<S> {
    pub(super) state: Option<S>,
    /// By the rule that wrote last.
    forgettable_at: Coarse,
}

impl<S> Default for Slot<S> {
    fn default() -> Self {
        Self {
            state: None,
            forgettable_at: Coarse(0),
        }
    }
}

/// An instant in units of 2²⁷ ns (134 ms) since the table was made, rounded up: forgetting may come
/// late, never early. The last one, 18 years on, is never.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Coarse(u32);

impl Coarse {
    const SHIFT: u32 = 27;
    const NEVER: Self = Self(u32::MAX);

    #[inline]
    fn until(instant: Timestamp, base: Timestamp) -> Self {
        let since = instant.as_nanos().saturating_sub(base.as_nanos());
        let units = (since >> Self::SHIFT) + 1;
        Self(u32::try_from(units).unwrap_or(u32::MAX))
    }

    fn is_past(self, now: Timestamp, base: Timestamp) -> bool {
        let since = now.as_nanos().saturating_sub(base.as_nanos()) >> Self::SHIFT;
        self < Self::NEVER && u64::from(self.0) <= since
    }
}

/// Where a fingerprint belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    fingerprint: u64,
    pub(super) shard: usize,
}

pub(super) struct Table<S> {
    map: DashMap<u64, Slot<S>, BuildHasherDefault<Identity>>,
    queues: Box<[Mutex<VecDeque<u64>>]>,
    len: AtomicUsize,
    capacity: usize,
    /// When the table was made.
    base: Timestamp,
    /// The shard at which the next search for room begins.
    next: AtomicUsize,
}

/// Many small shards rather than few large ones: a shard that grows moves its slots at once.
const SHARDS: usize = 128;
/// Old slots that an insertion looks at. Two per new one, so that forgetting outruns inserting.
const LOOKS: usize = 2;
/// Shards, and slots of each, that a newcomer looks at when the table is full.
const SEARCHED_SHARDS: usize = 4;
const SEARCHED_SLOTS: usize = 4;

impl<S> Table<S> {
    pub(super) fn new(capacity: usize, base: Timestamp) -> Self {
        let map = DashMap::with_capacity_and_hasher_and_shard_amount(
            0,
            BuildHasherDefault::default(),
            SHARDS,
        );
        Self {
            map,
            queues: (0..SHARDS).map(|_| Mutex::default()).collect(),
            len: AtomicUsize::new(0),
            capacity,
            base,
            next: AtomicUsize::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Notes until when a slot matters, after a write by `rule`.
    #[inline]
    pub(super) fn date<A: Algorithm<State = S>>(&self, slot: &mut Slot<S>, rule: &A) {
        slot.forgettable_at = match &slot.state {
            Some(state) => Coarse::until(rule.forgettable_at(state), self.base),
            None => Coarse(0),
        };
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub(super) fn place(&self, fingerprint: u64) -> Place {
        let shard = self.map.determine_shard(fingerprint as usize);
        Place { fingerprint, shard }
    }
}

type Map<S> = RawTable<(u64, SharedValue<Slot<S>>)>;

impl<S> Table<S> {
    /// Locks the shard of a place for writing.
    #[inline]
    pub(super) fn lock(&self, place: Place) -> Shard<'_, S> {
        self.lock_shard(place.shard)
    }

    #[inline]
    pub(super) fn lock_shard(&self, shard: usize) -> Shard<'_, S> {
        Shard {
            map: self.map.shards()[shard].write(),
            table: self,
            shard,
        }
    }

    /// Locks the shard of a place for reading.
    pub(super) fn read(&self, place: Place) -> ReadShard<'_, S> {
        ReadShard(self.map.shards()[place.shard].read())
    }

    pub(super) fn remove(&self, place: Place) {
        let fingerprint = place.fingerprint;
        let mut shard = self.lock(place);
        if shard.take(fingerprint) {
            shard.queue().retain(|queued| *queued != fingerprint);
        }
    }

    pub(super) fn clear(&self) {
        for shard in 0..SHARDS {
            let mut shard = self.lock_shard(shard);
            let removed = shard.map.len();
            shard.map.clear();
            shard.queue().clear();
            self.len.fetch_sub(removed, Ordering::Relaxed);
        }
    }

    /// Looks for slots to forget in the next few shards; tells how many it forgot.
    ///
    /// The work is bounded: an attacker who fills the table makes each newcomer look at
    /// sixteen slots, not at all of them.
    pub(super) fn make_room(&self, now: Timestamp) -> u64 {
        let first = self.next.fetch_add(SEARCHED_SHARDS, Ordering::Relaxed);
        (first..first.wrapping_add(SEARCHED_SHARDS))
            .map(|shard| self.lock_shard(shard % SHARDS).forget(SEARCHED_SLOTS, now))
            .sum()
    }
}

/// A shard that is locked for writing.
pub(super) struct Shard<'a, S> {
    map: RwLockWriteGuard<'a, Map<S>>,
    table: &'a Table<S>,
    shard: usize,
}

/// A shard that is locked for reading.
pub(super) struct ReadShard<'a, S>(RwLockReadGuard<'a, Map<S>>);

impl<S> ReadShard<'_, S> {
    pub(super) fn get(&self, place: Place) -> Option<&Slot<S>> {
        find(&self.0, place.fingerprint)
    }
}

fn find<S>(map: &Map<S>, fingerprint: u64) -> Option<&Slot<S>> {
    map.get(fingerprint, |(stored, _)| *stored == fingerprint)
        .map(|(_, slot)| slot.get())
}

impl<S> Shard<'_, S> {
    #[inline]
    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Slot<S>> {
        let fingerprint = place.fingerprint;
        self.map
            .get_mut(fingerprint, |(stored, _)| *stored == fingerprint)
            .map(|(_, slot)| slot.get_mut())
    }

    /// Inserts a slot that is not there, and tells how many others were forgotten on the way.
    ///
    /// # Errors
    ///
    /// Gives the slot back when the table is full.
    pub(super) fn insert(
        &mut self,
        place: Place,
        slot: Slot<S>,
        now: Timestamp,
    ) -> Result<u64, Slot<S>> {
        let forgotten = self.forget(LOOKS, now);
        let capacity = self.table.capacity;
        let counted = self
            .table
            .len
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |len| {
                (len < capacity).then_some(len + 1)
            });
        if counted.is_err() {
            return Err(slot);
        }
        let fingerprint = place.fingerprint;
        self.map.insert(
            fingerprint,
            (fingerprint, SharedValue::new(slot)),
            |(stored, _)| *stored,
        );
        self.queue().push_back(fingerprint);
        Ok(forgotten)
    }

    /// Looks at the `looks` slots that were looked at longest ago, and forgets those that say nothing.
    fn forget(&mut self, looks: usize, now: Timestamp) -> u64 {
        let mut forgotten = 0;
        for _ in 0..looks {
            let Some(fingerprint) = self.queue().pop_front() else {
                break;
            };
            let base = self.table.base;
            let matters = find(&self.map, fingerprint)
                .is_some_and(|slot| !slot.forgettable_at.is_past(now, base));
            if matters {
                self.queue().push_back(fingerprint);
            } else {
                forgotten += u64::from(self.take(fingerprint));
            }
        }
        forgotten
    }

    /// Takes a slot out of the map, but not out of the queue.
    fn take(&mut self, fingerprint: u64) -> bool {
        let taken = self
            .map
            .remove_entry(fingerprint, |(stored, _)| *stored == fingerprint);
        if taken.is_some() {
            self.table.len.fetch_sub(1, Ordering::Relaxed);
        }
        taken.is_some()
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<u64>> {
        // A panic while the lock was held leaves at worst a fingerprint that is not looked at.
        self.table.queues[self.shard]
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
