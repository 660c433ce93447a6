//! What a local store did.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a [`Local`](super::Local) store did since it was built.
///
/// Only what is rare is counted: an admission or a refusal of a known key costs no counter that
/// all threads share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that are remembered, each once for each kind of rule that charged it.
    pub keys: usize,
    /// The most keys that may be.
    pub capacity: usize,
    /// Keys that were new.
    pub inserted: u64,
    /// Keys that were forgotten because their state said nothing any more.
    pub forgotten: u64,
    /// Keys that were pushed out at the capacity, by newcomers or when they came themselves, whose debts others inherit since.
    pub evicted: u64,
    /// Requests of newcomers that were refused for a debt that they inherited.
    pub held_back: u64,
    /// Newcomers that were turned away at the capacity.
    pub turned_away: u64,
    /// Newcomers that passed uncounted at the capacity.
    pub let_through: u64,
}

// Padded as `Occupancy` is.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Counters {
    pub(super) inserted: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) held_back: AtomicU64,
    pub(super) forgotten: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) let_through: AtomicU64,
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
            evicted: read(&self.evicted),
            held_back: read(&self.held_back),
            turned_away: read(&self.turned_away),
            let_through: read(&self.let_through),
        }
    }
}
