//! The promises of an answer: when to retry, when there is more, when all is back.

use std::{fmt::Debug, time::Duration};

use super::super::{
    bench::{Bench, Kept},
    place::Place,
    report::Breach,
};
use crate::{
    algorithm::Algorithm,
    store::Store,
    time::{Clock, Timestamp},
};

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(in super::super) async fn wait(&mut self) -> Kept {
        if self.suite.clock.is_none() && self.suite.sleep.is_none() {
            return Err(self.unchecked(
                "nobody can wait; give the suite the store's clock by `.clock(…)`, or a way to sleep by `.sleep(…)`",
            ));
        }
        let mut checked = 0;
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.place("alice");
            let limit = self.look(&alice, rule).await?.limit().unwrap_or(1);
            let mut units = vec![1, limit.div_ceil(2), limit];
            units.dedup();
            for units in units {
                checked += u32::from(self.retry(&alice, rule, units).await?);
            }
            self.standing(&alice, rule).await?;
            self.step_back(rule).await?;
        }
        if checked == 0 {
            return Err(self.unchecked(
                "no rule refuses for half a second or less; give the suite a rule that refills so soon, as `20/1s`",
            ));
        }
        Ok(())
    }

    /// Is refused, comes too early, and comes in time; tells whether it came to that.
    async fn retry(&mut self, place: &Place, rule: &R, units: u64) -> Result<bool, Breach> {
        self.exhaust(place, rule).await?;
        let refused = self.acquire(place, rule, units).await?;
        let Some(wait) = refused
            .retry_after()
            .filter(|wait| !refused.is_admitted() && self.can_wait(*wait))
        else {
            return Ok(false);
        };
        if wait.is_zero() {
            return Err(self.breach("refused, and told to retry at once"));
        }
        let due = refused.at().saturating_add(wait);
        let step = Duration::from_nanos(self.suite.step);
        let early = if self.moves_time() {
            wait.saturating_sub(step)
        } else {
            wait / 2
        };
        self.pass(early).await;
        let early = self.acquire(place, rule, units).await?;
        if early.is_admitted() && early.at().saturating_add(step) <= due {
            return Err(self.breach(format!(
                "admitted {:?} before it was told to come",
                due.saturating_since(early.at())
            )));
        }
        if early.is_admitted() {
            // The machine slept longer than it was told: too late to see the rest.
            return Ok(true);
        }
        self.until(place, rule, due).await?;
        let again = self.acquire(place, rule, units).await?;
        if !again.is_admitted() {
            return Err(self.breach(format!(
                "refused again, though it came after {wait:?} as told"
            )));
        }
        Ok(true)
    }

    /// There is more when it was told, and all is back when that was told.
    async fn standing(&mut self, place: &Place, rule: &R) -> Kept {
        self.exhaust(place, rule).await?;
        let look = self.look(place, rule).await?;
        let more = look.more_after();
        if !more.is_zero() && self.can_wait(more) {
            self.until(place, rule, look.at().saturating_add(more))
                .await?;
        }
        let reset = look.reset_after();
        if self.can_wait(reset) {
            // In the end, the numbers are those of a key that was never seen, by the rule.
            self.until(place, rule, look.at().saturating_add(reset))
                .await?;
        }
        self.exhaust(place, rule).await.map(drop)
    }

    /// An hour back, and forth again.
    async fn step_back(&mut self, rule: &R) -> Kept {
        let Some(clock) = &self.suite.clock else {
            return Ok(());
        };
        let place = self.place("bob");
        self.exhaust(&place, rule).await?;
        let now = clock.now();
        let hour = 3_600_000_000_000;
        let back = Timestamp::from_nanos(now.as_nanos().saturating_sub(hour));
        self.note("the clock steps back by an hour".to_owned());
        clock.set(back);
        let behind = self.acquire(&place, rule, 1).await;
        self.note("the clock is put right".to_owned());
        clock.set(now);
        behind?;
        self.acquire(&place, rule, 1).await.map(drop)
    }
}
