//! The clock that follows tokio's time, and that of leases.

#[cfg(feature = "listen")]
use std::time::Duration;

use ::tokio::time::Instant;

use super::{Clock, Timestamp, system};

/// A clock that starts at Unix time and then follows tokio's time.
///
/// It follows `tokio::time::pause` and `advance`, so a test with paused time needs no other clock.
/// It is monotonic and never compared with Unix time again; on a server that runs for months,
/// [`SystemClock`](super::SystemClock) stays closer to the calendar. Copies share one time.
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
        Self::starting_at(Timestamp::from_nanos(system::unix_nanos()))
    }

    /// Creates a clock whose present is `at`, for tests that must not depend on the calendar: a
    /// window of an hour would end in the middle of some of them.
    ///
    /// ```
    /// use tollgate::{Timestamp, time::{Clock, TokioClock}};
    ///
    /// let half_past_midnight = Timestamp::from_nanos(1_800_000_000_000);
    /// assert!(TokioClock::starting_at(half_past_midnight).now() >= half_past_midnight);
    /// ```
    pub fn starting_at(at: Timestamp) -> Self {
        Self {
            started: Instant::now(),
            at,
        }
    }

    /// Returns the instant at which the clock shows `at`.
    #[cfg(feature = "listen")]
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        const DISTANT: Duration = Duration::from_secs(30 * 365 * 86_400);
        let wait = at.saturating_since(self.at);
        // Systems differ in what an instant can be.
        let instant = self.started.checked_add(wait);
        instant.unwrap_or_else(|| self.started + DISTANT)
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

/// The time since the machine was started, including the time for which it was suspended.
///
/// Leases use it: a node that wakes up must not spend units that the store has long given to
/// others. On Linux it is `CLOCK_BOOTTIME`, on other systems of the Unix family `CLOCK_MONOTONIC`,
/// and elsewhere the clock of [`Instant`](std::time::Instant), which counts suspension on Windows.
/// Its timestamps are no calendar times.
///
/// ```
/// use tollgate::time::{Clock, LeaseClock};
///
/// let clock = LeaseClock::default();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct LeaseClock;

impl Clock for LeaseClock {
    #[cfg(unix)]
    #[inline]
    fn now(&self) -> Timestamp {
        use rustix::time::{ClockId, clock_gettime};

        #[cfg(target_os = "linux")]
        const CLOCK: ClockId = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        const CLOCK: ClockId = ClockId::Monotonic;
        let time = clock_gettime(CLOCK);
        // Neither is negative since the machine was started.
        let (seconds, nanos) = (time.tv_sec as u64, time.tv_nsec as u64);
        Timestamp::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    #[cfg(not(unix))]
    fn now(&self) -> Timestamp {
        use std::{sync::LazyLock, time::Instant};

        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        Timestamp::default().saturating_add(START.elapsed())
    }

    #[inline]
    fn is_monotonic(&self) -> bool {
        true
    }
}
