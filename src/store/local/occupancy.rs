//! How many keys there are, and may be.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the keys of table and map together. A key is counted before it is placed
/// and until after it is gone, so there are never more than `capacity`.
// Padded: what newcomers write shares no cache line with what every call reads.
#[repr(align(64))]
pub(super) struct Occupancy {
    keys: AtomicUsize,
    capacity: usize,
    /// How often in a row somebody wished for more and found none.
    failed_searches: AtomicUsize,
}

// Relaxed throughout: the count is a bound by itself, and orders nothing.
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

    /// Counts one key more, if it may come.
    pub(super) fn take(&self) -> bool {
        let more = |keys| (keys < self.capacity).then_some(keys + 1);
        self.keys
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// So many keys are gone.
    pub(super) fn give(&self, keys: usize) {
        if keys > 0 {
            self.keys.fetch_sub(keys, Ordering::Relaxed);
        }
    }

    /// How often in a row it was wished for, in vain.
    pub(super) fn failed_searches(&self) -> usize {
        self.failed_searches.load(Ordering::Relaxed)
    }

    pub(super) fn set_failed_searches(&self, failed_searches: usize) {
        self.failed_searches
            .store(failed_searches, Ordering::Relaxed);
    }
}
