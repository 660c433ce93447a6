//! The clock that follows tokio's time.

use ::tokio::time::Instant;

use super::{Clock, Timestamp, system};

/// Unix time at its construction, and tokio's time from there.
///
/// It follows `tokio::time::pause` and `advance`, so a test with paused time needs no
/// other clock. It is monotone and never compared with Unix time again; for a server
/// that runs for months, [`SystemClock`](super::SystemClock) stays nearer to the
/// calendar. Copies tell the same time.
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
    /// A clock that begins at the present Unix time.
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

    fn is_monotone(&self) -> bool {
        true
    }
}
