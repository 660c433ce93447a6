//! Checks of resets.

use std::fmt::Debug;

use super::super::checker::{CheckResult, Checker};
use crate::algorithm::Algorithm;

impl<R: Algorithm + Debug> Checker<'_, R> {
    pub(in super::super) async fn resets(&mut self) -> CheckResult {
        for rule in &self.suite.rules {
            self.begin(rule);
            let (alice, bob) = (self.subject("alice"), self.subject("bob"));
            let elsewhere = self.named("alice elsewhere", " elsewhere", alice.key);
            for subject in [&alice, &bob, &elsewhere] {
                self.exhaust(subject, rule).await?;
            }
            for _ in 0..2 {
                self.reset(&alice).await?;
                let first = self.acquire(&alice, rule, 1).await?;
                if !self.is_like_new(&alice, rule, &first) {
                    return Err(self.breach("a key that was reset is not like a new one"));
                }
                self.exhaust(&alice, rule).await?;
            }
            self.look(&bob, rule).await?;
            self.look(&elsewhere, rule).await?;
            // A key that was never used.
            let nobody = self.subject("nobody");
            self.reset(&nobody).await?;
            self.acquire(&nobody, rule, 1).await?;
        }
        Ok(())
    }
}
