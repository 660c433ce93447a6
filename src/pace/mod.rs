//! Pacing of work that a program pulls by itself.
//!
//! A layer refuses requests that arrive too fast. A worker that pulls its work can wait instead, so
//! that it drops no job and never exceeds its rate. A [`Pacer`] is one rule and one budget, without
//! HTTP, keys or a store.
//!
//! | | for | feature |
//! |---|---|---|
//! | [`Pacer::can_do_work`], [`Pacer::spend`] | loops that have the time at hand: simulations, event loops, threads | |
//! | [`RoundRobin`] | the time slices of many senders, computed | |
//! | `Pacer::until_ready`, `until_ready_for` | tasks that wait, served in the order of arrival | `tokio` |
//! | `Pacer::stream`, `stream_by` | a stream whose items come no faster than the rule allows | `tokio` |
//! | `Turns` | one task that serves many senders in turn | `tokio` |
//!
//! Every [`Algorithm`] can pace. A [`TokenBucket`](crate::TokenBucket) lets its burst pass at once
//! and is even from then on; with a burst of 1 it is even from the start. A rule that delays spaces
//! its calls evenly; windows let them pass in bursts.
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
//! Decisions are as exact as the rule, by the pacer's clock. Sleeps are tokio's: its timer wakes at
//! whole milliseconds and never early, so a wait ends up to a millisecond late, and later on a busy
//! machine.
//!
//! - A bucket with a burst catches up on that. A bucket without one cannot: it never exceeds its
//!   rate, and falls a little short of it, noticeably at intervals not much longer than a
//!   millisecond.
//! - A rule that delays counts its next departure from the previous scheduled one. At intervals
//!   above a millisecond the rate is kept, and the interval between two departures can be shorter
//!   than scheduled by the delay of the first one. At shorter intervals it falls short too, because
//!   it saves up nothing.

mod round_robin;
#[cfg(feature = "tokio")]
mod waiting;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

pub use self::round_robin::{RoundRobin, Turn};
#[cfg(feature = "tokio")]
pub use self::waiting::{NeverReady, PacedStream, PacedStreamBy, Turns};
use crate::{
    algorithm::Algorithm,
    decision::{Cost, Decision},
    locks::lock,
    time::{Clock, SystemClock, Timestamp},
};

/// One rule and one budget, for a worker that should wait rather than drop jobs.
///
/// It has no keys and no store: a [`Limiter`](crate::Limiter) has, for a budget of each key or of
/// several processes. Requests of a tower service have a [layer](crate::RateLimitLayer).
///
/// Clones share the budget. A cost is charged only when its work can start at once. If the rule
/// would [delay](crate::Verdict::Delay) it, nothing is charged until the delay is over.
///
/// # Order
///
/// With the feature `tokio`, tasks can wait for the budget (`until_ready`). They are served in the
/// order of arrival, whatever they spend. While one of them waits,
/// [`can_do_work`](Self::can_do_work) and [`spend`](Self::spend) spend nothing.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, Timestamp, TokenBucket, pace::Pacer};
///
/// let pacer = Pacer::new(TokenBucket::per_second(10));
/// let noon = Timestamp::from_nanos(43_200_000_000_000);
///
/// assert!(pacer.can_do_work(noon));
/// assert!(pacer.spend(noon, Cost::new(9).unwrap()).is_some());
/// assert!(!pacer.can_do_work(noon));
///
/// let wait = pacer.look(noon).retry_after().unwrap();
/// assert!(pacer.can_do_work(noon.saturating_add(wait)));
/// ```
#[doc(alias("until_ready", "RateLimiter"))]
#[doc(alias("throttle", "delay", "leaky bucket", "spacing"))]
pub struct Pacer<A: Algorithm, C = SystemClock> {
    shared: Arc<Shared<A, C>>,
}

struct Shared<A: Algorithm, C> {
    rule: A,
    clock: C,
    state: Mutex<Option<A::State>>,
    /// Locked by the first waiting task, in the order of arrival. Nobody else spends while it is
    /// locked.
    #[cfg(feature = "tokio")]
    queue: tokio::sync::Mutex<()>,
}

impl<A: Algorithm> Pacer<A> {
    /// Creates an unused budget under `rule`, with the [`SystemClock`].
    pub fn new(rule: A) -> Self {
        Self::with_clock(rule, SystemClock::new())
    }
}

impl<A: Algorithm, C: Clock> Pacer<A, C> {
    /// Creates an unused budget under `rule`, with another clock.
    pub fn with_clock(rule: A, clock: C) -> Self {
        Self {
            shared: Arc::new(Shared {
                rule,
                clock,
                state: Mutex::new(None),
                #[cfg(feature = "tokio")]
                queue: tokio::sync::Mutex::default(),
            }),
        }
    }
}

impl<A: Algorithm, C> Pacer<A, C> {
    /// Spends one unit and returns `true` if that is allowed at `now` without waiting.
    ///
    /// If it returns `false`, nothing was spent. Reads no clock.
    pub fn can_do_work(&self, now: Timestamp) -> bool {
        self.spend(now, Cost::ONE).is_some()
    }

    /// Spends `cost` if that is allowed at `now` without waiting.
    ///
    /// Returns the decision, with the remaining units and the class. If it returns `None`, nothing
    /// was spent. Reads no clock.
    pub fn spend(&self, now: Timestamp, cost: Cost) -> Option<Decision> {
        let mut state = self.state();
        // A task that starts to wait after this check waits for the lock of the state.
        if self.is_awaited() {
            return None;
        }
        let decision = self.spend_at_once(&mut state, now, cost);
        (decision.is_admitted() && !is_delayed(&decision)).then_some(decision)
    }

    /// Returns the state of the budget at `now`, without spending. Reads no clock.
    ///
    /// `retry_after` is the wait after which [`can_do_work`](Self::can_do_work) returns `true`, if
    /// nobody else spends or waits. A delay of the rule is returned as a refusal; its `remaining`
    /// units can be spent only after the wait.
    pub fn look(&self, now: Timestamp) -> Decision {
        let look = self.shared.rule.look(self.state().as_ref(), now);
        if is_delayed(&look) {
            look.without_delay()
        } else {
            look
        }
    }

    /// Returns the rule.
    pub fn rule(&self) -> &A {
        &self.shared.rule
    }

    /// Returns the clock.
    pub fn clock(&self) -> &C {
        &self.shared.clock
    }

    fn state(&self) -> MutexGuard<'_, Option<A::State>> {
        lock(&self.shared.state)
    }

    /// Spends `cost` if it need not wait. Otherwise spends nothing, and the decision contains the
    /// wait.
    fn spend_at_once(&self, state: &mut Option<A::State>, now: Timestamp, cost: Cost) -> Decision {
        let rule = &self.shared.rule;
        // A state can be as long as a log, so it is copied only if the step may return a delay,
        // which a look determines for one unit. Settling the charge to 0 would need no copy, but is
        // not exact under all rules.
        let may_delay = cost > Cost::ONE || is_delayed(&rule.look(state.as_ref(), now));
        let before = may_delay.then(|| state.clone());
        let decision = rule.step(state, now, cost).decision();
        if let Some(before) = before.filter(|_| is_delayed(&decision)) {
            *state = before;
        }
        decision
    }

    #[cfg(feature = "tokio")]
    fn is_awaited(&self) -> bool {
        self.shared.queue.try_lock().is_err()
    }

    #[cfg(not(feature = "tokio"))]
    fn is_awaited(&self) -> bool {
        false
    }

    /// Waits to be the first in the queue. The guard keeps the place until it is dropped.
    #[cfg(feature = "tokio")]
    async fn head_of_queue(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.shared.queue.lock().await
    }
}

/// Returns the wait of a delayed admission.
fn delay(decision: &Decision) -> Option<Duration> {
    decision.delay().filter(|wait| !wait.is_zero())
}

fn is_delayed(decision: &Decision) -> bool {
    delay(decision).is_some()
}

impl_clone!([A: Algorithm, C] Pacer<A, C>, { shared });

impl_debug!([A: Algorithm, C] Pacer<A, C>, |it| rule = it.shared.rule);
