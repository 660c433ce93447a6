//! A key that is about to be blocked.

use std::sync::Arc;

use super::block_after::BlockAfter;
use crate::{key::Key, policy::Policy, time::Clock};

/// A key that was refused often enough. Only one call at a time has it.
pub(super) struct Offender<C> {
    after: Arc<BlockAfter<C>>,
    pub(super) policy: Policy,
    pub(super) key: Key,
}

impl<C> Offender<C> {
    /// Creates the key of the call that blocks it.
    pub(super) fn new(after: Arc<BlockAfter<C>>, policy: Policy, key: Key) -> Self {
        Self { after, policy, key }
    }
}

impl<C: Clock> Offender<C> {
    /// Forgets the refusals, because the key is blocked.
    pub(super) fn forget_refusals(&self) {
        self.after.forget(&self.policy, &self.key);
    }
}

impl<C> Drop for Offender<C> {
    fn drop(&mut self) {
        self.after.release(&self.policy, &self.key);
    }
}
