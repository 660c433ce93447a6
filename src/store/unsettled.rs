//! Settlements that failed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// How many settlements failed; clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsettled(Arc<AtomicU64>);

impl Unsettled {
    // Relaxed throughout: it is read for a report and orders nothing.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// So many settlements that are under way.
    pub(super) fn settling(&self, settlements: usize) -> Settling {
        Settling {
            count: self.clone(),
            left: settlements as u64,
        }
    }
}

/// Settlements that are under way: those that have not been made when it is dropped are counted, whatever kept them from it.
#[derive(Debug)]
pub(super) struct Settling {
    count: Unsettled,
    left: u64,
}

impl Settling {
    /// One of them has been made.
    #[cfg(feature = "tokio")]
    pub(super) fn made(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// All of them have been made, or are counted elsewhere.
    pub(super) fn all_made(mut self) {
        self.left = 0;
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        self.count.0.fetch_add(self.left, Ordering::Relaxed);
    }
}
