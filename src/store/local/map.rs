//! States of any size, by fingerprint, in shards.
//!
//! Each shard has two locks:
//!
//! - The [`DashMap`]'s lock guards the slots.
//! - Our own lock guards the queue in which slots are checked for expiry, and the insertion and
//!   removal of all keys of the shard, here and in the [table](super::table).
//!
//! A single ask of a known key takes the first alone. Everything else takes our own, and then the
//! first for each access to a slot.
//!
//! Invariant, whenever our own lock is free: the queue contains a fingerprint exactly once if the
//! map contains it, and not at all otherwise.
//!
//! Several asks access several slots, and each of them more than once. So they
//! [reserve](Map::reserve_shard) their shards by a flag, which is set before the first access to a
//! slot and reset after the last. A single ask reads the flag under the `DashMap`'s lock. It
//! precedes the first access, or finds the flag set and waits for our own lock, or follows the last
//! access. `Relaxed` is enough, because the `DashMap`'s lock orders the flag as well: after an
//! access the flag is seen as it was set before that access, and before an access it is not seen as
//! it is reset after that.
//!
//! Lock order: our own locks in ascending order of the shards, then one lock of the `DashMap` at a
//! time. Nothing is waited for under the latter.
//!
//! The time is read under whichever lock guards the state. Two locks for each decision would take
//! up to 20 % longer than one, and up to twice as long when two threads contend for one key. A new
//! key of the map looks twice, which is up to 5 % of its insertion. A key whose two sets of the
//! table are full below the cap is kept here too: of the first thousand keys mostly none or one,
//! and rarely up to six; of a million keys one in a thousand, most of them while the table was
//! about to double.

use std::{
    collections::VecDeque,
    hash::{BuildHasherDefault, Hasher},
};

use super::{DashMap, RefMut, SHARDS, state::MapSlot, stats::Displaced};
use crate::{
    sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError, TryLockError},
    time::Timestamp,
};

/// A fingerprint, and the shard that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct Location {
    pub(super) fingerprint: u64,
    pub(super) shard: usize,
}

/// States by fingerprint, in shards.
pub(super) struct Map<S> {
    map: DashMap<u64, MapSlot<S>, BuildHasherDefault<IdentityHasher>>,
    locks: Box<[ShardLock]>,
    /// `true` once a state was inserted.
    is_used: AtomicBool,
    /// The shard at which the next search for room begins.
    next: AtomicUsize,
}

/// Our own lock of a shard, and the data under it.
// Padded: threads that lock neighbouring shards share no cache line.
#[derive(Default)]
#[repr(align(64))]
struct ShardLock {
    /// The fingerprints of the shard, in the order in which their slots are checked for expiry.
    queue: Mutex<VecDeque<u64>>,
    /// `true` while the slots are reserved for the thread that holds the lock.
    is_reserved: AtomicBool,
}

/// The number of old slots that an insertion checks for expiry. It is two, so that removal outpaces
/// insertion.
const CHECKED_PER_INSERTION: usize = 2;
/// The number of slots that a new key checks in another shard when the store is full.
const CHECKED_IN_SEARCH: usize = 4;

impl<S> Map<S> {
    pub(super) fn new() -> Self {
        let map = DashMap::with_hasher_and_shard_amount(BuildHasherDefault::default(), SHARDS);
        Self {
            map,
            locks: (0..SHARDS).map(|_| ShardLock::default()).collect(),
            is_used: AtomicBool::new(false),
            next: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(super) fn locate(&self, fingerprint: u64) -> Location {
        // The bits by which the `DashMap` chooses its own shard, below the seven that tag the
        // entries of its tables.
        let shard = (fingerprint as usize) << 7 >> (usize::BITS - SHARDS.ilog2());
        Location { fingerprint, shard }
    }

    /// Accesses a slot without our own lock. Returns `None` if the map does not contain it, or its
    /// shard is reserved.
    #[inline]
    pub(super) fn with_known<T>(
        &self,
        location: Location,
        access: impl FnOnce(&mut MapSlot<S>) -> T,
    ) -> Option<T> {
        let mut slot = self.map.get_mut(&location.fingerprint)?;
        let is_reserved = &self.locks[location.shard].is_reserved;
        (!is_reserved.load(Ordering::Relaxed)).then(|| access(&mut slot))
    }

    /// Locks the shard of a location.
    #[inline]
    pub(super) fn lock(&self, location: Location) -> Shard<'_, S> {
        self.lock_shard(location.shard)
    }

    #[inline]
    pub(super) fn lock_shard(&self, shard: usize) -> Shard<'_, S> {
        let queue = self.locks[shard].queue.lock();
        Shard {
            reservation: None,
            // The queue is changed by nothing that can panic.
            queue: queue.unwrap_or_else(PoisonError::into_inner),
            map: self,
        }
    }

    /// Locks a shard, and reserves its slots until it is unlocked.
    pub(super) fn reserve_shard(&self, shard: usize) -> Shard<'_, S> {
        let mut locked = self.lock_shard(shard);
        locked.reservation = Some(Reservation::new(&self.locks[shard].is_reserved));
        locked
    }

    /// Locks a shard unless another thread has locked it.
    fn try_lock_shard(&self, shard: usize) -> Option<Shard<'_, S>> {
        let queue = match self.locks[shard].queue.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Shard {
            reservation: None,
            queue,
            map: self,
        })
    }

    /// Removes all keys and returns how many there were.
    pub(super) fn clear(&self) -> usize {
        let clear = |shard| self.lock_shard(shard).clear();
        (0..SHARDS).map(clear).sum()
    }

    /// Removes expired slots from the next shard, unless another thread has locked it. Returns how
    /// many it removed.
    ///
    /// The work is bounded: an attacker who fills the store makes each new key check four slots,
    /// not all of them. The caller may hold the lock of another shard: this waits for none.
    pub(super) fn make_room(&self, now: Timestamp, displaced: &Displaced) -> usize {
        // Relaxed: a key that is missed now is found by the next new key.
        if !self.is_used.load(Ordering::Relaxed) {
            return 0;
        }
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        self.try_lock_shard(shard).map_or(0, |mut shard| {
            shard.expire(CHECKED_IN_SEARCH, now, displaced)
        })
    }
}

/// A locked shard.
pub(super) struct Shard<'a, S> {
    // The first field, because it is dropped before the lock is released.
    reservation: Option<Reservation<'a>>,
    queue: MutexGuard<'a, VecDeque<u64>>,
    map: &'a Map<S>,
}

/// A flag that is set until this is dropped.
struct Reservation<'a>(&'a AtomicBool);

impl<'a> Reservation<'a> {
    fn new(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::Relaxed);
        Self(flag)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl<S> Shard<'_, S> {
    #[inline]
    pub(super) fn get_mut(&mut self, location: Location) -> Option<RefMut<'_, u64, MapSlot<S>>> {
        if self.queue.is_empty() {
            return None;
        }
        self.map.map.get_mut(&location.fingerprint)
    }

    /// Inserts a slot that is not there.
    pub(super) fn insert(&mut self, location: Location, slot: MapSlot<S>) {
        if self.queue.len() == self.queue.capacity() {
            // By a quarter: a queue that doubles takes up to eight bytes more for each key.
            let more = self.queue.len() / 4 + 4;
            self.queue.reserve_exact(more);
        }
        self.queue.push_back(location.fingerprint);
        self.map.map.insert(location.fingerprint, slot);
        // A flag that is written once, not a count: threads that insert would contend for it.
        if !self.map.is_used.load(Ordering::Relaxed) {
            self.map.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Removes a slot. Returns `true` if it was there.
    pub(super) fn remove(&mut self, location: Location) -> bool {
        let removed = self.remove_if(location.fingerprint, |_| true);
        if removed {
            self.queue.retain(|queued| *queued != location.fingerprint);
        }
        removed
    }

    /// Checks the few slots whose last check is longest ago, and removes the expired ones. Returns
    /// how many it removed.
    pub(super) fn expire_some(&mut self, now: Timestamp, displaced: &Displaced) -> usize {
        self.expire(CHECKED_PER_INSERTION, now, displaced)
    }

    fn expire(&mut self, checks: usize, now: Timestamp, displaced: &Displaced) -> usize {
        let mut removed = 0;
        for _ in 0..checks.min(self.queue.len()) {
            let Some(fingerprint) = self.queue.pop_front() else {
                break;
            };
            if self.remove_if(fingerprint, |slot| slot.is_expired(now)) {
                removed += 1;
                displaced.note(fingerprint);
            } else {
                self.queue.push_back(fingerprint);
            }
        }
        removed
    }

    fn clear(&mut self) -> usize {
        let mut removed = 0;
        while let Some(fingerprint) = self.queue.pop_front() {
            removed += usize::from(self.remove_if(fingerprint, |_| true));
        }
        removed
    }

    /// Removes a slot from the map, but not from the queue.
    fn remove_if(&self, fingerprint: u64, condition: impl Fn(&MapSlot<S>) -> bool) -> bool {
        let condition = |_: &u64, slot: &MapSlot<S>| condition(slot);
        self.map.map.remove_if(&fingerprint, condition).is_some()
    }
}

/// A hasher that returns its input, because a fingerprint is a hash already.
#[derive(Clone, Copy, Default)]
pub(crate) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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
