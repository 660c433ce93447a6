//! Checks of what one key may spend: its limit, its waits, its settlements.

use std::time::Duration;

use super::{
    super::{
        Breach,
        calls::TestAsk,
        checker::{CheckResult, Checker, MAX_CALLS, Subject},
    },
    Law,
};
use crate::{
    algorithm::Algorithm,
    decision::Charge,
    time::{Clock, Timestamp},
};

/// Checks of the limit, and of refusals, excessive costs and looks.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn limit(&mut self, rule: &R) -> CheckResult {
        let alice = self.subject("alice");
        let Some(burst) = self.burst(&alice, rule, 1).await? else {
            // Calls cannot be counted, but numbers are compared.
            self.exhaust(&alice, rule).await?;
            return Ok(());
        };
        let mut passed = 0;
        for _ in 0..burst.calls + MAX_CALLS {
            let answer = self.acquire(&alice, rule, burst.units).await?;
            if !answer.is_admitted() {
                break;
            }
            passed += 1;
        }
        self.counted(&burst, passed, 0)?;
        // Costs up to the remaining units, and one above.
        let bob = self.subject("bob");
        for part in [3, 2, 1, 1] {
            let left = self.look(&bob, rule).await?.remaining().unwrap_or(0);
            self.acquire(&bob, rule, (left / part).max(1)).await?;
        }
        Ok(())
    }

    pub(crate) async fn refusal(&mut self, rule: &R) -> CheckResult {
        let alice = self.subject("alice");
        let limit = self.look(&alice, rule).await?.limit().unwrap_or(1);
        self.acquire(&alice, rule, limit.div_ceil(2)).await?;
        // Costs above the remaining units.
        for units in [limit, limit, limit.div_ceil(2) + 1, limit] {
            self.acquire(&alice, rule, units).await?;
            self.look(&alice, rule).await?;
        }
        self.exhaust(&alice, rule).await?;
        for units in [1, 1, limit, 1, limit.div_ceil(2)] {
            self.acquire(&alice, rule, units).await?;
        }
        self.look(&alice, rule).await.map(drop)
    }

    pub(crate) async fn never(&mut self, rule: &R) -> CheckResult {
        let (fresh, spent) = (self.subject("fresh"), self.subject("spent"));
        let look = self.look(&fresh, rule).await?;
        let limit = look.limit().unwrap_or(1);
        let once = self.acquire(&spent, rule, 1).await?;
        for (subject, before) in [(&fresh, look), (&spent, once)] {
            for units in [limit.saturating_add(1), 1 << 41, u64::MAX] {
                let answer = self.acquire(subject, rule, units).await?;
                if answer.is_admitted() || answer.retry_after().is_some() {
                    return Err(self.breach(format!(
                        "a cost of {units} is above the capacity of {limit}, but is not refused without a wait"
                    )));
                }
            }
            let after = self.look(subject, rule).await?;
            if after.remaining() < before.remaining() {
                return Err(self.breach("a cost that never passes was charged"));
            }
        }
        Ok(())
    }

    pub(crate) async fn look_only(&mut self, rule: &R) -> CheckResult {
        let alice = self.subject("alice");
        for _ in 0..4 {
            self.look(&alice, rule).await?;
            let look = self.look(&alice, rule).await?;
            let left = look.remaining().unwrap_or(0);
            for units in [left.saturating_add(1), left.div_ceil(2).max(1)] {
                self.acquire(&alice, rule, units).await?;
            }
        }
        Ok(())
    }
}

/// Checks of the waits of an answer: until a retry, until more units, until a full quota.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn wait(&mut self) -> CheckResult {
        if self.suite.clock.is_none() && self.suite.sleep.is_none() {
            return Err(self.unchecked(
                "the suite cannot wait; give it the store's clock by `.clock(…)`, or a function that sleeps by `.sleep(…)`",
            ));
        }
        let mut checked = 0;
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.subject("alice");
            let look = self.look(&alice, rule).await?;
            if look.is_in_flight() {
                self.holds(&alice, rule).await?;
                self.step_back(rule).await?;
                checked += 1;
                continue;
            }
            let limit = look.limit().unwrap_or(1);
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

    /// Checks that the end of a call gives back what it holds, and the wait of a refusal does not.
    async fn holds(&mut self, subject: &Subject, rule: &R) -> CheckResult {
        let first = self.charged(subject, rule, 1).await?;
        let refused = self.exhaust(subject, rule).await?;
        let wait = refused.retry_after().unwrap_or_default();
        if self.can_wait(wait) {
            self.pass(wait).await;
        }
        // Admitted only if the model's maximal hold is over, too.
        self.acquire(subject, rule, 1).await?;
        let Some(charge) = first else {
            return Err(self.breach("a call holds nothing".to_owned()));
        };
        self.settle_one(subject, rule, charge, 0).await?;
        let next = self.acquire(subject, rule, 1).await?;
        if !next.is_admitted() {
            return Err(self.breach("refused although a call has ended".to_owned()));
        }
        self.acquire(subject, rule, 1).await.map(drop)
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

/// Checks of settlements.
impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn settles(&mut self) -> CheckResult {
        let unsettled = self.store.unsettled();
        self.each_counted(Self::settles_under).await?;
        // No settlement failed.
        let after = self.store.unsettled();
        if after != unsettled {
            return Err(self.breach(format!(
                "the store counts {after:?} failed settlements after settlements that were made, and {unsettled:?} before them"
            )));
        }
        Ok(())
    }

    async fn settles_under(&mut self, rule: &R) -> CheckResult {
        let alice = self.subject("alice");
        let Some(burst) = self.burst(&alice, rule, 2).await? else {
            return Ok(());
        };
        let half = burst.units.saturating_mul(burst.calls / 2);
        let whole = burst.units.saturating_mul(burst.calls);
        self.spend_and_settle(&alice, rule, half, 0).await?;
        self.spend_and_settle(&alice, rule, half, half.div_ceil(2))
            .await?;
        self.spend_and_settle(&alice, rule, 1, 1).await?;
        // More than the key has left, so that it is in debt.
        self.spend_and_settle(&alice, rule, 1, whole).await?;
        self.acquire(&alice, rule, 1).await?;

        self.one_of_two(rule, half).await?;
        self.in_one_call(rule, half).await?;
        self.later(rule, half).await
    }

    async fn charged(
        &mut self,
        subject: &Subject,
        rule: &R,
        units: u64,
    ) -> Result<Option<Charge>, Breach> {
        Ok(self.acquire(subject, rule, units).await?.charge())
    }

    /// Spends, and settles the charge.
    async fn spend_and_settle(
        &mut self,
        subject: &Subject,
        rule: &R,
        units: u64,
        actual: u64,
    ) -> CheckResult {
        match self.charged(subject, rule, units).await? {
            Some(charge) => self.settle_one(subject, rule, charge, actual).await,
            None => Ok(()),
        }
    }

    /// Settles the earlier one of two charges, then the other one.
    async fn one_of_two(&mut self, rule: &R, units: u64) -> CheckResult {
        let bob = &self.subject("bob");
        let charges = [
            self.charged(bob, rule, units).await?,
            self.charged(bob, rule, 1).await?,
        ];
        for charge in charges.into_iter().flatten() {
            self.settle_one(bob, rule, charge, 0).await?;
        }
        self.acquire(bob, rule, 1).await.map(drop)
    }

    /// Settles two keys in one call, and a charge of a key that was reset since.
    async fn in_one_call(&mut self, rule: &R, units: u64) -> CheckResult {
        let (carol, dave) = (&self.subject("carol"), &self.subject("dave"));
        let charges = (
            self.charged(carol, rule, units).await?,
            self.charged(dave, rule, units).await?,
        );
        let (Some(first), Some(second)) = charges else {
            return Ok(());
        };
        self.settle(&[
            (TestAsk::new(carol, rule, 0), first),
            (TestAsk::new(dave, rule, 1), second.duplicate()),
        ])
        .await?;
        if !self.suite.leaves_out(Law::Reset) {
            self.reset(dave).await?;
            self.settle_one(dave, rule, second, 0).await?;
            self.acquire(dave, rule, 1).await?;
        }
        Ok(())
    }

    /// Settles after a part of the charge is refilled, and after all of it is.
    async fn later(&mut self, rule: &R, units: u64) -> CheckResult {
        if !self.moves_time() {
            return Ok(());
        }
        for part in [3, 1] {
            let erin = &self.subject("erin");
            let Some(charge) = self.charged(erin, rule, units).await? else {
                continue;
            };
            let back = self.look(erin, rule).await?.reset_after();
            // What a call holds is over with its lease, and settled in vain then.
            let is_over = rule.renewal().is_some_and(|held| held.lease <= back);
            if is_over || !self.can_wait(back) {
                continue;
            }
            self.pass(back / part + Duration::from_nanos(1)).await;
            for actual in [0, units.saturating_mul(2)] {
                self.settle_one(erin, rule, charge.duplicate(), actual)
                    .await?;
            }
            self.acquire(erin, rule, 1).await?;
        }
        Ok(())
    }
}
