//! Waiting for the budget, in line.

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
    /// All that [`until_ready_for`](Self::until_ready_for) says holds here.
    ///
    /// # Errors
    ///
    /// When the rule will never let a unit pass again. No rule of this crate says so.
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
    /// First come, first served, all clones together and whatever they spend: a small cost does not overtake a large
    /// one. Who is first sleeps as long as the rule says, by tokio's timer, and asks again by the pacer's clock.
    /// Since nobody else spends meanwhile, that passes, unless the clock went slower than the timer; then what is
    /// left is waited for. So the clock must run: with one that a test stops, pause tokio's time instead, and use
    /// [`TokioClock`](crate::time::TokioClock).
    ///
    /// # Errors
    ///
    /// When the cost is above the rule's capacity, or the rule will never let it pass for another reason. It
    /// spends nothing, and is told when all who came before are served.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped before it is ready has spent nothing, and the next in line goes on. One that is
    /// neither dropped nor polled holds up those behind it.
    ///
    /// # Panics
    ///
    /// Where it has to sleep outside of a tokio runtime with time.
    pub async fn until_ready_for(&self, cost: Cost) -> Result<Decision, NeverReady> {
        let _first = self.head_of_line().await;
        loop {
            let now = self.clock().now();
            let decision = self.spend_at_once(&mut self.state(), now, cost);
            if let Some(wait) = delay(&decision) {
                sleep(wait).await;
                // As of then, so that the next delay counts from the departure that was told. Nobody has spent
                // meanwhile, so the answer is the same.
                let departed = self.rule().step(&mut self.state(), now, cost);
                return Ok(departed.decision());
            }
            if decision.is_admitted() {
                return Ok(decision);
            }
            let Some(wait) = decision.retry_after() else {
                return Err(NeverReady::new(cost, decision.limit()));
            };
            // A rule that breaks the law and says "at once" must not keep the thread busy.
            sleep(wait.max(Duration::from_nanos(1))).await;
        }
    }
}
