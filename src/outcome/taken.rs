//! Whether a charge was taken out of an outcome.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// Taken once, by one of all clones.
///
/// What clones share is allocated with the first of them: most outcomes are never cloned.
#[derive(Default)]
pub(super) struct Taken(OnceLock<Arc<AtomicBool>>);

impl Taken {
    /// Takes it; `false` where it was taken before.
    pub(super) fn take(&self) -> bool {
        // Relaxed: all that counts is that one of them is the first.
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
