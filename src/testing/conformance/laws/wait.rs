//! Checks of the waits of an answer: until a retry, until more units, until a full quota.

use std::{fmt::Debug, time::Duration};

use super::super::{
    checker::{CheckResult, Checker},
    report::Breach,
    subject::Subject,
};
use crate::{
    algorithm::Algorithm,
    time::{Clock, Timestamp},
};

impl<R: Algorithm + Debug> Checker<'_, R> {
    pub(in super::super) async fn wait(&mut self) -> CheckResult {
        if self.suite.clock.is_none() && self.suite.sleep.is_none() {
            return Err(self.unchecked(
                "the suite cannot wait; give it the store's clock by `.clock(…)`, or a function that sleeps by `.sleep(…)`",
            ));
        }
        let mut checked = 0;
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.subject("alice");
            let limit = self.look(&alice, rule).await?.limit().unwrap_or(1);
            let mut units = vec![1, limit.div_ceil(2), limit];
            units.dedup();
            for units in units {
                checked += u32::from(self.retry(&alice, rule, units).await?);
            }
            self.more_and_reset(&alice, rule).await?;
            self.step_back(rule).await?;
        }
        if checked == 0 {
            return Err(self.unchecked(
                "no rule refuses for half a second or less; give the suite a rule that refills as soon, as `20/1s`",
            ));
        }
        Ok(())
    }

    /// Calls too early, then in time. Returns `true` if there was a refusal with a wait.
    async fn retry(&mut self, subject: &Subject, rule: &R, units: u64) -> Result<bool, Breach> {
        self.exhaust(subject, rule).await?;
        let refused = self.acquire(subject, rule, units).await?;
        let Some(wait) = refused
            .retry_after()
            .filter(|wait| !refused.is_admitted() && self.can_wait(*wait))
        else {
            return Ok(false);
        };
        if wait.is_zero() {
            return Err(self.breach("refused with a wait of zero"));
        }
        let due = refused.at().saturating_add(wait);
        let step = Duration::from_nanos(self.suite.step);
        let early = if self.moves_time() {
            wait.saturating_sub(step)
        } else {
            wait / 2
        };
        self.pass(early).await;
        let early = self.acquire(subject, rule, units).await?;
        if early.is_admitted() && early.at().saturating_add(step) <= due {
            return Err(self.breach(format!(
                "admitted {:?} before the end of its wait",
                due.saturating_since(early.at())
            )));
        }
        if early.is_admitted() {
            // The machine slept too long, so the rest cannot be checked.
            return Ok(true);
        }
        self.until(subject, rule, due).await?;
        let again = self.acquire(subject, rule, units).await?;
        if !again.is_admitted() {
            return Err(self.breach(format!("refused again after its wait of {wait:?}")));
        }
        Ok(true)
    }

    /// Checks `more_after` and `reset_after`.
    async fn more_and_reset(&mut self, subject: &Subject, rule: &R) -> CheckResult {
        self.exhaust(subject, rule).await?;
        let look = self.look(subject, rule).await?;
        let more = look.more_after();
        if !more.is_zero() && self.can_wait(more) {
            self.until(subject, rule, look.at().saturating_add(more))
                .await?;
        }
        let reset = look.reset_after();
        if self.can_wait(reset) {
            // From then on, the rule decides as for a new key.
            self.until(subject, rule, look.at().saturating_add(reset))
                .await?;
        }
        self.exhaust(subject, rule).await.map(drop)
    }

    /// Checks a step back of the clock by an hour, and forward again.
    async fn step_back(&mut self, rule: &R) -> CheckResult {
        let Some(clock) = &self.suite.clock else {
            return Ok(());
        };
        let subject = self.subject("bob");
        self.exhaust(&subject, rule).await?;
        let now = clock.now();
        let hour = 3_600_000_000_000;
        let back = Timestamp::from_nanos(now.as_nanos().saturating_sub(hour));
        self.note("the clock steps back by an hour".to_owned());
        clock.set(back);
        let behind = self.acquire(&subject, rule, 1).await;
        self.note("the clock is set forward again".to_owned());
        clock.set(now);
        behind?;
        self.acquire(&subject, rule, 1).await.map(drop)
    }
}
