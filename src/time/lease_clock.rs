//! A clock for spans of time that goes on while the machine is suspended.

use super::{Clock, Timestamp};

/// The time since the machine was started, including the time for which it was suspended.
///
/// Leases use it: a node that wakes up must not spend units that the store has long given to others. On Linux it is `CLOCK_BOOTTIME`, on other
/// systems of the Unix family `CLOCK_MONOTONIC`, and elsewhere the clock of [`Instant`](std::time::Instant), which counts suspension on
/// Windows. Its timestamps are no calendar times.
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
