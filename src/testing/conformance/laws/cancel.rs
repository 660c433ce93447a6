//! Checks of dropped calls.

use std::{fmt::Debug, future::IntoFuture};

use super::super::{
    Law,
    checker::{Burst, CheckResult, Checker, TestAsk},
    poll::{polled, together},
    subject::Subject,
};
use crate::algorithm::Algorithm;

/// The maximum number of dropped calls of one key.
const MAX_DROPS: u64 = 8;

impl<R: Algorithm + Debug> Checker<'_, R> {
    pub(in super::super) async fn cancel(&mut self) -> CheckResult {
        let mut checked = 0;
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.subject("alice");
            let Some(burst) = self.burst(&alice, rule, 3).await? else {
                continue;
            };
            checked += 1;
            self.dropped(&[alice], rule, &burst).await?;
            if !self.suite.leaves_out(Law::Several) {
                let two = ["bob", "carol"].map(|name| self.subject(name));
                self.dropped(&two, rule, &burst).await?;
            }
            self.left_behind(rule, &burst).await?;
        }
        if checked == 0 {
            return Err(self.nothing_counted());
        }
        Ok(())
    }

    /// Drops calls after several polls, then counts the admitted calls.
    async fn dropped(&mut self, subjects: &[Subject], rule: &R, burst: &Burst) -> CheckResult {
        let asked: Vec<_> = subjects
            .iter()
            .map(|subject| TestAsk::new(subject, rule, burst.units))
            .collect();
        let (mut answered, mut dropped) = (0, 0);
        for n in 0..MAX_DROPS.min((burst.calls - 1) / 2) {
            let polls = n as usize % 5;
            let asks: Vec<_> = asked.iter().map(TestAsk::ask).collect();
            let call = self.store.acquire(&asks).into_future();
            let what = format!(
                "a call for {} that is dropped after {polls} polls",
                burst.units
            );
            let answer = self.with_timeout(&what, polled(call, polls)).await?;
            match answer {
                None | Some(Err(_)) => dropped += 1,
                Some(Ok(decisions)) => answered += u64::from(decisions.is_admitted()),
            }
            self.note(what);
        }
        for subject in subjects {
            let passed = self.count_admitted(subject, rule, burst).await?;
            self.counted(burst, answered + passed, dropped)?;
        }
        Ok(())
    }

    /// Drops some of several calls of one key in flight; the others must be answered.
    async fn left_behind(&mut self, rule: &R, burst: &Burst) -> CheckResult {
        let subject = self.subject("dave");
        let asked = TestAsk::new(&subject, rule, burst.units);
        let many = burst.calls.min(MAX_DROPS) as usize;
        let calls: Vec<_> = (0..many)
            .map(|_| self.store.acquire(&[asked.ask()]).into_future())
            .collect();
        let line = format!(
            "{many} calls at once for {} of {subject}, the first of them dropped",
            burst.units
        );
        let is_dropped = |n| n == 0 || n == 2;
        let answers = self
            .with_timeout(&line, together(calls, is_dropped))
            .await?;
        self.note(line);
        let (mut admitted, mut unknown) = (0, 0);
        for answer in answers {
            match answer {
                None | Some(Err(_)) => unknown += 1,
                Some(Ok(decisions)) => admitted += u64::from(decisions.is_admitted()),
            }
        }
        let passed = self.count_admitted(&subject, rule, burst).await?;
        self.counted(burst, admitted + passed, unknown)
    }
}
