//! Acquiring and looking, and what is wrong with the answers.

use std::fmt::Debug;

use super::{Bench, Kept, cost, in_words};
use crate::{
    algorithm::Algorithm,
    decision::Decision,
    store::{Ask, Store},
    testing::conformance::{place::Place, report::Breach},
};

/// An ask of the suite's.
pub(in super::super) struct Asked<'a, R> {
    pub(in super::super) place: &'a Place,
    pub(in super::super) rule: &'a R,
    pub(in super::super) units: u64,
}

impl<'a, R> Asked<'a, R> {
    pub(in super::super) fn new(place: &'a Place, rule: &'a R, units: u64) -> Self {
        Self { place, rule, units }
    }

    pub(in super::super) fn ask(&self) -> Ask<'a, R> {
        let cost = cost(self.units);
        Ask::new(&self.place.policy, self.rule, self.place.key, cost)
    }
}

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    /// How several asks read in a message.
    fn line(&self, verb: &str, asked: &[Asked<'_, R>]) -> String {
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
                    format!("at {}{under}", asked.place)
                } else {
                    format!("{} of {}{under}", asked.units, asked.place)
                }
            })
            .collect();
        format!("{verb} {}", each.join(" and "))
    }

    /// What the store answers, right or wrong; the error in words.
    async fn answer(
        &mut self,
        asked: &[Asked<'_, R>],
        is_look: bool,
    ) -> Result<Result<Vec<Decision>, String>, Breach> {
        let line = self.line(if is_look { "look" } else { "acquire" }, asked);
        let asks: Vec<_> = asked.iter().map(Asked::ask).collect();
        let store = &self.suite.store;
        let check = if is_look {
            store.look(&asks)
        } else {
            store.acquire(&asks)
        };
        let answer = self.patiently(&line, async move { check.await }).await?;
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
            Err(error) => self.note(format!("{line}: {error:?}")),
        }
        Ok(answer.map_err(|error| format!("{error:?}")))
    }

    /// What the store answers, which has to be a decision.
    pub(super) async fn decided(
        &mut self,
        asked: &[Asked<'_, R>],
        is_look: bool,
    ) -> Result<Vec<Decision>, Breach> {
        match self.answer(asked, is_look).await? {
            Err(error) => Err(self.breach(format!("the store failed: {error}"))),
            Ok(decisions) => match decisions.iter().find(|decision| decision.is_undecided()) {
                Some(_) => Err(self.breach("the store was undecided, and nothing was at fault")),
                None => Ok(decisions),
            },
        }
    }

    /// Spends, as the rule decides.
    pub(in super::super) async fn acquire(
        &mut self,
        place: &Place,
        rule: &R,
        units: u64,
    ) -> Result<Decision, Breach> {
        let asked = [Asked::new(place, rule, units)];
        let answer = self.decided(&asked, false).await?;
        // There is one for each ask.
        let answer = answer[0];
        if self.is_exact() {
            let compared = self.model.spend(place, rule, cost(units), &answer);
            self.compared(compared, &answer)?;
        }
        Ok(answer)
    }

    /// Spends whatever the store says: its answer, or its error in words.
    pub(in super::super) async fn try_acquire(
        &mut self,
        place: &Place,
        rule: &R,
        units: u64,
    ) -> Result<Result<Decision, String>, Breach> {
        let answer = self
            .answer(&[Asked::new(place, rule, units)], false)
            .await?;
        Ok(answer.map(|decisions| decisions[0]))
    }

    /// Looks, whatever the store says.
    pub(in super::super) async fn try_look(
        &mut self,
        place: &Place,
        rule: &R,
    ) -> Result<Result<Decision, String>, Breach> {
        let answer = self.answer(&[Asked::new(place, rule, 1)], true).await?;
        Ok(answer.map(|decisions| decisions[0]))
    }

    /// Looks, as the rule decides.
    pub(in super::super) async fn look(
        &mut self,
        place: &Place,
        rule: &R,
    ) -> Result<Decision, Breach> {
        let answer = self.decided(&[Asked::new(place, rule, 1)], true).await?[0];
        if self.is_exact() {
            let compared = self.model.look(place, rule, &answer);
            self.compared(compared, &answer)?;
        }
        Ok(answer)
    }

    /// Spends several, all or nothing.
    pub(in super::super) async fn several(
        &mut self,
        asked: &[Asked<'_, R>],
    ) -> Result<Vec<Decision>, Breach> {
        let answers = self.decided(asked, false).await?;
        if answers.iter().all(Decision::is_admitted) {
            for (asked, answer) in asked.iter().zip(&answers) {
                let Asked { place, rule, units } = asked;
                let compared = self.model.spend(place, rule, cost(*units), answer);
                self.compared(compared, answer)?;
            }
            return Ok(answers);
        }
        let settles_back = self.suite.settles_back;
        for (Asked { place, rule, units }, answer) in asked.iter().zip(&answers) {
            self.model
                .perhaps(place, rule, cost(*units), answer.at(), settles_back);
            if settles_back && !self.moves_time() {
                self.model.loosen(place, rule);
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

    /// One of several answers, not all of which let pass: it refuses, or tells how its key stands.
    fn refused(&mut self, all: &[Asked<'_, R>], asked: &Asked<'_, R>, answer: &Decision) -> Kept {
        let Asked { place, rule, units } = asked;
        if answer.charge().is_some() {
            return Err(self.breach("there is a charge, where another one is refused"));
        }
        if all.iter().filter(|other| other.place == *place).count() > 1 {
            // What the one has spent before the other is refused is no state that ever was.
            return Ok(());
        }
        // A charge that does not come back in full may leave too little.
        let may_lack = self.suite.settles_back;
        let compared = if answer.is_admitted() {
            if answer.remaining() < Some(*units) && !may_lack {
                let what = "less is left than was asked for, and it does not refuse";
                return Err(self.breach(what));
            }
            self.model.look(place, rule, answer)
        } else {
            match self.model.refused(place, rule, cost(*units), answer) {
                Err(_) if may_lack => self.model.look(place, rule, answer),
                compared => compared,
            }
        };
        self.compared(compared, answer)
    }

    /// Looks at several.
    pub(in super::super) async fn look_at(
        &mut self,
        asked: &[Asked<'_, R>],
    ) -> Result<Vec<Decision>, Breach> {
        let answers = self.decided(asked, true).await?;
        for (asked, answer) in asked.iter().zip(&answers) {
            let compared = self.model.look(asked.place, asked.rule, answer);
            self.compared(compared, answer)?;
        }
        Ok(answers)
    }
}
