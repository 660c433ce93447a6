//! The number of keys, and its bound.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the keys of table and map together.
///
/// A key is counted before it is inserted and until after it is removed, so there are never more than `capacity`.
// Padded: the counters that new keys write share no cache line with the fields that every call reads.
#[repr(align(64))]
pub(super) struct Occupancy {
    keys: AtomicUsize,
    capacity: usize,
    /// The number of searches for expired keys in a row that found none.
    failed_searches: AtomicUsize,
}

// Relaxed throughout: the count is a bound by itself, and orders no other access.
impl Occupancy {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            keys: AtomicUsize::new(0),
            capacity,
            failed_searches: AtomicUsize::new(0),
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys() >= self.capacity
    }

    /// Counts one more key. Returns `false` at the capacity.
    pub(super) fn take(&self) -> bool {
        let more = |keys| (keys < self.capacity).then_some(keys + 1);
        self.keys
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Counts removed keys.
    pub(super) fn give(&self, keys: usize) {
        if keys > 0 {
            self.keys.fetch_sub(keys, Ordering::Relaxed);
        }
    }

    /// Returns the number of searches in a row that found no expired key.
    pub(super) fn failed_searches(&self) -> usize {
        self.failed_searches.load(Ordering::Relaxed)
    }

    pub(super) fn set_failed_searches(&self, failed_searches: usize) {
        self.failed_searches
            .store(failed_searches, Ordering::Relaxed);
    }
}
