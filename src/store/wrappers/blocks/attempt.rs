//! An attempt to make a block.

use std::sync::Arc;

use super::counters::Counters;

/// An attempt to make a block. It failed unless it is found to be made or unneeded before it is dropped.
#[derive(Debug)]
pub(super) struct Attempt(Option<Arc<Counters>>);

impl Attempt {
    pub(super) fn new(counters: &Arc<Counters>) -> Self {
        Self(Some(Arc::clone(counters)))
    }

    /// Counts the block as made.
    pub(super) fn succeed(&mut self) {
        if let Some(counters) = self.0.take() {
            counters.count_made();
        }
    }

    /// Counts nothing: the key is blocked already.
    pub(super) fn skip(&mut self) {
        self.0 = None;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(counters) = &self.0 {
            counters.count_failed();
        }
    }
}
