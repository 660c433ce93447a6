//! Waiting for the budget, in the order of arrival.

use std::time::Duration;

use tokio::time::sleep;

use super::{NeverReady, Pacer, pacer::delay};
use crate::{
    algorithm::Algorithm,
    decision::{Cost, Decision},
    time::Clock,
};

impl<A: Algorithm, C: Clock> Pacer<A, C> {
    /// Waits until one unit may be spent, and spends it.
    ///
    /// The details are those of [`until_ready_for`](Self::until_ready_for).
    ///
    /// # Errors
    ///
    /// Returns an error if the rule can never let a unit pass again. No rule of this crate does so.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{TokenBucket, time::TokioClock, pace::Pacer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tollgate::pace::NeverReady> {
    /// let pacer = Pacer::with_clock(TokenBucket::per_second(100).burst(1), TokioClock::new());
    /// let begun = tokio::time::Instant::now();
    /// for _ in 0..50 {
    ///     pacer.until_ready().await?;
    ///     // Work.
    /// }
    /// assert_eq!(begun.elapsed().as_millis(), 490);
    /// # Ok(()) }
    /// ```
    pub async fn until_ready(&self) -> Result<Decision, NeverReady> {
        self.until_ready_for(Cost::ONE).await
    }

    /// Waits until `cost` may be spent, and spends it.
    ///
    /// All clones share one queue, first come, first served: a small cost does not overtake a large one. The first task
    /// in the queue sleeps for the wait of the rule, by tokio's timer, then tries again by the pacer's clock. If the clock
    /// ran slower than the timer, it sleeps for the rest. A clock that stands still makes it wait forever: in tests, pause
    /// tokio's time and use [`TokioClock`](crate::time::TokioClock).
    ///
    /// # Errors
    ///
    /// Returns an error if the cost is above the rule's capacity, or the rule can never let it pass for another reason. It
    /// spends nothing, and is returned once all earlier tasks are served.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped before it is ready has spent nothing, and the next task in the queue goes on. A future that
    /// is neither dropped nor polled blocks the tasks behind it.
    ///
    /// # Panics
    ///
    /// Panics if it has to sleep outside of a tokio runtime with time.
    pub async fn until_ready_for(&self, cost: Cost) -> Result<Decision, NeverReady> {
        let _first = self.head_of_queue().await;
        loop {
            let now = self.clock().now();
            let decision = self.spend_at_once(&mut self.state(), now, cost);
            if let Some(wait) = delay(&decision) {
                sleep(wait).await;
                // Charged as of `now`, so that the next delay counts from the scheduled departure. Nobody else has spent
                // since, so the decision is the same.
                let departed = self.rule().step(&mut self.state(), now, cost);
                return Ok(departed.decision());
            }
            if decision.is_admitted() {
                return Ok(decision);
            }
            let Some(wait) = decision.retry_after() else {
                return Err(NeverReady::new(cost, decision.limit()));
            };
            // An incorrect rule that returns a wait of zero must not spin.
            sleep(wait.max(Duration::from_nanos(1))).await;
        }
    }
}
