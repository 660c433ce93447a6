//! An estimate of the keys that return after others have taken their slots.

use std::sync::atomic::{AtomicU64, Ordering};

/// A sample of the keys that were displaced last.
///
/// One in a power of two keys belongs to the sample, chosen by its fingerprint. Each of them has one cell, which it shares with others, so the
/// estimate is too low if many keys are displaced before one returns.
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
        // The sample is chosen by other bits than the set of a key, and the cell by others than the sample.
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

    /// Returns the number of keys for which a new key stands that was displaced before, otherwise 0.
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
