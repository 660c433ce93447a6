//! Delays between the attempts of a client.
//!
//! A client that retries at once adds load to a busy server, and clients that retry at one instant add it together. So each
//! client waits longer after each attempt, up to a cap, and adds jitter.
//!
//! With the base b and the cap c, attempt n (0 is the first one that failed) is followed by a delay of
//!
//! | made by | delay | mean, below the cap |
//! |---|---|---|
//! | [`exponential`](Backoff::exponential) | eₙ = min(c, b · 2ⁿ) | eₙ |
//! | [`full`](Backoff::full) | U(0, eₙ) | eₙ / 2 |
//! | [`equal`](Backoff::equal) | U(⌊eₙ / 2⌋, eₙ) | ¾ eₙ |
//! | [`decorrelated`](Backoff::decorrelated) | dₙ = min(c, U(b, 3 · dₙ₋₁)), with d₋₁ = b | b / 2 + ³⁄₂ · the mean before |
//!
//! U(x, y) is a uniform integer of nanoseconds from x to y inclusive; probabilities differ by at most one part in 2⁶⁴. The
//! formulas are those of Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
//!
//! # Which one?
//!
//! Start with [`full`](Backoff::full): in the article's measurements it costs a contended server the fewest calls.
//! [`equal`](Backoff::equal) never retries at once. [`decorrelated`](Backoff::decorrelated) may grow slowly or fast, and
//! sometimes falls back; once it has grown, a fifth to a half of its delays are the cap itself.
//! [`exponential`](Backoff::exponential) has no jitter: all clients that failed together retry together.
//!
//! # Obeying `Retry-After`
//!
//! [`Delays::next_at_least`] takes a server's `Retry-After` as the minimum and adds the delay to it. The result lies between
//! the minimum and the minimum plus the cap. So a client never retries too early, whatever the cap is, and clients that
//! received the same `Retry-After` do not all retry at one instant. (With `exponential` they do.)
//!
//! # As an iterator, and in `tower::retry`
//!
//! [`Backoff::delays`] is an endless iterator. With the feature `retry`, a [`Backoff`] is a `MakeBackoff` of
//! `tower::retry`, which makes `Sleeps`; a retry policy can pass the server's `Retry-After` to those.
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

#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod backoff;
mod delays;
#[cfg(feature = "retry")]
mod sleeps;

#[cfg(feature = "retry")]
#[cfg_attr(docsrs, doc(cfg(feature = "retry")))]
pub use self::sleeps::Sleeps;
pub use self::{backoff::Backoff, delays::Delays};
