//! Counts of a local store: its statistics, its keys and their bound, the kinds of their states,
//! and the keys that return.
//!
//! The number of keys that return after their slot was taken is estimated from a sample of one key
//! in 32 or fewer, because to remember each of them would take the memory that is missing.

use std::{
    iter::successors,
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use crate::{algorithm::StateKind, stats::stats};

stats! {
    /// The counts of a [`Local`](super::Local) store since it was built.
    ///
    /// Only rare events are counted. The decision about a known key writes no counter that all
    /// threads share.
    ///
    /// ```
    /// use tollgate::store::LocalStats;
    ///
    /// /// Keys in the store, in percent of its capacity.
    /// fn occupied(stats: &LocalStats) -> usize {
    ///     100 * stats.keys / stats.capacity.max(1)
    /// }
    /// # assert_eq!(occupied(&LocalStats::default()), 0);
    /// ```
    pub struct LocalStats {
        counted {
            /// New keys that were inserted.
            inserted = "tollgate_local_inserted_total",
            /// Keys that were reclaimed because their states had expired.
            forgotten = "tollgate_local_forgotten_total",
            /// New keys that had been reclaimed before, an estimate.
            ///
            /// It is made by a sample, and is too low if keys stay away for long. If many return, a
            /// larger capacity makes their requests cheaper.
            returned = "tollgate_local_returned_total",
            /// Keys that were evicted at the capacity.
            ///
            /// They are evicted by a new key or on their own arrival. New keys inherit their debts.
            evicted = "tollgate_local_evicted_total",
            /// Requests of new keys that were refused because of inherited usage.
            held_back = "tollgate_local_held_back_total",
            /// New keys that were refused because the store was full.
            turned_away = "tollgate_local_turned_away_total",
            /// New keys that were admitted without being counted because the store was full.
            let_through = "tollgate_local_let_through_total",
            /// Cancelled calls whose slot in a queue is not remembered.
            ///
            /// The slot [stays taken](crate::LeakyBucket#calls-that-are-cancelled), because as many
            /// slots as a state records had been refunded before.
            unsettled = "tollgate_local_unsettled_total",
        }
        given {
            /// Keys in the store, once for each kind of rule that charged them.
            keys: usize = "tollgate_local_keys",
            /// Maximum number of keys.
            capacity: usize = "tollgate_local_capacity",
            /// Calls that wait until calls in flight end.
            ///
            /// See [`InFlight::wait_at_most`](crate::InFlight::wait_at_most).
            waiting: usize = "tollgate_local_waiting",
        }
    }
    /// Counters of rare events.
    // Padded as `Occupancy` is.
    #[repr(align(64))]
    struct LocalCounters;
}

/// Counts the keys of table and map together.
///
/// A key is counted before it is inserted and until after it is removed, so there are never more
/// than `capacity`.
// Padded: the counters that new keys write share no cache line with the fields that every call
// reads.
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

/// The kinds of states that a store has contained, each once. The list only grows.
///
/// A key's fingerprint depends on the kind, so [`reset`](super::Local::reset) needs all of them.
/// There is one per algorithm or composition in use, so there are few, and usually one.
#[derive(Default)]
pub(super) struct StateKinds(OnceLock<Box<StateKindNode>>);

struct StateKindNode {
    kind: StateKind,
    rest: StateKinds,
}

impl StateKinds {
    /// Adds a kind if it is not in the list.
    pub(super) fn note(&self, kind: StateKind) {
        let mut kinds = self;
        loop {
            let noted = kinds.0.get_or_init(|| {
                let rest = Self::default();
                Box::new(StateKindNode { kind, rest })
            });
            if noted.kind == kind {
                return;
            }
            kinds = &noted.rest;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = StateKind> {
        let noted = successors(self.0.get(), |noted| noted.rest.0.get());
        noted.map(|noted| noted.kind)
    }
}

/// A sample of the keys that were displaced last.
///
/// One in a power of two keys belongs to the sample, chosen by its fingerprint. Each of them has
/// one cell, which it shares with others, so the estimate is too low if many keys are displaced
/// before one returns.
pub(super) struct Displaced {
    cells: Box<[AtomicU64]>,
    /// The bits of a fingerprint that are zero in the sample.
    mask: u64,
}

/// One in this many keys belongs to the sample, or fewer in a large store.
const ONE_IN: usize = 32;

/// The largest number of cells.
const CELLS: usize = 4096;

// Relaxed throughout: the sample orders nothing.
impl Displaced {
    /// Creates an empty sample for a store of some capacity.
    pub(super) fn new(capacity: usize) -> Self {
        let one_in = (capacity / CELLS).next_power_of_two().max(ONE_IN);
        let cells = (capacity / ONE_IN).min(CELLS);
        Self {
            cells: (0..cells).map(|_| AtomicU64::new(0)).collect(),
            mask: one_in as u64 - 1,
        }
    }

    fn cell(&self, fingerprint: u64) -> Option<&AtomicU64> {
        // The sample is chosen by other bits than the set of a key, and the cell by others than the
        // sample.
        let hash = fingerprint.rotate_right(20);
        if hash & self.mask != 0 {
            return None;
        }
        let chosen = (hash >> 32) as usize % self.cells.len().max(1);
        self.cells.get(chosen)
    }

    /// Notes that another key has taken the slot of a key.
    pub(super) fn note(&self, fingerprint: u64) {
        if let Some(cell) = self.cell(fingerprint) {
            cell.store(fingerprint, Ordering::Relaxed);
        }
    }

    /// Returns the number of returning keys that a new key represents: 0 unless it is in the sample
    /// and was displaced before.
    pub(super) fn count_return(&self, fingerprint: u64) -> u64 {
        let returned = self.cell(fingerprint).is_some_and(|cell| {
            let noted = cell.load(Ordering::Relaxed) == fingerprint;
            if noted {
                cell.store(0, Ordering::Relaxed);
            }
            noted
        });
        if returned { self.mask + 1 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_noted_once_by_whichever_thread() {
        let kinds = StateKinds::default();
        assert_eq!(kinds.iter().count(), 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|n| kinds.note(StateKind::from_u64(n % 10))));
            }
        });
        let mut noted: Vec<_> = kinds.iter().map(StateKind::as_u64).collect();
        noted.sort_unstable();
        assert_eq!(noted, (0..10).collect::<Vec<_>>());
    }

    fn fingerprints(count: u64) -> impl Iterator<Item = u64> {
        (1..=count).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    #[test]
    fn the_estimate_is_near_the_number_of_keys_that_return() {
        for capacity in [10_000, 100_000, 1_000_000] {
            let displaced = Displaced::new(capacity);
            let (gone, all) = (capacity as u64 / 10, capacity as u64 / 5);
            fingerprints(gone).for_each(|key| displaced.note(key));
            let return_all = || -> u64 {
                fingerprints(all)
                    .map(|key| displaced.count_return(key))
                    .sum()
            };
            let returned = return_all();
            let near = gone / 2..gone * 3 / 2;
            assert!(near.contains(&returned), "{returned} of {gone}");
            assert_eq!(return_all(), 0, "each returns once");
        }
    }

    #[test]
    fn the_smallest_stores_have_no_sample() {
        let displaced = Displaced::new(ONE_IN - 1);
        fingerprints(100).for_each(|key| displaced.note(key));
        let returned = fingerprints(100).map(|key| displaced.count_return(key));
        assert_eq!(returned.sum::<u64>(), 0);
    }
}
