//! A server that does one thing after the other.

use std::sync::Mutex;

use crate::timeline::{Instant, lock};

/// Work waits until all work before it is done.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    idle_from: Mutex<Instant>,
}

impl Queue {
    /// Adds work that takes so many nanoseconds. Returns when it is done.
    pub(crate) fn add(&self, now: Instant, takes: u64) -> Instant {
        let mut idle_from = lock(&self.idle_from);
        *idle_from = now.max(*idle_from).saturating_add(takes);
        *idle_from
    }
}
