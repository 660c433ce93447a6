//! Checks of changes of the rule.

use std::fmt::Debug;

use super::super::checker::{CheckResult, Checker};
use crate::algorithm::Algorithm;

/// The maximum number of changes.
const MAX_CHANGES: usize = 40;

impl<R: Algorithm + Debug> Checker<'_, R> {
    pub(in super::super) async fn change(&mut self) -> CheckResult {
        let rules = &self.suite.rules;
        if rules.len() < 2 {
            return Err(self.unchecked("there is only one rule; give the suite another one"));
        }
        // Adjacent rules first, then those further apart.
        let apart = (1..rules.len()).flat_map(|apart| (0..rules.len()).map(move |n| (n, apart)));
        for (n, apart) in apart.take(MAX_CHANGES) {
            let (old, new) = (&rules[n], &rules[(n + apart) % rules.len()]);
            self.begin(old);
            let (spent, calm) = (self.subject("spent"), self.subject("calm"));
            self.exhaust(&spent, old).await?;
            self.acquire(&calm, old, 1).await?;
            for subject in [&spent, &calm] {
                self.look(subject, new).await?;
                self.acquire(subject, new, 1).await?;
                self.look(subject, old).await?;
                self.acquire(subject, old, 1).await?;
                self.acquire(subject, new, 1).await?;
            }
        }
        Ok(())
    }
}
