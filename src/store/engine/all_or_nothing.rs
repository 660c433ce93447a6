//! The rule for several asks at once: all of them spend, or none.
//!
//! A store implements `States`, which finds the state that an ask is about, and this module
//! decides. The order of the steps is the rule:
//!
//! 1. look at every state;
//! 2. step in the order of the asks, so that an ask sees the charges of the asks before it;
//! 3. if all pass, keep the states;
//! 4. otherwise restore them, and make once more what a refusal writes, without the charges of
//!    other asks;
//! 5. answer the refused asks with their refusals, and the others with the looks.
//!
//! Compare-and-swap finds states by kind within one value, a script by the index of a key in the
//! answer, and a store of one's own by `StateKey` (`Transaction`). `driver.lua` contains the same
//! rule once more, because it runs on the server; the differential tests compare both. `Local`
//! decides by the same rule where its states are, because it must not copy long logs. Counters
//! cannot look and add in one step: they add, decide by the total, and take back.

use smallvec::SmallVec;

use crate::{
    algorithm::{Algorithm, Step},
    decision::{Charge, Cost, Decision},
    store::{Decisions, Spend},
    time::Timestamp,
};

/// The state of one kind of rule under a key.
#[derive(Clone)]
pub(in crate::store) struct Entry<S> {
    pub(in crate::store) state: Option<S>,
    /// If the state was written: the instant from which on it no longer matters to the rule that
    /// wrote it last.
    pub(in crate::store) written_until: Option<Timestamp>,
}

impl<S> Entry<S> {
    /// Creates an entry that was read and not written.
    pub(in crate::store) fn new(state: Option<S>) -> Self {
        Self {
            state,
            written_until: None,
        }
    }

    pub(in crate::store) fn is_written(&self) -> bool {
        self.written_until.is_some()
    }

    pub(in crate::store) fn step<Rule>(&mut self, rule: &Rule, now: Timestamp, cost: Cost) -> Step
    where
        Rule: Algorithm<State = S>,
    {
        let step = rule.step(&mut self.state, now, cost);
        if matches!(step, Step::Wrote(_)) {
            self.wrote(rule);
        }
        step
    }

    /// Corrects a charge. A state that is not there before and after is not written. Returns `true`
    /// if that [refunded nothing](Algorithm::forgets).
    pub(in crate::store) fn settle<Rule>(
        &mut self,
        rule: &Rule,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool
    where
        Rule: Algorithm<State = S>,
    {
        let was_there = self.state.is_some();
        let forgets = rule.forgets(self.state.as_ref(), charge, now, actual);
        rule.settle(&mut self.state, charge, now, actual);
        if was_there || self.state.is_some() {
            self.wrote(rule);
        }
        forgets
    }

    fn wrote<Rule: Algorithm<State = S>>(&mut self, rule: &Rule) {
        let until = self.state.as_ref().map(|state| rule.forgettable_at(state));
        self.written_until = Some(until.unwrap_or_default());
    }
}

/// The answers to the asks of a call.
#[derive(Debug, Default)]
pub(in crate::store) struct Answers {
    pub(in crate::store) decisions: Decisions,
    /// Looks at the states as they were before. Empty for a call of one ask that spends.
    pub(in crate::store) looks: Decisions,
    /// `true` if a settlement [refunded nothing](Algorithm::forgets).
    pub(in crate::store) forgets: bool,
}

/// States in memory that calls are decided on, at one instant. `Q` is an ask, which names its
/// state.
///
/// The states may come from anywhere. A store reads them, decides calls one after the other, and
/// then writes the entries that were [written](Entry::is_written).
pub(in crate::store) trait States<Q> {
    type Rule: Algorithm;

    /// Returns the instant of all decisions.
    fn now(&self) -> Timestamp;

    /// Returns the rule of an ask, as it applies to the key.
    fn rule(ask: &Q) -> &Self::Rule;

    /// Returns what an ask spends.
    fn spend_of(ask: &Q) -> Spend;

    /// Returns the state that an ask is about. Several asks may be about one state.
    fn entry(&mut self, ask: &Q) -> &mut Entry<<Self::Rule as Algorithm>::State>;

    /// Spends all asks, or none.
    fn spend(&mut self, asks: &[Q]) -> Answers {
        let [ask] = asks else {
            return self.decide(asks, true);
        };
        Answers {
            decisions: self.step(ask).decision().into(),
            ..Answers::default()
        }
    }

    /// Answers as [`spend`](Self::spend) does, but spends nothing. The writes of a refusal are
    /// kept.
    fn probe(&mut self, asks: &[Q]) -> Answers {
        self.decide(asks, false)
    }

    /// Steps on all states, and restores them unless all asks pass and are to spend.
    ///
    /// If one ask is refused, the others get looks at the states as they were. A refusal writes its
    /// state when a rule sees a key for the first time, or carries a count over. That write is
    /// kept, but repeated on the state as it was: on a state that several asks are about, it must
    /// not contain the charge of another ask.
    fn decide(&mut self, asks: &[Q], spends: bool) -> Answers {
        let now = self.now();
        let look = |ask| Self::rule(ask).look(self.entry(ask).state.as_ref(), now);
        let looks: Decisions = asks.iter().map(look).collect();
        let before: SmallVec<[_; 2]> = asks.iter().map(|ask| self.entry(ask).clone()).collect();
        let steps: SmallVec<[Step; 2]> = asks.iter().map(|ask| self.step(ask)).collect();
        let passes = |step: &Step| step.decision().is_admitted();
        let all_pass = steps.iter().all(passes);
        if !(all_pass && spends) {
            for (ask, before) in asks.iter().zip(before) {
                *self.entry(ask) = before;
            }
        }
        if all_pass {
            return Answers {
                decisions: steps.into_iter().map(Step::decision).collect(),
                looks,
                ..Answers::default()
            };
        }
        for (ask, step) in asks.iter().zip(&steps) {
            if matches!(step, Step::Wrote(_)) && !passes(step) {
                self.refuse(ask);
            }
        }
        let decision = |(step, look): (&Step, &Decision)| match step.decision() {
            refusal if !refusal.is_admitted() => refusal,
            _ => *look,
        };
        let decisions = steps.iter().zip(looks.as_slice()).map(decision).collect();
        Answers {
            decisions,
            looks,
            ..Answers::default()
        }
    }

    /// Steps on the state of an ask.
    fn step(&mut self, ask: &Q) -> Step {
        let (now, rule) = (self.now(), Self::rule(ask));
        let entry = self.entry(ask);
        let cost = Self::spend_of(ask).in_state(rule, entry.state.as_ref(), now);
        entry.step(rule, now, cost)
    }

    /// Applies the writes of the refusal of an ask. An ask that passes by itself writes nothing.
    fn refuse(&mut self, ask: &Q) {
        let before = self.entry(ask).clone();
        if self.step(ask).decision().is_admitted() {
            *self.entry(ask) = before;
        }
    }
}
