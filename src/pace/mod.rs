//! Pacing of work: pull when it is allowed, neither drop nor exceed.
//!
//! A layer answers requests that come when they like; who pulls its work itself never needs to be refused. No HTTP
//! here, no keys, no store: a [`Pacer`] is one rule and one budget.
//!
//! | | for | feature |
//! |---|---|---|
//! | [`Pacer::can_do_work`], [`Pacer::spend`] | loops that have the time at hand: simulations, event loops, threads | |
//! | [`Quanta`] | the arithmetic of serving many senders in turn | |
//! | `Pacer::until_ready`, `until_ready_for` | tasks that pull: served in the order in which they came | `tokio` |
//! | `Pacer::stream`, `stream_by` | a stream whose items may come no faster than that | `tokio` |
//! | `Turns` | one task that serves many senders, each in its quantum | `tokio` |
//!
//! Every [`Algorithm`](crate::algorithm::Algorithm) can pace. A [`TokenBucket`](crate::TokenBucket) lets its burst go
//! at once and is even from then on; with a burst of 1 it is even from the beginning. A rule that answers with delays
//! spaces; windows deliver in lumps.
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
//! ```
//!
//! # How exact the waiting is
//!
//! Decisions are as exact as the rule, by the pacer's clock. Sleeping is tokio's: its timer wakes at whole
//! milliseconds and never early, so what is waited for comes up to a millisecond late, and later on a busy machine.
//!
//! - A bucket with some burst makes up for that. One without any cannot: it never exceeds its rate, and falls a little
//!   short of it, which is felt where an interval is not much longer than a millisecond.
//! - A rule that delays counts its next departure from the one that it told. At intervals above a millisecond the
//!   rate is kept, and two departures can lie closer together than told, by as much as the first one was late. At
//!   shorter ones it falls short too, for nothing is saved up.

#[cfg(feature = "tokio")]
mod never;
mod pacer;
mod quantum;
#[cfg(feature = "tokio")]
mod ready;
#[cfg(feature = "tokio")]
mod stream;
#[cfg(feature = "tokio")]
mod turns;

#[cfg(feature = "tokio")]
pub use self::{
    never::NeverReady,
    stream::{Paced, PacedBy},
    turns::Turns,
};
pub use self::{
    pacer::Pacer,
    quantum::{Quanta, Turn},
};
