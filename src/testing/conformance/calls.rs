//! Calls of a store, compared with the decisions of its rule.

use std::time::Duration;

use super::{
    Breach,
    checker::{CheckResult, Checker, Subject, cost},
    model::in_words,
};
use crate::{
    algorithm::Algorithm,
    decision::{Charge, Decision},
    store::{Ask, Renewed},
};

/// An ask, with the subject for messages.
pub(super) struct TestAsk<'a, R> {
    pub(super) subject: &'a Subject,
    pub(super) rule: &'a R,
    pub(super) units: u64,
}

impl<'a, R> TestAsk<'a, R> {
    pub(super) fn new(subject: &'a Subject, rule: &'a R, units: u64) -> Self {
        Self {
            subject,
            rule,
            units,
        }
    }

    pub(super) fn ask(&self) -> Ask<'a, R> {
        let cost = cost(self.units);
        Ask::new(&self.subject.policy, self.rule, self.subject.key, cost)
    }
}

/// Acquiring and looking.
impl<R: Algorithm> Checker<'_, R> {
    /// Describes several asks for a message.
    fn line(&self, verb: &str, asked: &[TestAsk<'_, R>]) -> String {
        let each: Vec<_> = asked
            .iter()
            .map(|asked| {
                let under = format!("{:?}", asked.rule);
                let under = if under == self.under {
                    String::new()
                } else {
                    format!(" under {under}")
                };
                if verb == "look" {
                    format!("at {}{under}", asked.subject)
                } else {
                    format!("{} of {}{under}", asked.units, asked.subject)
                }
            })
            .collect();
        format!("{verb} {}", each.join(" and "))
    }

    /// Returns the store's answer, correct or not, or its error as text.
    pub(super) async fn answer(
        &mut self,
        asked: &[TestAsk<'_, R>],
        is_look: bool,
    ) -> Result<Result<Vec<Decision>, String>, Breach> {
        asked.iter().for_each(|asked| self.regard(asked.rule));
        let line = self.line(if is_look { "look" } else { "acquire" }, asked);
        let asks: Vec<_> = asked.iter().map(TestAsk::ask).collect();
        let answering = if is_look {
            self.store.look(&asks)
        } else {
            self.store.acquire(&asks)
        };
        let answer = self.with_timeout(&line, answering).await?;
        let answer = answer.map(|decisions| decisions.as_slice().to_vec());
        match &answer {
            Ok(decisions) => {
                let each: Vec<_> = decisions.iter().map(in_words).collect();
                self.note(format!("{line}: {}", each.join(" / ")));
                if decisions.len() != asked.len() {
                    let what = format!("{} decisions for {} asks", decisions.len(), asked.len());
                    return Err(self.breach(what));
                }
                for decision in decisions.iter().filter(|decision| !decision.is_undecided()) {
                    self.model.saw(decision.at());
                }
            }
            Err(error) => self.note(format!("{line}: {error}")),
        }
        Ok(answer)
    }

    /// Returns the store's answer, which must be a decision.
    pub(super) async fn decided(
        &mut self,
        asked: &[TestAsk<'_, R>],
        is_look: bool,
    ) -> Result<Vec<Decision>, Breach> {
        match self.answer(asked, is_look).await? {
            Err(error) => Err(self.breach(format!("the store failed: {error}"))),
            Ok(decisions) => match decisions.iter().find(|decision| decision.is_undecided()) {
                Some(_) => Err(self.breach("the store was undecided without a fault")),
                None => Ok(decisions),
            },
        }
    }

    /// Spends, and compares the answer with the rule.
    pub(super) async fn acquire(
        &mut self,
        subject: &Subject,
        rule: &R,
        units: u64,
    ) -> Result<Decision, Breach> {
        let asked = [TestAsk::new(subject, rule, units)];
        let answer = self.decided(&asked, false).await?;
        let answer = answer[0];
        if self.is_exact() {
            let compared = self.model.spend(subject, rule, cost(units), &answer, true);
            self.compared(compared, &answer)?;
        }
        Ok(answer)
    }

    /// Looks, and compares the answer with the rule.
    pub(super) async fn look(&mut self, subject: &Subject, rule: &R) -> Result<Decision, Breach> {
        let asked = [TestAsk::new(subject, rule, 1)];
        Ok(self.look_at(&asked).await?[0])
    }

    /// Spends several together, and compares the answers with the rules.
    pub(super) async fn several(
        &mut self,
        asked: &[TestAsk<'_, R>],
    ) -> Result<Vec<Decision>, Breach> {
        let answers = self.decided(asked, false).await?;
        if answers.iter().all(Decision::is_admitted) {
            for (asked, answer) in asked.iter().zip(&answers) {
                let (subject, rule, cost) = (asked.subject, asked.rule, cost(asked.units));
                let compared = self.model.spend(subject, rule, cost, answer, true);
                self.compared(compared, answer)?;
            }
            return Ok(answers);
        }
        let settles_back = self.suite.settles_back;
        for (asked, answer) in asked.iter().zip(&answers) {
            let (subject, rule, cost) = (asked.subject, asked.rule, cost(asked.units));
            self.model
                .perhaps(subject, rule, cost, answer.at(), settles_back);
            if settles_back && !self.moves_time() {
                self.model.loosen(subject, rule);
            }
        }
        for (n, (asked_one, answer)) in asked.iter().zip(&answers).enumerate() {
            self.refused(asked, asked_one, answer)
                .map_err(|mut breach| {
                    breach.what = format!("of ask {}, {}", n + 1, breach.what);
                    breach
                })?;
        }
        Ok(answers)
    }

    /// Compares one of several answers, at least one of which refuses: it refuses, or is a look.
    fn refused(
        &mut self,
        all: &[TestAsk<'_, R>],
        asked: &TestAsk<'_, R>,
        answer: &Decision,
    ) -> CheckResult {
        let (subject, rule) = (asked.subject, asked.rule);
        if answer.charge().is_some() {
            return Err(self.breach("there is a charge, though another ask is refused"));
        }
        if all.iter().filter(|other| other.subject == subject).count() > 1 {
            // The state of the key between the two charges never existed by itself.
            return Ok(());
        }
        // A refund may be smaller than the charge.
        let may_lack = self.suite.settles_back;
        let compared = if answer.is_admitted() {
            if answer.remaining() < Some(asked.units) && !may_lack {
                let what = "less remains than was asked for, but the answer is not a refusal";
                return Err(self.breach(what));
            }
            self.model.look(subject, rule, answer)
        } else {
            let cost = cost(asked.units);
            match self.model.spend(subject, rule, cost, answer, false) {
                Err(_) if may_lack => self.model.look(subject, rule, answer),
                compared => compared,
            }
        };
        self.compared(compared, answer)
    }

    /// Looks at several, and compares the answers with the rules.
    pub(super) async fn look_at(
        &mut self,
        asked: &[TestAsk<'_, R>],
    ) -> Result<Vec<Decision>, Breach> {
        let answers = self.decided(asked, true).await?;
        if self.is_exact() {
            for (asked, answer) in asked.iter().zip(&answers) {
                let compared = self.model.look(asked.subject, asked.rule, answer);
                self.compared(compared, answer)?;
            }
        }
        Ok(answers)
    }
}

/// A charge that is settled, and an ask for its actual cost.
type TestSettlement<'a, R> = (TestAsk<'a, R>, Charge);

/// Settling and resetting.
impl<R: Algorithm> Checker<'_, R> {
    /// Settles a charge, and compares the state afterwards.
    pub(super) async fn settle_one(
        &mut self,
        subject: &Subject,
        rule: &R,
        charge: Charge,
        actual: u64,
    ) -> CheckResult {
        let asked = TestAsk::new(subject, rule, actual);
        self.settle(&[(asked, charge)]).await
    }

    /// Settles charges, and compares the states afterwards.
    pub(super) async fn settle(&mut self, corrected: &[TestSettlement<'_, R>]) -> CheckResult {
        let Some((first, _)) = corrected.first() else {
            return Ok(());
        };
        let before = self.look(first.subject, first.rule).await?;
        let settlements: Vec<_> = corrected
            .iter()
            .map(|(it, charge)| it.ask().settlement(charge.duplicate(), it.units))
            .collect();
        let each: Vec<_> = corrected
            .iter()
            .map(|(it, charge)| format!("{} of {} as {}", charge.cost, it.subject, it.units))
            .collect();
        let line = format!("settle {}", each.join(" and "));
        let settling = self.store.settle(settlements);
        let done = self.with_timeout(&line, settling).await?;
        self.ended(line, done)?;
        self.settled(&before, corrected).await
    }

    /// Compares the states after settlements that were made since a look at the first key.
    async fn settled(
        &mut self,
        before: &Decision,
        corrected: &[TestSettlement<'_, R>],
    ) -> CheckResult {
        let Some((first, _)) = corrected.first() else {
            return Ok(());
        };
        // The instant of the settlement is between those of two looks.
        let looked = [TestAsk::new(first.subject, first.rule, 1)];
        let after = self.decided(&looked, true).await?[0];
        for (it, charge) in corrected {
            let between = [before.at(), after.at()];
            self.model
                .settle(it.subject, it.rule, charge, between, it.units);
        }
        let compared = self.model.look(first.subject, first.rule, &after);
        self.compared(compared, &after)?;
        for (it, _) in &corrected[1..] {
            self.look(it.subject, it.rule).await?;
        }
        Ok(())
    }

    /// Renews a charge, which moves it by `delay`, and compares the state afterwards. Returns the
    /// charge as the store has it then.
    pub(super) async fn renew(
        &mut self,
        subject: &Subject,
        rule: &R,
        charge: &Charge,
        delay: Duration,
    ) -> Result<Charge, Breach> {
        let before = self.look(subject, rule).await?;
        match self.try_renew(subject, rule, charge, delay).await? {
            Renewed::Made => self.renewed(&before, subject, rule, charge, delay).await,
            _ => Err(self.breach("a renewal was not made without a fault")),
        }
    }

    /// Renews a charge, and returns the result without a comparison.
    pub(super) async fn try_renew(
        &mut self,
        subject: &Subject,
        rule: &R,
        charge: &Charge,
        delay: Duration,
    ) -> Result<Renewed, Breach> {
        let line = format!("renew {} of {subject} for {delay:?}", charge.cost);
        let moved = charge.duplicate().with_delay(Some(delay));
        let ask = TestAsk::new(subject, rule, 1).ask();
        let renewing = self.store.renew(ask.settlement(moved, charge.cost));
        let renewed = self.with_timeout(&line, renewing).await?;
        self.note(format!("{line}: {renewed:?}"));
        Ok(renewed)
    }

    /// Compares the state after a renewal that was made since a look. Returns the charge as the
    /// store has it now.
    pub(super) async fn renewed(
        &mut self,
        before: &Decision,
        subject: &Subject,
        rule: &R,
        charge: &Charge,
        delay: Duration,
    ) -> Result<Charge, Breach> {
        let asked = TestAsk::new(subject, rule, charge.cost);
        let charged = charge.duplicate().with_delay(Some(delay));
        self.settled(before, &[(asked, charged)]).await?;
        let mut moved = charge.duplicate();
        moved.at = charge.at.saturating_add(delay);
        Ok(moved)
    }

    /// Resets a key.
    pub(super) async fn reset(&mut self, subject: &Subject) -> CheckResult {
        let line = format!("reset {subject}");
        let resetting = self.store.reset(&subject.policy, &subject.key);
        let done = self.with_timeout(&line, resetting).await?;
        self.ended(line, done)?;
        self.model.forget(subject);
        Ok(())
    }

    fn ended(&mut self, line: String, done: Result<(), String>) -> CheckResult {
        done.map_err(|error| self.breach(format!("{line}: the store failed: {error}")))?;
        self.note(line);
        Ok(())
    }
}
