//! A clock that follows tokio's time.

use ::tokio::time::Instant;

use super::{Clock, Timestamp, system};

/// A clock that starts at Unix time and then follows tokio's time.
///
/// It follows `tokio::time::pause` and `advance`, so a test with paused time needs no other clock. It is monotonic and never
/// compared with Unix time again; on a server that runs for months, [`SystemClock`](super::SystemClock) stays closer to the
/// calendar. Copies share one time.
///
/// # Examples
///
/// ```
/// use tollgate::time::{Clock, TokioClock};
///
/// let clock = TokioClock::new();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    started: Instant,
    at: Timestamp,
}

impl TokioClock {
    /// Creates a clock that starts at the current Unix time.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            at: Timestamp::from_nanos(system::unix_nanos()),
        }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.at.saturating_add(self.started.elapsed())
    }

    fn is_monotonic(&self) -> bool {
        true
    }
}
