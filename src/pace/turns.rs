//! One turn after the other, as time goes by.

use tokio::time::sleep;

use super::{Quanta, Turn};
use crate::time::{Clock, Timestamp};

/// The turns of [`Quanta`] one after the other, for a task that serves all senders.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, time::{Clock, TokioClock}, pace::{Pacer, Quanta, Turns}};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let clock = TokioClock::new();
/// let pacers = [1, 2, 3, 4].map(|limit| Pacer::with_clock(TokenBucket::per_second(limit), clock));
/// let mut turns = Turns::new(Quanta::new(Duration::from_secs(1), pacers.len()), clock);
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
    quanta: Quanta,
    clock: C,
    /// When the next turn begins that was not given yet.
    due: Timestamp,
}

impl<C: Clock> Turns<C> {
    /// The turns that begin from now on, by `clock`.
    pub fn new(quanta: Quanta, clock: C) -> Self {
        let due = quanta.turn(clock.now()).ends;
        Self { quanta, clock, due }
    }

    /// Goes on with other quanta, as when senders come or go.
    ///
    /// The turn that was given last keeps its end; the next one is that which the other quanta have there, or the
    /// rest of it.
    pub fn set_quanta(&mut self, quanta: Quanta) {
        self.quanta = quanta;
    }

    /// Waits for the next turn: never the same one twice, and never one that is over.
    ///
    /// Late by more than the rest of a quantum, because the work took longer or the task was not woken in time, it
    /// gives the turn that it is then, and [`missed`](Turn::missed) says how many were left out. Tokio's timer wakes
    /// at whole milliseconds, so quanta that are not longer than a few of them are missed regularly. Where the clock
    /// steps back, it waits until that has caught up.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped before it is ready takes no turn.
    ///
    /// # Panics
    ///
    /// Where it has to sleep outside of a tokio runtime with time.
    pub async fn next_turn(&mut self) -> Turn {
        loop {
            let now = self.clock.now();
            let early = self.due.saturating_since(now);
            if early.is_zero() {
                let turn = Turn {
                    missed: self.quanta.between(self.due, now),
                    ..self.quanta.turn(now)
                };
                self.due = turn.ends;
                return turn;
            }
            sleep(early).await;
        }
    }
}
