//! Instants.

use std::{fmt, num::NonZeroU64, time::Duration};

/// An instant on the timeline of a store: nanoseconds since the Unix epoch, 0 to 2⁶⁴ − 2.
///
/// Arithmetic saturates. The clocks of this crate stay below 2⁶³ ns (the year 2262).
///
/// # Examples
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
// The nanoseconds plus one, so that an `Option` of a state that contains a timestamp takes no extra space.
pub struct Timestamp(NonZeroU64);

impl Timestamp {
    /// The latest instant; stands for "never" in waits.
    pub const MAX: Self = Self(NonZeroU64::MAX);

    /// Returns the instant `nanos` nanoseconds after the Unix epoch, at most [`MAX`](Self::MAX).
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Returns the nanoseconds since the Unix epoch.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Returns the instant `wait` later, or [`MAX`](Self::MAX).
    #[must_use]
    pub fn saturating_add(self, wait: Duration) -> Self {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// Returns the instant `wait` earlier, or the first one.
    #[must_use]
    pub fn saturating_sub(self, wait: Duration) -> Self {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(self.as_nanos().saturating_sub(nanos))
    }

    /// Returns the time from `earlier` to this instant; zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// Returns [`saturating_since`](Self::saturating_since) in nanoseconds.
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
