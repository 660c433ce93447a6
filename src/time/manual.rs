//! A clock that a test moves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{Clock, Timestamp};

/// A clock for tests, which moves only when [`advance`](Self::advance) or [`set`](Self::set) is
/// called.
///
/// Clones share one time: keep one, and pass the other to the store under test.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::time::{Clock, ManualClock};
///
/// let clock = ManualClock::default();
/// let store_clock = clock.clone();
/// let before = store_clock.now();
/// clock.advance(Duration::from_millis(250));
/// assert_eq!(store_clock.now().saturating_since(before), Duration::from_millis(250));
/// ```
#[doc(alias("fake clock", "mock"))]
#[derive(Clone, Debug)]
pub struct ManualClock {
    nanos: Arc<AtomicU64>,
}

impl ManualClock {
    /// Creates a clock at `at`.
    pub fn new(at: Timestamp) -> Self {
        Self {
            nanos: Arc::new(AtomicU64::new(at.as_nanos())),
        }
    }

    /// Moves the clock and all its clones forward, at most to [`Timestamp::MAX`].
    pub fn advance(&self, by: Duration) {
        let moved = |nanos| Some(Timestamp::from_nanos(nanos).saturating_add(by).as_nanos());
        // Never fails: the closure never returns `None`.
        let _ = self
            .nanos
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, moved);
    }

    /// Sets the clock and all its clones to `at`, which may be earlier than now.
    pub fn set(&self, at: Timestamp) {
        self.nanos.store(at.as_nanos(), Ordering::Release);
    }
}

impl Default for ManualClock {
    /// Creates a clock at 2026-01-01, 00:00:00 UTC.
    fn default() -> Self {
        Self::new(Timestamp::from_nanos(1_767_225_600_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(Ordering::Acquire))
    }
}
