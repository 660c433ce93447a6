//! Pacing of work that a program pulls by itself.
//!
//! A layer refuses requests that arrive too fast. A worker that pulls its work can wait instead, so that it drops no job and
//! never exceeds its rate. A [`Pacer`] is one rule and one budget, without HTTP, keys or a store.
//!
//! | | for | feature |
//! |---|---|---|
//! | [`Pacer::can_do_work`], [`Pacer::spend`] | loops that have the time at hand: simulations, event loops, threads | |
//! | [`RoundRobin`] | the time slices of many senders, computed | |
//! | `Pacer::until_ready`, `until_ready_for` | tasks that wait, served in the order of arrival | `tokio` |
//! | `Pacer::stream`, `stream_by` | a stream whose items come no faster than the rule allows | `tokio` |
//! | `Turns` | one task that serves many senders in turn | `tokio` |
//!
//! Every [`Algorithm`](crate::algorithm::Algorithm) can pace. A [`TokenBucket`](crate::TokenBucket) lets its burst pass at
//! once and is even from then on; with a burst of 1 it is even from the start. A rule that delays spaces its calls evenly;
//! windows let them pass in bursts.
//!
//! # Examples
//!
//! ```
//! use tollgate::{Timestamp, TokenBucket, pace::Pacer};
//!
//! // 200 a second, evenly: one in each 5 ms.
//! let pacer = Pacer::new(TokenBucket::per_second(200).burst(1));
//! let at = |millis: u64| Timestamp::from_nanos(43_200_000_000_000 + millis * 1_000_000);
//!
//! let done: Vec<_> = (0..12).filter(|millis| pacer.can_do_work(at(*millis))).collect();
//! assert_eq!(done, [0, 5, 10]);
//! ``````
//!
//! # Accuracy
//!
//! Decisions are as exact as the rule, by the pacer's clock. Sleeps are tokio's: its timer wakes at whole milliseconds and
//! never early, so a wait ends up to a millisecond late, and later on a busy machine.
//!
//! - A bucket with a burst catches up on that. A bucket without one cannot: it never exceeds its rate, and falls a little
//!   short of it, noticeably at intervals not much longer than a millisecond.
//! - A rule that delays counts its next departure from the previous scheduled one. At intervals above a millisecond the rate
//!   is kept, and the interval between two departures can be shorter than scheduled by the delay of the first one. At
//!   shorter intervals it falls short too, because it saves up nothing.

#[cfg(feature = "tokio")]
mod never_ready;
mod pacer;
mod round_robin;
#[cfg(feature = "tokio")]
mod stream;
#[cfg(feature = "tokio")]
mod turns;
#[cfg(feature = "tokio")]
mod until_ready;

#[cfg(feature = "tokio")]
pub use self::{
    never_ready::NeverReady,
    stream::{PacedStream, PacedStreamBy},
    turns::Turns,
};
pub use self::{
    pacer::Pacer,
    round_robin::{RoundRobin, Turn},
};
