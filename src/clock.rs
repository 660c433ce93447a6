//! Instants, and the clocks that tell them. Nothing else in this crate reads time.
//!
//! | clock | for | a reading costs about | a client that waits `retry_after` by an exact clock may come |
//! |---|---|---|---|
//! | [`SystemClock`] | everything: the default | 10 ns | up to 0.05 % of it too early, while a difference from Unix time is slewed away |
//! | [`CoarseClock`] | local stores whose threads do little else than decide | 1 ns | the same, and up to 2 ms too early: its [`RESOLUTION`](CoarseClock::RESOLUTION) |
//! | `TokioClock`, feature `tokio` | tests that pause tokio's time | 30 ns | in time; it drifts from Unix time |
//! | `ManualClock`, feature `test-util` | tests | 2 ns | when the test says so |
//!
//! Who comes too early is refused once more, with the rest as the new `retry_after`. Headers in
//! whole seconds are rounded up, which mostly hides it.

mod coarse;
#[cfg(any(test, feature = "test-util"))]
mod manual;
mod published;
mod shown;
mod slew;
mod system;
#[cfg(feature = "tokio")]
mod tokio;

use std::{fmt, num::NonZeroU64, time::Duration};

#[cfg(any(test, feature = "test-util"))]
pub use self::manual::ManualClock;
#[cfg(feature = "tokio")]
pub use self::tokio::TokioClock;
pub use self::{coarse::CoarseClock, system::SystemClock};

/// An instant on a store's own timeline: nanoseconds since the Unix epoch, 0 to 2⁶⁴ − 2.
///
/// Arithmetic saturates. The clocks of this crate stay below 2⁶³ ns (the year 2262).
///
/// ```
/// use std::time::Duration;
/// use tollgate::Timestamp;
///
/// let noon = Timestamp::from_nanos(43_200_000_000_000);
/// let later = noon.saturating_add(Duration::from_secs(5));
/// assert_eq!(later.saturating_since(noon), Duration::from_secs(5));
/// assert_eq!(noon.saturating_since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
// One more than the nanoseconds, so that an `Option` of a state that holds one costs no byte.
pub struct Timestamp(NonZeroU64);

impl Timestamp {
    /// The latest instant: "never" where something is awaited.
    pub const MAX: Self = Self(NonZeroU64::MAX);

    /// The instant `nanos` nanoseconds after the Unix epoch, at most [`MAX`](Self::MAX).
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Nanoseconds since the Unix epoch.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// The instant `wait` later, or [`MAX`](Self::MAX).
    #[must_use]
    pub fn saturating_add(self, wait: Duration) -> Self {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }
}

impl Default for Timestamp {
    /// The Unix epoch.
    fn default() -> Self {
        Self::from_nanos(0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.as_nanos();
        let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        write!(f, "Timestamp({seconds}.{nanos:09})")
    }
}

/// Tells a store the time.
///
/// A clock should be monotone and near Unix time. Where it steps back all the same,
/// time stands still for a store until the clock has caught up: nothing is minted, and
/// nobody is locked out for longer than the step.
pub trait Clock {
    /// The instant it is now.
    fn now(&self) -> Timestamp;

    /// Whether no thread ever sees this clock step back.
    ///
    /// A store then need not look for steps. `false`, the default, is always right.
    fn is_monotone(&self) -> bool {
        false
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn is_monotone(&self) -> bool {
        (**self).is_monotone()
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn is_monotone(&self) -> bool {
        (**self).is_monotone()
    }
}
