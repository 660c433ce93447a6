//! The instants of the crate, and a clock that all threads read and one may move.

use std::{sync::Arc, time::Duration};

use loom::sync::atomic::{AtomicU64, Ordering};

pub(crate) use crate::production::time::MonotoneClock;
pub use crate::production::time::{Clock, Timestamp};

/// A clock that stands still, or is moved by one thread.
#[derive(Clone)]
pub struct TestClock(Option<Arc<AtomicU64>>);

impl TestClock {
    pub fn still() -> Self {
        Self(None)
    }

    pub fn moving() -> Self {
        Self(Some(Arc::new(AtomicU64::new(0))))
    }

    pub fn advance(&self, by: Duration) {
        if let Some(now) = &self.0 {
            now.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        // The newest, as of a counter that all processors share; orders nothing else.
        let now = |now: &Arc<AtomicU64>| now.fetch_add(0, Ordering::Relaxed);
        Timestamp::from_nanos(self.0.as_ref().map_or(0, now))
    }

    fn is_monotonic(&self) -> bool {
        true
    }
}
