//! The delays themselves.

use std::{iter::FusedIterator, time::Duration};

use super::{Backoff, Kind, nanos};
use crate::random::{self, Random};

/// The delays of one client or one call, one after the other: an endless iterator.
///
/// Made by [`Backoff::delays`]. A clone goes on with the same delays.
#[derive(Clone, Debug)]
pub struct Delays {
    backoff: Backoff,
    random: Random,
    attempt: u32,
    /// What was drawn last.
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

    /// The next delay, behind what a server asked for: `least`, and as much more as would have been waited without it.
    ///
    /// `least` is what `Retry-After` says, and wins over the cap. It does not change the delays after this one.
    pub fn next_at_least(&mut self, least: Duration) -> Duration {
        least.saturating_add(Duration::from_nanos(self.draw()))
    }

    fn draw(&mut self) -> u64 {
        let longest = nanos(self.backoff.longest(self.attempt));
        // From there on, nothing grows any more.
        self.attempt = self.attempt.saturating_add(1);
        match self.backoff.kind {
            Kind::Exponential => longest,
            Kind::Full => self.random.up_to(longest),
            Kind::Equal => {
                let half = longest / 2;
                half + self.random.up_to(longest - half)
            }
            Kind::Decorrelated => {
                let base = nanos(self.backoff.base);
                // Below the base only where the cap is.
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

    /// The next delay; never `None`.
    fn next(&mut self) -> Option<Duration> {
        Some(self.next_at_least(Duration::ZERO))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

impl FusedIterator for Delays {}
