//! How long a client waits before it tries again.
//!
//! A client that was refused, or whose call failed, and that comes back at once makes matters worse; clients that all come
//! back at the same instant do so, too. So each waits longer after each attempt, up to a cap, and draws how long.
//!
//! With the base b and the cap c, attempt n (0 being the first one that failed) is followed by a delay of
//!
//! | made by | delay | mean, below the cap |
//! |---|---|---|
//! | [`exponential`](Backoff::exponential) | eₙ = min(c, b · 2ⁿ) | eₙ |
//! | [`full`](Backoff::full) | U(0, eₙ) | eₙ / 2 |
//! | [`equal`](Backoff::equal) | U(⌊eₙ / 2⌋, eₙ) | ¾ eₙ |
//! | [`decorrelated`](Backoff::decorrelated) | dₙ = min(c, U(b, 3 · dₙ₋₁)), with d₋₁ = b | b / 2 + ³⁄₂ · the mean before |
//!
//! U(x, y) is an integer of nanoseconds from x to y, both among them, each as likely as any other to one part in 2⁶⁴. The
//! formulas are those of Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
//!
//! **Which one?** [`full`](Backoff::full) is the one to begin with: in the article's measurements it costs a contended server
//! the fewest calls. [`equal`](Backoff::equal) is for who must not come back at once. [`decorrelated`](Backoff::decorrelated)
//! may grow slowly or fast, and falls back at times; once it has grown, a fifth to a half of its delays are the cap itself.
//! [`exponential`](Backoff::exponential) draws nothing: all clients that failed together come back together.
//!
//! # When the server says how long
//!
//! [`Delays::next_at_least`] takes a server's `Retry-After` as the least that is waited, and adds the delay to it: the
//! result lies between the bound and the bound plus the cap. So who obeys is never refused for coming early, whatever the
//! cap is, and those that were told the same instant do not all come back at it. (With `exponential` they do.)
//!
//! # As an iterator, and in `tower::retry`
//!
//! [`Backoff::delays`] is an endless iterator. With the feature `retry`, a [`Backoff`] is a `MakeBackoff` of
//! `tower::retry`, which makes `Sleeps`; a policy tells those what the server said.
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

mod delays;
#[cfg(feature = "retry")]
mod retry;

use std::time::Duration;

pub use self::delays::Delays;
#[cfg(feature = "retry")]
#[cfg_attr(docsrs, doc(cfg(feature = "retry")))]
pub use self::retry::Sleeps;

/// How delays grow from attempt to attempt, and what is drawn; see the [module](self).
///
/// Nothing overflows, whatever the attempt: the base, the cap, and three times a delay are cut to 2⁶⁴ − 1 ns, 584 years.
/// Where the cap is below the base, no delay is above the cap; of a base of zero all delays are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    kind: Kind,
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Exponential,
    Full,
    Equal,
    Decorrelated,
}

impl Backoff {
    /// The base, twice as long after each attempt, up to the cap; nothing is drawn.
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
        Self::new(base, cap, Kind::Exponential)
    }

    /// Anything from nothing to what [`exponential`](Self::exponential) waits.
    pub const fn full(base: Duration, cap: Duration) -> Self {
        Self::new(base, cap, Kind::Full)
    }

    /// Half of what [`exponential`](Self::exponential) waits, and anything up to the other half.
    pub const fn equal(base: Duration, cap: Duration) -> Self {
        Self::new(base, cap, Kind::Equal)
    }

    /// Anything from the base to three times the delay before, up to the cap.
    pub const fn decorrelated(base: Duration, cap: Duration) -> Self {
        Self::new(base, cap, Kind::Decorrelated)
    }

    const fn new(base: Duration, cap: Duration, kind: Kind) -> Self {
        Self {
            base,
            cap,
            kind,
            seed: None,
        }
    }

    /// The same with a seed of one's own: its delays are then the same each time, on every machine.
    ///
    /// For tests, and for who seeds each client anew: clients with the same seed come back together. Seeds that are
    /// neighbours give unrelated delays. Without one, each call of [`delays`](Self::delays) draws its own.
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

    /// The delays of one client, or of one call: endless, beginning with that after the first attempt.
    pub fn delays(self) -> Delays {
        Delays::new(self)
    }

    /// The longest delay that may follow an attempt, the first one being 0, where no server asks for more.
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
        let growth = match self.kind {
            Kind::Exponential | Kind::Full | Kind::Equal => 2_u64.saturating_pow(attempt),
            Kind::Decorrelated => 3_u64.saturating_pow(attempt.saturating_add(1)),
        };
        let (longest, cap) = (nanos(self.base).saturating_mul(growth), nanos(self.cap));
        Duration::from_nanos(if longest < cap { longest } else { cap })
    }
}

/// The nanoseconds of a duration, cut to what fits.
const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 {
        u64::MAX
    } else {
        nanos as u64
    }
}
