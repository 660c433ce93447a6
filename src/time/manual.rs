//! The clock that stands still until a test moves it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{Clock, Timestamp};

/// A clock for tests, which moves only when told to.
///
/// Clones share one time: keep one, and give the other to the store under test.
///
/// ```
/// use std::time::Duration;
/// use tollgate::time::{Clock, ManualClock};
///
/// let clock = ManualClock::default();
/// let of_the_store = clock.clone();
/// let before = of_the_store.now();
/// clock.advance(Duration::from_millis(250));
/// assert_eq!(of_the_store.now().saturating_since(before), Duration::from_millis(250));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    nanos: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that stands at `at`.
    pub fn new(at: Timestamp) -> Self {
        Self {
            nanos: Arc::new(AtomicU64::new(at.as_nanos())),
        }
    }

    /// Moves the clock and all its clones forward, at most to [`Timestamp::MAX`].
    pub fn advance(&self, by: Duration) {
        let moved = |nanos| Some(Timestamp::from_nanos(nanos).saturating_add(by).as_nanos());
        // The closure never answers `None`, so there is no failure to look at.
        let _ = self
            .nanos
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, moved);
    }

    /// Puts the clock and all its clones to `at`, which may be earlier than now.
    pub fn set(&self, at: Timestamp) {
        self.nanos.store(at.as_nanos(), Ordering::Release);
    }
}

impl Default for ManualClock {
    /// A clock that stands at 2026-01-01, 00:00:00 UTC.
    fn default() -> Self {
        Self::new(Timestamp::from_nanos(1_767_225_600_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(Ordering::Acquire))
    }
}
