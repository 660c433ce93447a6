//! Counters of blocks, shared by clones.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of [`Blocks`](super::Blocks).
// Relaxed throughout: the counts are for reports and order nothing.
#[derive(Debug, Default)]
pub(super) struct Counters {
    made: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    uncounted: AtomicU64,
}

impl Counters {
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Relaxed)
    }

    pub(super) fn count_made(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_uncounted(&self) {
        self.uncounted.fetch_add(1, Ordering::Relaxed);
    }
}
