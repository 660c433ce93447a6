//! An estimate of the number of distinct keys, in bounded memory.

use std::{
    hash::BuildHasher,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use foldhash::quality::RandomState;

use crate::{key::Key, locks::lock};

/// Number of hashes that are kept.
const KEPT: usize = 1024;

/// The value of a free slot. It is greater than every hash.
const FREE: u64 = u64::MAX;

/// Estimates how many distinct keys were added, in 8 KiB.
///
/// The number is exact up to 1,023 keys. Above, it is an estimate with a standard error of 3.2 %:
/// two of three estimates are within 3.2 % of the number, and 99.7 % of them within 10 %. It stores
/// hashes, not keys.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::observe::{DistinctKeys, Event, Observer};
///
/// /// Counts the clients that were refused at least once.
/// #[derive(Default)]
/// struct Refused(Arc<DistinctKeys>);
///
/// impl Observer for Refused {
///     fn refused(&self, event: &Event<'_>) {
///         self.0.add(event.key());
///     }
/// }
///
/// let keys = DistinctKeys::new();
/// for request in 0..10_000_u64 {
///     keys.add(&(request % 500).into());
/// }
/// assert_eq!(keys.estimate(), 500);
/// ```
///
/// # Method
///
/// The k-th minimum value (Bar-Yossef and others, "Counting distinct elements in a data stream",
/// 2002), with k = 1,024. Each key is hashed to 64 bits under a random seed, and the 1,024 least
/// hashes are kept. If the greatest of them is the fraction u of all hashes, the estimate is 1,023
/// / u. A client does not know the seed, so it cannot choose keys that distort the estimate.
///
/// # Cost
///
/// [`add`](Self::add) allocates nothing. It takes a lock only to insert a hash, about 1,024 · (1 +
/// ln(n / 1,024)) times for n distinct keys: 8,100 times for a million. An insertion moves up to 8
/// KiB. All other calls hash the key, compare the hash with one number, and search 1,024 hashes
/// only if it is below that.
pub struct DistinctKeys {
    /// The least hashes in ascending order, without duplicates, then free slots. Written under the
    /// lock.
    // Relaxed throughout: a reader that meets a half-done insertion can only miss a hash, and then
    // looks again under the lock.
    least: Box<[AtomicU64]>,
    hasher: RandomState,
    lock: Mutex<()>,
}

impl DistinctKeys {
    /// Creates an estimate without keys, under a seed of its own.
    pub fn new() -> Self {
        Self {
            least: (0..KEPT).map(|_| AtomicU64::new(FREE)).collect(),
            hasher: RandomState::default(),
            lock: Mutex::new(()),
        }
    }

    /// Adds a key. Adding it again changes nothing.
    #[inline]
    pub fn add(&self, key: &Key) {
        let hash = self.hasher.hash_one(key).min(FREE - 1);
        if hash < self.at(KEPT - 1) && self.at(self.position(hash)) != hash {
            self.insert(hash);
        }
    }

    /// Returns the number of distinct keys that were added since the last [`clear`](Self::clear).
    ///
    /// It is exact up to 1,023, and never falls while keys are added. Takes the lock for less than
    /// a microsecond.
    pub fn estimate(&self) -> u64 {
        let _guard = self.locked();
        match self.at(KEPT - 1) {
            FREE => self.position(FREE) as u64,
            greatest => {
                let estimate = ((KEPT as u128 - 1) << u64::BITS) / (u128::from(greatest) + 1);
                u64::try_from(estimate).unwrap_or(u64::MAX)
            }
        }
    }

    /// Forgets all keys.
    ///
    /// A key that another thread adds at the same moment may be forgotten, too.
    pub fn clear(&self) {
        let _guard = self.locked();
        for slot in &self.least {
            slot.store(FREE, Ordering::Relaxed);
        }
    }

    #[cold]
    fn insert(&self, hash: u64) {
        let _guard = self.locked();
        let position = self.position(hash);
        if position == KEPT || self.at(position) == hash {
            return;
        }
        // The greatest hash is lost if no slot is free.
        let end = self.position(FREE).min(KEPT - 1);
        for index in (position..end).rev() {
            self.least[index + 1].store(self.at(index), Ordering::Relaxed);
        }
        self.least[position].store(hash, Ordering::Relaxed);
    }

    /// Returns the index of the first slot that is not below a hash. Without the lock it may be any
    /// index up to the length.
    fn position(&self, hash: u64) -> usize {
        self.least
            .partition_point(|slot| slot.load(Ordering::Relaxed) < hash)
    }

    /// Returns the hash at an index, or that of a free slot beyond the end.
    fn at(&self, index: usize) -> u64 {
        let slot = self.least.get(index);
        slot.map_or(FREE, |slot| slot.load(Ordering::Relaxed))
    }

    fn locked(&self) -> MutexGuard<'_, ()> {
        lock(&self.lock)
    }
}

impl Default for DistinctKeys {
    fn default() -> Self {
        Self::new()
    }
}

impl_debug!(DistinctKeys, |it| estimate = it.estimate());
