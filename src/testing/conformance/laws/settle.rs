//! Checks of settlements.

use std::{fmt::Debug, time::Duration};

use super::super::{
    Law,
    checker::{CheckResult, Checker, TestSettlement},
    report::Breach,
    subject::Subject,
};
use crate::{algorithm::Algorithm, decision::Charge};

impl<R: Algorithm + Debug> Checker<'_, R> {
    pub(in super::super) async fn settles(&mut self) -> CheckResult {
        let unsettled = self.store.unsettled();
        let mut checked = 0;
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.subject("alice");
            let Some(burst) = self.burst(&alice, rule, 2).await? else {
                continue;
            };
            checked += 1;
            let half = burst.units.saturating_mul(burst.calls / 2);
            let whole = burst.units.saturating_mul(burst.calls);
            self.spend_and_settle(&alice, rule, half, 0).await?;
            self.spend_and_settle(&alice, rule, half, half.div_ceil(2))
                .await?;
            self.spend_and_settle(&alice, rule, 1, 1).await?;
            // More than the key has, so that it is in debt.
            self.spend_and_settle(&alice, rule, 1, whole).await?;
            self.acquire(&alice, rule, 1).await?;

            self.one_of_two(rule, half).await?;
            self.in_one_call(rule, half).await?;
            self.later(rule, half).await?;
        }
        if checked == 0 {
            return Err(self.nothing_counted());
        }
        // All of them were made.
        let after = self.store.unsettled();
        if after != unsettled {
            return Err(self.breach(format!(
                "the store counts {after:?} failed settlements after settlements that were made, and {unsettled:?} before them"
            )));
        }
        Ok(())
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
        let Some(charge) = self.charged(subject, rule, units).await? else {
            return Ok(());
        };
        let corrected = TestSettlement {
            subject,
            rule,
            charge,
            actual,
        };
        self.settle(&[corrected]).await
    }

    /// Settles the earlier one of two charges, then the other one.
    async fn one_of_two(&mut self, rule: &R, units: u64) -> CheckResult {
        let bob = &self.subject("bob");
        let charges = [
            self.charged(bob, rule, units).await?,
            self.charged(bob, rule, 1).await?,
        ];
        for charge in charges.into_iter().flatten() {
            let corrected = TestSettlement {
                subject: bob,
                rule,
                charge,
                actual: 0,
            };
            self.settle(&[corrected]).await?;
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
        let corrected = |subject, charge, actual| TestSettlement {
            subject,
            rule,
            charge,
            actual,
        };
        self.settle(&[
            corrected(carol, first, 0),
            corrected(dave, second.duplicate(), 1),
        ])
        .await?;
        if !self.suite.leaves_out(Law::Reset) {
            self.reset(dave).await?;
            self.settle(&[corrected(dave, second, 0)]).await?;
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
            if !self.can_wait(back) {
                continue;
            }
            self.pass(back / part + Duration::from_nanos(1)).await;
            for actual in [0, units.saturating_mul(2)] {
                let corrected = TestSettlement {
                    subject: erin,
                    rule,
                    charge: charge.duplicate(),
                    actual,
                };
                self.settle(&[corrected]).await?;
            }
            self.acquire(erin, rule, 1).await?;
        }
        Ok(())
    }
}
