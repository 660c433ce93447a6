//! Delays between the attempts of a client.
//!
//! A client that retries at once adds load to a busy server, and clients that retry at one instant
//! add it together. So each client waits longer after each attempt, up to a cap, and adds jitter.
//!
//! With the base b and the cap c, attempt n (0 is the first one that failed) is followed by a delay
//! of
//!
//! | made by | delay | mean, below the cap |
//! |---|---|---|
//! | [`exponential`](Backoff::exponential) | eₙ = min(c, b · 2ⁿ) | eₙ |
//! | [`full`](Backoff::full) | U(0, eₙ) | eₙ / 2 |
//! | [`equal`](Backoff::equal) | U(⌊eₙ / 2⌋, eₙ) | ¾ eₙ |
//! | [`decorrelated`](Backoff::decorrelated) | dₙ = min(c, U(b, 3 · dₙ₋₁)), with d₋₁ = b | b / 2 + ³⁄₂ · the mean before |
//!
//! U(x, y) is a uniform integer of nanoseconds from x to y inclusive; probabilities differ by at
//! most one part in 2⁶⁴. The formulas are those of Marc Brooker, "Exponential Backoff And Jitter",
//! AWS Architecture Blog, 2015.
//!
//! # Which one?
//!
//! Start with [`full`](Backoff::full): in the article's measurements it costs a contended server
//! the fewest calls. [`equal`](Backoff::equal) never retries at once.
//! [`decorrelated`](Backoff::decorrelated) may grow slowly or fast, and sometimes falls back; once
//! it has grown, a fifth to a half of its delays are the cap itself.
//! [`exponential`](Backoff::exponential) has no jitter: all clients that failed together retry
//! together.
//!
//! # Obeying `Retry-After`
//!
//! [`Delays::next_at_least`] takes a server's `Retry-After` as the minimum and adds the delay to
//! it. The result lies between the minimum and the minimum plus the cap. So a client never retries
//! too early, whatever the cap is, and clients that received the same `Retry-After` do not all
//! retry at one instant. (With `exponential` they do.)
//!
//! # As an iterator, and in `tower::retry`
//!
//! [`Backoff::delays`] is an endless iterator. With the feature `retry`, a [`Backoff`] is a
//! `MakeBackoff` of `tower::retry`, which makes `Sleeps`; a retry policy can pass the server's
//! `Retry-After` to those.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tollgate::backoff::Backoff;
//!
//! const BACKOFF: Backoff = Backoff::full(Duration::from_millis(50), Duration::from_secs(10));
//!
//! let mut delays = BACKOFF.delays();
//! // A call failed.
//! assert!(delays.next() <= Some(Duration::from_millis(50)));
//! // Another one was answered with `Retry-After: 30`.
//! let delay = delays.next_at_least(Duration::from_secs(30));
//! assert!(delay >= Duration::from_secs(30) && delay <= Duration::from_millis(30_100));
//! ```

#[cfg(feature = "retry")]
mod sleeps;

use std::{iter::FusedIterator, time::Duration};

use crate::random::{self, Random};

#[cfg(feature = "retry")]
#[cfg_attr(docsrs, doc(cfg(feature = "retry")))]
pub use self::sleeps::Sleeps;

/// The growth and the jitter of delays between attempts; see the [module](self).
///
/// Durations saturate at 2⁶⁴ − 1 ns (584 years). If the cap is below the base, no delay exceeds the
/// cap. With a base of zero all delays are zero.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::backoff::Backoff;
///
/// const BACKOFF: Backoff = Backoff::full(Duration::from_millis(50), Duration::from_secs(10));
///
/// for (attempt, delay) in (0..).zip(BACKOFF.delays()).take(5) {
///     assert!(delay <= BACKOFF.longest(attempt));
///     // Wait for `delay`, and call again.
/// }
/// ```
#[doc(alias("jitter", "retry", "thundering herd"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    jitter: Jitter,
    seed: Option<u64>,
}

/// The randomness of delays, by the names of the article.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Jitter {
    None,
    Full,
    Equal,
    Decorrelated,
}

impl Backoff {
    /// Creates delays that start at the base and double after each attempt, up to the cap. There is
    /// no jitter.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::backoff::Backoff;
    ///
    /// let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(5));
    /// let seconds: Vec<_> = backoff.delays().take(5).map(|delay| delay.as_secs()).collect();
    /// assert_eq!(seconds, [1, 2, 4, 5, 5]);
    /// ```
    pub const fn exponential(base: Duration, cap: Duration) -> Self {
        Self::new(base, cap, Jitter::None)
    }

    /// Creates delays between zero and those of [`exponential`](Self::exponential) ("full jitter").
    pub const fn full(base: Duration, cap: Duration) -> Self {
        Self::new(base, cap, Jitter::Full)
    }

    /// Creates delays between a half and the whole of those of [`exponential`](Self::exponential)
    /// ("equal jitter").
    pub const fn equal(base: Duration, cap: Duration) -> Self {
        Self::new(base, cap, Jitter::Equal)
    }

    /// Creates delays between the base and three times the previous delay, up to the cap
    /// ("decorrelated jitter").
    pub const fn decorrelated(base: Duration, cap: Duration) -> Self {
        Self::new(base, cap, Jitter::Decorrelated)
    }

    const fn new(base: Duration, cap: Duration, jitter: Jitter) -> Self {
        Self {
            base,
            cap,
            jitter,
            seed: None,
        }
    }

    /// Sets the seed of the jitter, so that delays are reproducible on every machine.
    ///
    /// Use it in tests, or with a different seed for each client: clients with the same seed retry
    /// together. Neighbouring seeds give unrelated delays. By default, each call of
    /// [`delays`](Self::delays) uses a random seed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::backoff::Backoff;
    ///
    /// let backoff = Backoff::equal(Duration::from_millis(1), Duration::from_secs(1));
    /// assert!(backoff.seed(1).delays().take(9).eq(backoff.seed(1).delays().take(9)));
    /// assert!(backoff.seed(1).delays().take(9).ne(backoff.seed(2).delays().take(9)));
    /// ```
    #[must_use]
    pub const fn seed(self, seed: u64) -> Self {
        Self {
            seed: Some(seed),
            ..self
        }
    }

    /// Returns the delays of one client or one call: an endless iterator that starts with the delay
    /// after the first attempt.
    pub fn delays(self) -> Delays {
        Delays::new(self)
    }

    /// Returns the maximum delay after an attempt; the first attempt is 0.
    ///
    /// A `Retry-After` passed to [`next_at_least`](Delays::next_at_least) is added to it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::backoff::Backoff;
    ///
    /// let backoff = Backoff::full(Duration::from_millis(10), Duration::from_secs(1));
    /// assert_eq!(backoff.longest(3), Duration::from_millis(80));
    /// assert_eq!(backoff.longest(u32::MAX), Duration::from_secs(1));
    /// ```
    pub const fn longest(self, attempt: u32) -> Duration {
        let growth = match self.jitter {
            Jitter::None | Jitter::Full | Jitter::Equal => 2_u64.saturating_pow(attempt),
            Jitter::Decorrelated => 3_u64.saturating_pow(attempt.saturating_add(1)),
        };
        let (longest, cap) = (nanos(self.base).saturating_mul(growth), nanos(self.cap));
        Duration::from_nanos(if longest < cap { longest } else { cap })
    }
}

/// Returns the nanoseconds of a duration, at most 2⁶⁴ − 1.
const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 {
        u64::MAX
    } else {
        nanos as u64
    }
}

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
/// let mut delays: Delays =
///     Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60)).delays();
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
    fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            random: Random::new(backoff.seed.unwrap_or_else(random::seed)),
            attempt: 0,
            previous: nanos(backoff.base),
        }
    }

    /// Returns `least` plus the next delay.
    ///
    /// `least` is the server's `Retry-After`. The sum may exceed the cap. Later delays are not
    /// affected.
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
