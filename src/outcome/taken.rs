//! A flag that a charge was taken out of an outcome.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// A flag that clones share, and that one of them sets.
///
/// It is allocated with the first clone: most outcomes are never cloned.
#[derive(Default)]
pub(super) struct Taken(OnceLock<Arc<AtomicBool>>);

impl Taken {
    /// Sets the flag; returns `false` if it was set before.
    pub(super) fn take(&self) -> bool {
        // Relaxed: it only matters that one of them is the first.
        !self.flag().swap(true, Ordering::Relaxed)
    }

    fn flag(&self) -> &Arc<AtomicBool> {
        self.0.get_or_init(Arc::default)
    }
}

impl Clone for Taken {
    fn clone(&self) -> Self {
        Self(OnceLock::from(Arc::clone(self.flag())))
    }
}
