//! A grant: units that are given back to a key.

use std::fmt;

use super::Limiter;
use crate::{
    algorithm::Algorithm,
    decision::{Charge, Cost, Decision, Decisions},
    key::Key,
    store::{Ask, Progress, Settlement, Steps, Store},
    time::Timestamp,
};

/// Gives units back to a key by a settlement, between two looks.
pub struct Grant<Rule, S> {
    limiter: Limiter<Rule, S>,
    key: Key,
    units: u64,
    /// The remaining units before the settlement.
    before: Option<u64>,
}

impl<Rule: Algorithm, S: Store<Rule>> Grant<Rule, S> {
    pub(super) fn new(limiter: Limiter<Rule, S>, key: Key, units: u64) -> Self {
        Self {
            limiter,
            key,
            units,
            before: None,
        }
    }

    /// Looks at the key.
    pub(super) fn look(&self) -> Progress<Self> {
        let (policy, rule) = (self.limiter.policy(), self.limiter.rule());
        let ask = Ask::new(policy, rule, self.key, Cost::ONE);
        Progress::Answer(self.limiter.store().look(&[ask]))
    }

    /// Goes on after a look.
    fn looked(&mut self, look: Decision) -> Progress<Self> {
        let (Some(remaining), Some(limit)) = (look.remaining(), look.limit()) else {
            // Undecided: the caller sees that, and nothing is granted.
            return Progress::Finished(Ok(look));
        };
        let rule = self.limiter.rule();
        let at = rule.grant_at(&look);
        if let Some(before) = self.before {
            // A log gives back one entry at a time.
            let given = remaining.saturating_sub(before);
            self.units = self.units.saturating_sub(given);
            if given == 0 || at == look.at() {
                self.units = 0;
            }
        }
        let units = self.units.min(limit);
        if units == 0 || remaining >= limit && look.reset_after().is_zero() {
            return Progress::Finished(Ok(look));
        }
        self.before = Some(remaining);
        let slack = rule.grant_slack().unwrap_or(0);
        let charge = Charge::new(at, units.saturating_add(slack));
        let settlement = Settlement::new(self.limiter.policy(), rule, self.key, charge, slack);
        match settlement {
            Ok(settlement) => {
                let grant = vec![settlement.into_grant()];
                Progress::Done(self.limiter.store().settle(grant))
            }
            // It has the policy of no other charge.
            Err(_) => Progress::Finished(Ok(look)),
        }
    }
}

impl<Rule, S> fmt::Debug for Grant<Rule, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").finish_non_exhaustive()
    }
}

impl<Rule: Algorithm, S: Store<Rule>> Steps for Grant<Rule, S> {
    type Answer = S::Answer;
    type Done = S::Done;
    type Output = Result<Decision, S::Error>;

    fn answered(&mut self, answer: Result<Decisions, S::Error>) -> Progress<Self> {
        match answer {
            Ok(decisions) => match decisions.as_slice() {
                [look, ..] => self.looked(*look),
                [] => Progress::Finished(Ok(Decision::unsupported(Timestamp::default()))),
            },
            Err(error) => Progress::Finished(Err(error)),
        }
    }

    fn done(&mut self, done: Result<(), S::Error>) -> Progress<Self> {
        match done {
            Ok(()) => self.look(),
            Err(error) => Progress::Finished(Err(error)),
        }
    }
}
