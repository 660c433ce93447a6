//! The default clock.

use std::{fmt, sync::OnceLock};

use super::{
    super::{Clock, Timestamp},
    machine::Machine,
    steered::SteeredClock,
};

/// The clock of this process, and the default of local stores: fast, monotonic, near Unix time.
///
/// It reads the processor's time stamp counter if that is reliable, else the operating system's monotonic clock, and starts
/// at Unix time. About once a second, one caller compares it with Unix time, and no other caller waits for that. All values
/// of this type share one time. Creating or copying one is free, except for the first one of a process, which calibrates
/// the counter for up to 0.2 s: create it at start-up.
///
/// # Accuracy
///
/// A difference from Unix time is slewed away: the clock runs up to 500 ppm (0.05 %) fast or slow until they agree, half a
/// millisecond per second.
///
/// - `retry_after` counts by *this* clock. A client that waits n seconds by its own clock may come up to 0.05 % of n too
///   early while this one is slewed slow (half a millisecond per second), plus the difference of the two oscillators.
/// - While a difference lasts, calendar windows begin and end early or late by it. A calendar that is set back by a minute
///   is reached after 33 hours.
/// - If Unix time is ahead by more than a second, for example after the machine slept, the clock jumps forward at the next
///   comparison. It is never set back.
/// - No thread sees time fall. Two threads that read it at one moment may differ by some tens of nanoseconds, as the
///   counters of their cores do.
/// - A counter that restarts while the machine sleeps is detected at the next reading. Threads that read it in the same
///   microsecond may once see a time that is some seconds old.
/// - In the first second, the rate is that of the calibration. From then on it is measured against the operating system's
///   monotonic clock.
///
/// # Examples
///
/// ```
/// use tollgate::time::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let before = clock.now();
/// assert!(SystemClock::default().now() >= before);
/// ```
#[derive(Clone, Copy)]
pub struct SystemClock {
    shared: &'static SteeredClock<Machine>,
}

impl SystemClock {
    /// Returns the clock of this process.
    pub fn new() -> Self {
        static SHARED: OnceLock<SteeredClock<Machine>> = OnceLock::new();
        Self {
            shared: SHARED.get_or_init(|| SteeredClock::new(Machine::new())),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemClock").finish_non_exhaustive()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.shared.now())
    }

    #[inline]
    fn is_monotonic(&self) -> bool {
        true
    }
}
