//! The iterator of delays.

use std::{iter::FusedIterator, time::Duration};

use super::backoff::{Backoff, Jitter, nanos};
use crate::random::{self, Random};

/// An endless iterator over the delays of one client or one call: made by [`Backoff::delays`].
///
/// A clone continues with the same delays.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::backoff::{Backoff, Delays};
///
/// let mut delays: Delays = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60)).delays();
/// assert_eq!(delays.next(), Some(Duration::from_secs(1)));
/// // The server sent `Retry-After: 30`.
/// assert_eq!(delays.next_at_least(Duration::from_secs(30)), Duration::from_secs(32));
/// ```
#[must_use = "iterators are lazy"]
#[derive(Clone, Debug)]
pub struct Delays {
    backoff: Backoff,
    random: Random,
    attempt: u32,
    /// The last delay, in nanoseconds.
    previous: u64,
}

impl Delays {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            random: Random::new(backoff.seed.unwrap_or_else(random::seed)),
            attempt: 0,
            previous: nanos(backoff.base),
        }
    }

    /// Returns `least` plus the next delay.
    ///
    /// `least` is the server's `Retry-After`. The sum may exceed the cap. Later delays are not affected.
    #[doc(alias = "retry_after")]
    pub fn next_at_least(&mut self, least: Duration) -> Duration {
        least.saturating_add(Duration::from_nanos(self.draw()))
    }

    fn draw(&mut self) -> u64 {
        let longest = nanos(self.backoff.longest(self.attempt));
        // Saturates: by then all delays are at the cap.
        self.attempt = self.attempt.saturating_add(1);
        match self.backoff.jitter {
            Jitter::None => longest,
            Jitter::Full => self.random.up_to(longest),
            Jitter::Equal => {
                let half = longest / 2;
                half + self.random.up_to(longest - half)
            }
            Jitter::Decorrelated => {
                let base = nanos(self.backoff.base);
                // Less than zero only if the cap is below the base.
                let above = self.previous.saturating_mul(3).saturating_sub(base);
                let drawn = base + self.random.up_to(above);
                self.previous = drawn.min(nanos(self.backoff.cap));
                self.previous
            }
        }
    }
}

impl Iterator for Delays {
    type Item = Duration;

    /// Returns the next delay, never `None`.
    fn next(&mut self) -> Option<Duration> {
        Some(self.next_at_least(Duration::ZERO))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

impl FusedIterator for Delays {}
