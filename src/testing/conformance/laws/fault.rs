//! Checks of faults.

use std::{fmt::Debug, time::Duration};

use super::super::{
    checker::{CheckResult, Checker},
    subject::Subject,
};
use crate::{algorithm::Algorithm, decision::Decision};

/// The maximum number of calls during the fault.
const MAX_CALLS: u64 = 6;
/// The number of looks after the fault.
const TRIES: usize = 100;
/// The pause after each.
const PAUSE: Duration = Duration::from_millis(100);

impl<R: Algorithm + Debug> Checker<'_, R> {
    pub(in super::super) async fn faults(&mut self) -> CheckResult {
        let Some(fault) = &self.suite.fault else {
            return Ok(());
        };
        let mut checked = 0;
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.subject("alice");
            let Some(burst) = self.burst(&alice, rule, 3).await? else {
                continue;
            };
            checked += 1;
            let calls = MAX_CALLS.min((burst.calls - 1) / 2);
            self.note("the fault begins".to_owned());
            fault(true);
            let met = self
                .call_during_fault(&alice, rule, burst.units, calls)
                .await;
            self.note("the fault ends".to_owned());
            fault(false);
            met?;
            self.come_back(rule).await?;
            let passed = self.count_admitted(&alice, rule, &burst).await?;
            self.counted(&burst, passed, calls)?;
            // The rest of the store works.
            let bob = self.subject("bob");
            self.exhaust(&bob, rule).await?;
        }
        if checked == 0 {
            return Err(self.nothing_counted());
        }
        Ok(())
    }

    /// Checks that each call during the fault ends, and that undecided answers have no numbers.
    async fn call_during_fault(
        &mut self,
        subject: &Subject,
        rule: &R,
        units: u64,
        calls: u64,
    ) -> CheckResult {
        for _ in 0..calls {
            for answer in [
                self.try_acquire(subject, rule, units).await?,
                self.try_look(subject, rule).await?,
            ] {
                let invented = |decision: &Decision| {
                    decision.is_undecided()
                        && (decision.limit().is_some() || decision.charge().is_some())
                };
                if answer.is_ok_and(|decision| invented(&decision)) {
                    return Err(self.breach("an undecided answer has numbers"));
                }
            }
        }
        Ok(())
    }

    /// Waits until the store decides again.
    async fn come_back(&mut self, rule: &R) -> CheckResult {
        let nobody = self.subject("nobody");
        for _ in 0..TRIES {
            let look = self.try_look(&nobody, rule).await?;
            if look.is_ok_and(|decision| !decision.is_undecided()) {
                return Ok(());
            }
            self.pass(PAUSE).await;
            // A circuit breaker may use another clock.
            if let Some(sleep) = self.suite.sleep.as_ref().filter(|_| self.moves_time()) {
                sleep(PAUSE).await;
            }
        }
        Err(self.breach(format!("no answer in {TRIES} looks after the fault")))
    }
}
