//! Checks of the limit, and of refusals, excessive costs and looks.

use std::fmt::Debug;

use super::super::checker::{CheckResult, Checker, MAX_CALLS};
use crate::algorithm::Algorithm;

impl<R: Algorithm + Debug> Checker<'_, R> {
    pub(in super::super) async fn limit(&mut self) -> CheckResult {
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.subject("alice");
            let Some(burst) = self.burst(&alice, rule, 1).await? else {
                // Calls cannot be counted, but numbers are compared.
                self.exhaust(&alice, rule).await?;
                continue;
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
        }
        Ok(())
    }

    pub(in super::super) async fn refusal(&mut self) -> CheckResult {
        for rule in &self.suite.rules {
            self.begin(rule);
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
            self.look(&alice, rule).await?;
        }
        Ok(())
    }

    pub(in super::super) async fn never(&mut self) -> CheckResult {
        for rule in &self.suite.rules {
            self.begin(rule);
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
        }
        Ok(())
    }

    pub(in super::super) async fn look_only(&mut self) -> CheckResult {
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.subject("alice");
            for _ in 0..4 {
                self.look(&alice, rule).await?;
                let look = self.look(&alice, rule).await?;
                let left = look.remaining().unwrap_or(0);
                for units in [left.saturating_add(1), left.div_ceil(2).max(1)] {
                    self.acquire(&alice, rule, units).await?;
                }
            }
        }
        Ok(())
    }
}
