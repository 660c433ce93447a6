//! The trait of architectures.

use std::sync::Arc;

use crate::node::Arrival;

/// A fleet that decides on calls. There is one value for the whole fleet.
pub(super) trait Architecture: Send + Sync {
    /// Begins what goes on by itself.
    fn start(self: Arc<Self>) {}

    /// Returns the node to which a call goes; `None` for any.
    fn route(&self, _arrival: Arrival) -> Option<usize> {
        None
    }

    /// Decides on a call that has come to a node now, and answers it now or later.
    fn call(self: Arc<Self>, node: usize, arrival: Arrival);

    /// Returns `true` if nodes wait for timers of tokio.
    fn needs_timers(&self) -> bool {
        false
    }

    /// Adds what was counted elsewhere to the counts of the run.
    fn finish(&self) {}

    /// Returns the most units of a key that the fleet may admit above the limit, if there is a hard
    /// bound above 0.
    fn overshoot_bound(&self) -> Option<u64> {
        None
    }
}
