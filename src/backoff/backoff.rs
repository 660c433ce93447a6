//! The settings of delays.

use std::time::Duration;

use super::Delays;

/// The growth and the jitter of delays between attempts; see the [module](super).
///
/// Durations saturate at 2⁶⁴ − 1 ns (584 years). If the cap is below the base, no delay exceeds the cap. With a base of zero
/// all delays are zero.
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
    pub(super) base: Duration,
    pub(super) cap: Duration,
    pub(super) jitter: Jitter,
    pub(super) seed: Option<u64>,
}

/// The randomness of delays, by the names of the article.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Jitter {
    None,
    Full,
    Equal,
    Decorrelated,
}

impl Backoff {
    /// Creates delays that start at the base and double after each attempt, up to the cap. There is no jitter.
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

    /// Creates delays between a half and the whole of those of [`exponential`](Self::exponential) ("equal jitter").
    pub const fn equal(base: Duration, cap: Duration) -> Self {
        Self::new(base, cap, Jitter::Equal)
    }

    /// Creates delays between the base and three times the previous delay, up to the cap ("decorrelated jitter").
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
    /// Use it in tests, or with a different seed for each client: clients with the same seed retry together. Neighbouring
    /// seeds give unrelated delays. By default, each call of [`delays`](Self::delays) uses a random seed.
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

    /// Returns the delays of one client or one call: an endless iterator that starts with the delay after the first attempt.
    pub fn delays(self) -> Delays {
        Delays::new(self)
    }

    /// Returns the maximum delay after an attempt; the first attempt is 0.
    ///
    /// A `Retry-After` passed to [`next_at_least`](super::Delays::next_at_least) is added to it.
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
pub(super) const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 {
        u64::MAX
    } else {
        nanos as u64
    }
}
