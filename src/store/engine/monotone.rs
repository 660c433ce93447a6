//! A clock that never steps back.
//!
//! A clock that steps back stands still for the store until it has caught up. One bound for all
//! keys is simpler to reason about than one for each. A new key's time is read after it was found
//! missing; otherwise a key that another thread has just forgotten would be full twice.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::{Clock, Timestamp};

/// A clock that stands still while the clock inside is behind the latest time that it has shown.
#[derive(Debug, Default)]
pub(in crate::store) struct MonotoneClock<C> {
    clock: C,
    /// The latest time shown, in nanoseconds; 0 if the clock inside never steps back.
    newest: AtomicU64,
}

impl<C: Clock> MonotoneClock<C> {
    pub(in crate::store) fn new(clock: C) -> Self {
        Self {
            clock,
            newest: AtomicU64::new(0),
        }
    }

    /// Returns the time, which is never before one that was returned earlier.
    #[inline]
    pub(in crate::store) fn now(&self) -> Timestamp {
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
    pub(in crate::store) fn clock(&self) -> &C {
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
    use crate::time::ManualClock;

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
