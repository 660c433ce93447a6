//! The number of settlements that failed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A counter of settlements that failed or may have failed. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsettled(Arc<AtomicU64>);

impl Unsettled {
    // Relaxed throughout: the count is for reports and orders nothing.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns a guard for a number of settlements that begin now.
    pub(super) fn settling(&self, settlements: usize) -> SettlementGuard {
        SettlementGuard {
            count: self.clone(),
            left: settlements as u64,
        }
    }
}

/// A guard of settlements in flight. On drop it counts those that were not marked as made, so no path can lose one uncounted.
#[derive(Debug)]
pub(super) struct SettlementGuard {
    count: Unsettled,
    left: u64,
}

impl SettlementGuard {
    /// Marks one settlement as made.
    #[cfg(feature = "tokio")]
    pub(super) fn made(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Marks all settlements as made, or as counted elsewhere.
    pub(super) fn all_made(mut self) {
        self.left = 0;
    }
}

impl Drop for SettlementGuard {
    fn drop(&mut self) {
        self.count.0.fetch_add(self.left, Ordering::Relaxed);
    }
}
