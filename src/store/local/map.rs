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
//! map contains it or it is noted as removed, and not at all otherwise. None is in the map and
//! noted.
//!
//! A key that is removed before it expires may stand anywhere in the queue. To search for it would
//! take work that grows with the store, at each reset and at each refusal of several new keys. So
//! it is noted, and leaves the queue when it comes to the front, or with all noted ones once these
//! are more than half of the queue. That is constant work for each removal, on average.
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
    collections::{HashSet, VecDeque},
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
    queue: Mutex<Queue>,
    /// `true` while the slots are reserved for the thread that holds the lock.
    is_reserved: AtomicBool,
}

/// The fingerprints of a shard, in the order in which their slots are checked for expiry.
#[derive(Default)]
struct Queue {
    order: VecDeque<u64>,
    /// Those in `order` whose slots were removed. Boxed, because a store begins with a queue in
    /// each shard, and most never need it.
    removed: Option<Box<Removed>>,
}

#[derive(Default)]
struct Removed(HashSet<u64, BuildHasherDefault<IdentityHasher>>);

impl Queue {
    /// Adds a fingerprint whose slot is inserted. It keeps the place that it still has.
    fn push(&mut self, fingerprint: u64) {
        if self.forget_removed(fingerprint) {
            return;
        }
        if self.order.len() == self.order.capacity() {
            // By a quarter: a queue that doubles takes up to eight bytes more for each key.
            let more = self.order.len() / 4 + 4;
            self.order.reserve_exact(more);
        }
        self.order.push_back(fingerprint);
    }

    /// Takes the first fingerprint. Returns `None` if its slot was removed.
    fn pop(&mut self) -> Option<u64> {
        let first = self.order.pop_front()?;
        (!self.forget_removed(first)).then_some(first)
    }

    /// Notes that the slot of a fingerprint was removed.
    fn note_removed(&mut self, fingerprint: u64) {
        let removed = &mut self.removed.get_or_insert_default().0;
        removed.insert(fingerprint);
        if removed.len() > self.order.len() / 2 {
            self.order.retain(|queued| !removed.contains(queued));
            self.removed = None;
        }
    }

    /// Returns `true` if the slot of a fingerprint was noted as removed, and is no more.
    fn forget_removed(&mut self, fingerprint: u64) -> bool {
        let removed = self.removed.as_mut();
        removed.is_some_and(|removed| removed.0.remove(&fingerprint))
    }
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
    queue: MutexGuard<'a, Queue>,
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
        if self.queue.order.is_empty() {
            return None;
        }
        self.map.map.get_mut(&location.fingerprint)
    }

    /// Inserts a slot that is not there.
    pub(super) fn insert(&mut self, location: Location, slot: MapSlot<S>) {
        self.queue.push(location.fingerprint);
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
            self.queue.note_removed(location.fingerprint);
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
        for _ in 0..checks.min(self.queue.order.len()) {
            let Some(fingerprint) = self.queue.pop() else {
                continue;
            };
            if self.remove_if(fingerprint, |slot| slot.is_expired(now)) {
                removed += 1;
                displaced.note(fingerprint);
            } else {
                self.queue.order.push_back(fingerprint);
            }
        }
        removed
    }

    fn clear(&mut self) -> usize {
        let mut removed = 0;
        while let Some(fingerprint) = self.queue.order.pop_front() {
            removed += usize::from(self.remove_if(fingerprint, |_| true));
        }
        self.queue.removed = None;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::random::Random;

    const NOW: Timestamp = Timestamp::from_nanos(1);

    /// Any order of insertions, removals and checks, in a shard of a few keys and of many. The
    /// fingerprints that a removal touches are counted.
    #[test]
    fn a_removal_takes_constant_work_and_every_fingerprint_is_queued_once() {
        // Of a billion keys, none comes back.
        let sizes = [1, 2, 3, 10, 100, 1_000, 1 << 30];
        for (seed, keys) in (1..).zip(sizes) {
            let (mut random, displaced) = (Random::new(seed), Displaced::new(1_000));
            let map = Map::<u64>::new();
            let (mut shard, mut known) = (map.lock_shard(0), BTreeSet::new());
            let (mut removals, mut touched, mut most) = (0, 0, 0);
            for step in 0..1_600 {
                let fingerprint = 1 + random.up_to(keys - 1);
                // Mostly insertions, then mostly removals, and so on.
                let insertions = if step / 400 % 2 == 0 { 6 } else { 4 };
                let removes = random.up_to(9) > insertions;
                let next = known.range(fingerprint..).next().copied();
                let fingerprint = next.filter(|_| removes).unwrap_or(fingerprint);
                let location = Location {
                    fingerprint,
                    shard: 0,
                };
                if removes {
                    let queued = shard.queue.order.len();
                    assert_eq!(shard.remove(location), known.remove(&fingerprint));
                    removals += 1;
                    touched += 1;
                    if shard.queue.order.len() < queued {
                        touched += queued;
                    }
                } else if known.insert(fingerprint) {
                    let until = [NOW, Timestamp::MAX][usize::from(random.up_to(3) > 0)];
                    shard.insert(location, MapSlot::until(None, until));
                } else if random.up_to(3) == 0 {
                    let expired = shard.expire_some(NOW, &displaced);
                    let before = known.len();
                    known.retain(|key| map.map.contains_key(key));
                    assert_eq!(before - known.len(), expired);
                }
                most = most.max(known.len());
                let order = &shard.queue.order;
                let removed = shard.queue.removed.iter();
                let removed: Vec<_> = removed.flat_map(|removed| &removed.0).collect();
                let queued: BTreeSet<_> = order.iter().copied().collect();
                assert_eq!(order.len(), known.len() + removed.len());
                let known_or_removed = known.iter().chain(removed).copied();
                assert_eq!(queued, known_or_removed.collect());
                assert!(order.len() <= 2 * most);
            }
            assert!(touched <= 4 * removals, "{touched} by {removals} removals");
            assert_eq!(shard.clear(), known.len());
            assert!(shard.queue.order.is_empty() && shard.queue.removed.is_none());
        }
    }
}
