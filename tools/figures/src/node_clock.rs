//! The clock of a node.

use tollgate::{Timestamp, time::Clock};

use crate::timeline::Timeline;

/// A clock that differs from simulated time. It goes on while its node is frozen.
#[derive(Clone)]
pub(crate) struct NodeClock {
    pub(crate) time: Timeline,
    /// In nanoseconds.
    pub(crate) offset: i64,
    /// In millionths; a clock that is too slow has a negative one.
    pub(crate) drift: i64,
}

impl NodeClock {
    pub(crate) fn exact(time: &Timeline) -> Self {
        Self {
            time: time.clone(),
            offset: 0,
            drift: 0,
        }
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        self.time.clock(self.offset, self.drift)
    }

    fn is_monotonic(&self) -> bool {
        true
    }
}
