//! Settling and resetting.

use std::fmt::Debug;

use super::{CheckResult, Checker, TestAsk};
use crate::{
    algorithm::Algorithm,
    decision::Charge,
    store::Settlement,
    testing::conformance::{subject::Subject, tested::ErrorText},
};

/// A settlement, with the subject for messages.
pub(in super::super) struct TestSettlement<'a, R> {
    pub(in super::super) subject: &'a Subject,
    pub(in super::super) rule: &'a R,
    pub(in super::super) charge: Charge,
    pub(in super::super) actual: u64,
}

impl<R: Algorithm + Debug> Checker<'_, R> {
    /// Settles, and compares the state afterwards.
    pub(in super::super) async fn settle(
        &mut self,
        corrected: &[TestSettlement<'_, R>],
    ) -> CheckResult {
        let Some(first) = corrected.first() else {
            return Ok(());
        };
        let before = self.look(first.subject, first.rule).await?;
        let settlements: Vec<_> = corrected
            .iter()
            .map(|corrected| Settlement {
                policy: &corrected.subject.policy,
                rule: corrected.rule,
                key: corrected.subject.key,
                charge: corrected.charge.duplicate(),
                actual: corrected.actual,
                is_grant: false,
            })
            .collect();
        let each: Vec<_> = corrected
            .iter()
            .map(|it| format!("{} of {} as {}", it.charge.cost, it.subject, it.actual))
            .collect();
        let line = format!("settle {}", each.join(" and "));
        let check = self.store.settle(settlements);
        let done = self.with_timeout(&line, async move { check.await }).await?;
        self.ended(&line, done)?;
        // The instant of the settlement is between those of two looks.
        let looked = [TestAsk::new(first.subject, first.rule, 1)];
        let after = self.decided(&looked, true).await?[0];
        for it in corrected {
            let between = [before.at(), after.at()];
            self.model
                .settle(it.subject, it.rule, &it.charge, between, it.actual);
        }
        let compared = self.model.look(first.subject, first.rule, &after);
        self.compared(compared, &after)?;
        for it in &corrected[1..] {
            self.look(it.subject, it.rule).await?;
        }
        Ok(())
    }

    /// Resets a key.
    pub(in super::super) async fn reset(&mut self, subject: &Subject) -> CheckResult {
        let line = format!("reset {subject}");
        let check = self.store.reset(&subject.policy, &subject.key);
        let done = self.with_timeout(&line, async move { check.await }).await?;
        self.ended(&line, done)?;
        self.model.forget(subject);
        Ok(())
    }

    fn ended(&mut self, line: &str, done: Result<(), ErrorText>) -> CheckResult {
        match done {
            Ok(()) => {
                self.note(line.to_owned());
                Ok(())
            }
            Err(error) => Err(self.breach(format!("{line}: the store failed: {error:?}"))),
        }
    }
}
