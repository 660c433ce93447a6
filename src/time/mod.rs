//! Timestamps and clocks. No other module of this crate reads time.
//!
//! | clock | use | cost of a reading | a client that waits `retry_after` by an exact clock is early by |
//! |---|---|---|---|
//! | [`SystemClock`] | the default | 10 ns | up to 0.05 % of the wait, while a difference from Unix time is slewed away |
//! | `TokioClock`, feature `tokio` | tests that pause tokio's time | 30 ns | nothing; the clock drifts from Unix time |
//! | `ManualClock`, feature `test-util` | tests | 2 ns | set by the test |
//!
//! A client that is too early is refused once more, with the rest of the wait as the new
//! `retry_after`. Headers in whole seconds are rounded up, which mostly hides this.

#[cfg(any(test, feature = "test-util"))]
mod manual;
mod slew;
mod system;
#[cfg(feature = "tokio")]
mod tokio;

use std::{
    fmt,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

#[cfg(any(test, feature = "test-util"))]
pub use self::manual::ManualClock;
pub use self::system::SystemClock;
#[cfg(feature = "tokio")]
pub use self::tokio::{LeaseClock, TokioClock};

/// A source of time for stores.
///
/// A clock should be monotonic and near Unix time. If it steps back, time stands still
/// for the store until the clock has caught up: no capacity is created, and no key is
/// refused for longer than the step.
///
/// # Examples
///
/// A clock with a resolution of a millisecond. A reading takes one load instead of some 10 ns. A
/// thread of the application updates it; time stands still while that thread does not run.
///
/// ```
/// use std::{
///     sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}},
///     thread,
///     time::Duration,
/// };
///
/// use tollgate::{
///     Timestamp, TokenBucket,
///     time::{Clock, SystemClock},
///     store::{Local, LocalBuilder},
/// };
///
/// #[derive(Clone)]
/// struct CoarseClock(Arc<AtomicU64>);
///
/// impl CoarseClock {
///     fn start() -> Self {
///         let exact = SystemClock::new();
///         let nanos = Arc::new(AtomicU64::new(exact.now().as_nanos()));
///         let weak = Arc::downgrade(&nanos);
///         // The thread ends when the last clock is dropped.
///         thread::spawn(move || {
///             while let Some(nanos) = weak.upgrade() {
///                 nanos.store(exact.now().as_nanos(), Relaxed);
///                 drop(nanos);
///                 thread::sleep(Duration::from_millis(1));
///             }
///         });
///         Self(nanos)
///     }
/// }
///
/// impl Clock for CoarseClock {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_nanos(self.0.load(Relaxed))
///     }
///
///     // One thread writes it, from a monotonic clock.
///     fn is_monotonic(&self) -> bool {
///         true
///     }
/// }
///
/// let clock = CoarseClock::start();
/// let store: Local<TokenBucket, CoarseClock> = LocalBuilder::new().clock(clock).build();
/// assert_eq!(store.stats().keys, 0);
/// ```
pub trait Clock {
    /// Returns the current instant.
    fn now(&self) -> Timestamp;

    /// Returns `true` if no thread ever sees this clock step back.
    ///
    /// A store then does not check for steps. The default, `false`, is always safe.
    fn is_monotonic(&self) -> bool {
        false
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn is_monotonic(&self) -> bool {
        (**self).is_monotonic()
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn is_monotonic(&self) -> bool {
        (**self).is_monotonic()
    }
}

/// The clock of a store whose calls take longer than a dynamic call to read it.
pub(crate) type SharedClock = Arc<dyn Clock + Send + Sync>;

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
// The nanoseconds plus one, so that an `Option` of a state that contains a timestamp takes no extra
// space.
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
    #[inline]
    #[must_use]
    pub fn saturating_add(self, wait: Duration) -> Self {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// Returns the instant `wait` earlier, or the first one.
    #[inline]
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

/// The clock of a store, which stands still while the clock inside is behind the latest time that
/// it has shown.
///
/// One bound for all keys is simpler to reason about than one for each. A new key's time is read
/// after it was found missing; otherwise a key that another thread has just forgotten would be full
/// twice.
#[derive(Debug, Default)]
pub(crate) struct MonotoneClock<C> {
    clock: C,
    /// The latest time shown, in nanoseconds; 0 if the clock inside never steps back.
    newest: AtomicU64,
}

impl<C: Clock> MonotoneClock<C> {
    pub(crate) fn new(clock: C) -> Self {
        Self {
            clock,
            newest: AtomicU64::new(0),
        }
    }

    /// Returns the time, which is never before one that was returned earlier.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.clock.now();
        if self.clock.is_monotonic() {
            return now;
        }
        // Relaxed: all that counts is that this one number never falls.
        let newest = self.newest.fetch_max(now.as_nanos(), Ordering::Relaxed);
        now.max(Timestamp::from_nanos(newest))
    }

    /// Returns the clock inside, which may step back.
    #[cfg(feature = "tokio")]
    pub(crate) fn clock(&self) -> &C {
        &self.clock
    }
}

impl<C: Clock> Clock for MonotoneClock<C> {
    fn now(&self) -> Timestamp {
        self.now()
    }

    fn is_monotonic(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_stands_still_while_the_clock_is_behind() {
        let clock = ManualClock::new(Timestamp::from_nanos(50));
        let monotone = MonotoneClock::new(clock.clone());
        let shown = [50, 20, 40, 60].map(|nanos| {
            clock.set(Timestamp::from_nanos(nanos));
            monotone.now().as_nanos()
        });
        assert_eq!(shown, [50, 50, 50, 60]);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(monotone.now().as_nanos(), 61);
    }
}
