//! A flag that a charge was taken out of an outcome.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// A flag that clones share, and that one of them sets.
///
/// It is allocated with the first clone: most outcomes are never cloned.
#[derive(Default)]
pub(crate) struct Taken(OnceLock<Arc<AtomicBool>>);

impl Taken {
    /// Sets the flag; returns `false` if it was set before.
    pub(crate) fn take(&self) -> bool {
        // Relaxed: it only matters that one of them is the first.
        !self.flag().swap(true, Ordering::Relaxed)
    }

    /// Returns `true` if the flag is set.
    pub(crate) fn is_taken(&self) -> bool {
        let flag = self.0.get();
        flag.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Returns `true` if there is a clone.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.get().is_some_and(|flag| Arc::strong_count(flag) > 1)
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
