//! Turns of a round robin, awaited one after the other.

use tokio::time::sleep;

use super::{RoundRobin, Turn};
use crate::time::{Clock, Timestamp};

/// The turns of a [`RoundRobin`] one after the other, for a task that serves all senders.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, time::{Clock, TokioClock}, pace::{Pacer, RoundRobin, Turns}};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let clock = TokioClock::new();
/// let pacers = [1, 2, 3, 4].map(|limit| Pacer::with_clock(TokenBucket::per_second(limit), clock));
/// let mut turns = Turns::new(RoundRobin::new(Duration::from_secs(1), pacers.len()), clock);
/// let mut sent = [0; 4];
/// for _ in 0..40 {
///     let turn = turns.next_turn().await;
///     assert_eq!(turn.missed, 0);
///     while clock.now() < turn.ends && pacers[turn.sender].can_do_work(clock.now()) {
///         sent[turn.sender] += 1;
///     }
/// }
/// assert_eq!(sent, [10, 20, 30, 40]);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Turns<C> {
    schedule: RoundRobin,
    clock: C,
    /// The beginning of the next turn that was not returned yet.
    due: Timestamp,
}

impl<C: Clock> Turns<C> {
    /// Creates the turns that begin from now on, by `clock`.
    pub fn new(schedule: RoundRobin, clock: C) -> Self {
        let due = schedule.turn(clock.now()).ends;
        Self {
            schedule,
            clock,
            due,
        }
    }

    /// Switches to another schedule, for example when senders come or go.
    ///
    /// The last returned turn keeps its end. The next one is the turn of the new schedule at that instant, or the rest of
    /// it.
    pub fn set_schedule(&mut self, schedule: RoundRobin) {
        self.schedule = schedule;
    }

    /// Waits for the next turn. No turn is returned twice, or after its end.
    ///
    /// If the work of a turn took too long, or the task was woken late, turns may have passed. The current turn is then
    /// returned, and [`missed`](Turn::missed) is the number of turns that were skipped. Tokio's timer wakes at whole
    /// milliseconds, so slices of a few milliseconds are missed regularly. If the clock steps back, the future waits until
    /// it has caught up.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped before it is ready skips no turn.
    ///
    /// # Panics
    ///
    /// Panics if it has to sleep outside of a tokio runtime with time.
    pub async fn next_turn(&mut self) -> Turn {
        loop {
            let now = self.clock.now();
            let early = self.due.saturating_since(now);
            if early.is_zero() {
                let turn = Turn {
                    missed: self.schedule.between(self.due, now),
                    ..self.schedule.turn(now)
                };
                self.due = turn.ends;
                return turn;
            }
            sleep(early).await;
        }
    }
}
