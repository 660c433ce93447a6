//! What was done.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::unsettled::Unsettled;

/// What an [`Optimistic`](super::Optimistic) store did since it was made, all clones together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CasStats {
    /// Loads that were sent.
    pub loads: u64,
    /// Swaps that were sent.
    pub swaps: u64,
    /// Swaps that lost their race.
    pub lost: u64,
    /// Calls, settlements and resets that were given up as [contended](crate::store::Error::is_contended).
    pub contended: u64,
    /// Values, and states in them, that could not be read and counted as no state, each time that they were read.
    pub healed: u64,
    /// Values, and states in them, that a newer version of the program wrote, each time that they were read.
    pub newer: u64,
    /// Settlements that failed, or whose answer was lost: those may have been made, and none is repeated.
    pub unsettled: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) loads: AtomicU64,
    pub(super) swaps: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) contended: AtomicU64,
    pub(super) healed: AtomicU64,
    pub(super) newer: AtomicU64,
    pub(super) unsettled: Unsettled,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        // A count that is read for a report orders nothing.
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> CasStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CasStats {
            loads: read(&self.loads),
            swaps: read(&self.swaps),
            lost: read(&self.lost),
            contended: read(&self.contended),
            healed: read(&self.healed),
            newer: read(&self.newer),
            unsettled: self.unsettled.count(),
        }
    }
}
