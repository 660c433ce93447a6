//! The trait of clocks.

use super::Timestamp;

/// A source of time for stores.
///
/// A clock should be monotonic and near Unix time. If it steps back, time stands still
/// for the store until the clock has caught up: no capacity is created, and no key is
/// refused for longer than the step.
///
/// # Examples
///
/// A clock with a resolution of a millisecond. A reading takes one load instead of some 10 ns. A thread of the
/// application updates it; time stands still while that thread does not run.
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

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
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
