//! Checks of several asks in one call.

use std::fmt::Debug;

use super::super::checker::{CheckResult, Checker, TestAsk};
use crate::algorithm::Algorithm;

impl<R: Algorithm + Debug> Checker<'_, R> {
    pub(in super::super) async fn several_asks(&mut self) -> CheckResult {
        let rules = &self.suite.rules;
        for (n, rule) in rules.iter().enumerate() {
            self.begin(rule);
            // Equal to `rule` if there is only one.
            let other = &rules[(n + 1) % rules.len()];
            let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| self.subject(name));
            let of = |subject, units| TestAsk::new(subject, rule, units);
            // Different costs, to check the order of the answers.
            self.several(&[of(&alice, 1), of(&bob, 2)]).await?;
            self.several(&[TestAsk::new(&bob, rule, 1), TestAsk::new(&carol, other, 1)])
                .await?;

            self.exhaust(&bob, rule).await?;
            let limit = self.look(&carol, other).await?.limit().unwrap_or(1);
            for _ in 0..2 {
                self.several(&[of(&alice, 1), of(&bob, 1)]).await?;
                self.several(&[of(&bob, 1), of(&alice, 1)]).await?;
                self.several(&[of(&alice, 1), of(&bob, 1), TestAsk::new(&carol, other, 1)])
                    .await?;
                let beyond = limit.saturating_add(1);
                self.several(&[of(&alice, 1), TestAsk::new(&carol, other, beyond)])
                    .await?;
            }
            self.look_at(&[of(&bob, 1), TestAsk::new(&carol, other, 1), of(&alice, 1)])
                .await?;

            // One key under two policies, and one key twice.
            let elsewhere = self.named("alice elsewhere", " elsewhere", alice.key);
            self.several(&[of(&alice, 1), of(&elsewhere, 1)]).await?;
            let dave = self.subject("dave");
            self.several(&[of(&dave, 1), of(&dave, 1)]).await?;
            let left = self.look(&dave, rule).await?.remaining().unwrap_or(0);
            self.several(&[of(&dave, left.max(1)), of(&alice, 1), of(&dave, 1)])
                .await?;
            self.look_at(&[of(&dave, 1), of(&alice, 1), of(&elsewhere, 1)])
                .await?;
        }
        Ok(())
    }
}
