//! Checks of rules of several kinds on one key, for example of two releases.

use std::fmt::Debug;

use super::super::{
    checker::{CheckResult, Checker},
    subject::Subject,
};
use crate::algorithm::Algorithm;

/// The number of calls that exhaust a rule.
const CALLS: u64 = 4;

impl<R: Algorithm + Debug> Checker<'_, R> {
    pub(in super::super) async fn kinds(&mut self) -> CheckResult {
        // The first rule of each kind.
        let mut rules: Vec<&R> = Vec::new();
        for rule in &self.suite.rules {
            if rules
                .iter()
                .all(|one| one.state_kind() != rule.state_kind())
            {
                rules.push(rule);
            }
        }
        for turn in 0..2 {
            self.begin(rules[0]);
            let subject = self.subject("alice");
            if turn == 0 {
                self.exhaust_in_turn(&subject, &rules).await?;
            } else {
                for rule in &rules {
                    self.exhaust(&subject, rule).await?;
                }
            }
            for rule in rules.iter().rev() {
                self.acquire(&subject, rule, 1).await?;
            }
            self.reset_all(&subject, &rules).await?;
        }
        for (n, one) in rules.iter().enumerate().skip(1) {
            let pair = [*one, rules[n - 1]];
            self.begin(one);
            let subject = self.subject("alice");
            self.exhaust_in_turn(&subject, &pair).await?;
            self.acquire(&subject, one, 1).await?;
            self.reset_all(&subject, &pair).await?;
        }
        Ok(())
    }

    /// Calls the rules in turn until all of them are nearly exhausted.
    async fn exhaust_in_turn(&mut self, subject: &Subject, rules: &[&R]) -> CheckResult {
        let mut units = Vec::new();
        for rule in rules {
            let left = self.look(subject, rule).await?.remaining().unwrap_or(0);
            units.push(left / CALLS + 1);
        }
        for _ in 0..=CALLS {
            for (rule, units) in rules.iter().zip(&units) {
                self.acquire(subject, rule, *units).await?;
            }
        }
        Ok(())
    }

    /// Checks that a reset clears the states of all kinds.
    async fn reset_all(&mut self, subject: &Subject, rules: &[&R]) -> CheckResult {
        self.reset(subject).await?;
        for rule in rules {
            let first = self.acquire(subject, rule, 1).await?;
            if !self.is_like_new(subject, rule, &first) {
                let what = format!("a key that was reset is not like a new one under {rule:?}");
                return Err(self.breach(what));
            }
        }
        Ok(())
    }
}
