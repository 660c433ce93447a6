//! Counts of a local store.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of a [`Local`](super::Local) store since it was built.
///
/// Only rare events are counted. The decision about a known key writes no counter that all threads share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of keys in the store. A key counts once for each kind of rule that charged it.
    pub keys: usize,
    /// The maximum number of keys.
    pub capacity: usize,
    /// New keys that were inserted.
    pub inserted: u64,
    /// Keys that were reclaimed because their states had expired.
    pub forgotten: u64,
    /// New keys that had been reclaimed before: an estimate by a sample, which is too low if keys stay away for long. If many return, a
    /// larger capacity makes their requests cheaper.
    pub returned: u64,
    /// Keys that were evicted at the capacity, by a new key or on their own arrival. New keys inherit their debts.
    pub evicted: u64,
    /// Requests of new keys that were refused because of an inherited debt.
    pub held_back: u64,
    /// New keys that were refused because the store was full.
    pub turned_away: u64,
    /// New keys that were admitted without being counted because the store was full.
    pub let_through: u64,
    /// Cancelled calls whose place in a [queue](crate::LeakyBucket#calls-that-are-cancelled) stays taken, because as many places as are remembered
    /// had been given back before.
    pub unsettled: u64,
}

// Padded as `Occupancy` is.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Counters {
    pub(super) inserted: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) held_back: AtomicU64,
    pub(super) forgotten: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) let_through: AtomicU64,
    pub(super) unsettled: AtomicU64,
}

impl Counters {
    // Relaxed throughout: counts are read for a report and order nothing.
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        if count > 0 {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self, keys: usize, capacity: usize) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            keys,
            capacity,
            inserted: read(&self.inserted),
            forgotten: read(&self.forgotten),
            returned: read(&self.returned),
            evicted: read(&self.evicted),
            held_back: read(&self.held_back),
            turned_away: read(&self.turned_away),
            let_through: read(&self.let_through),
            unsettled: read(&self.unsettled),
        }
    }
}
