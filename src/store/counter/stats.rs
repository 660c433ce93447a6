//! What a store of counters did.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::unsettled::Unsettled;

/// What a [`Counters`](super::Counters) store did since it was made, all clones together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CounterStats {
    /// Additions, one for each ask that was not refused before.
    pub additions: u64,
    /// Readings: for calls that were likely to be refused, for looks, and for slices that began meanwhile.
    pub readings: u64,
    /// Additions that were refused, and taken back.
    pub taken_back: u64,
    /// Additions that were refused, and could not be taken back: they count until their slice counts no more.
    pub left_behind: u64,
    /// Settlements that failed, or whose answer was lost: those may have been made, and none is repeated.
    pub unsettled: u64,
}

/// The same while it goes on. Relaxed throughout: they are read for a report and order nothing.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) additions: AtomicU64,
    pub(super) readings: AtomicU64,
    pub(super) taken_back: AtomicU64,
    pub(super) left_behind: AtomicU64,
    pub(super) unsettled: Unsettled,
}

impl Counts {
    pub(super) fn read(&self) -> CounterStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CounterStats {
            additions: read(&self.additions),
            readings: read(&self.readings),
            taken_back: read(&self.taken_back),
            left_behind: read(&self.left_behind),
            unsettled: self.unsettled.count(),
        }
    }
}
