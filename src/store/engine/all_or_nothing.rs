//! The rule for several asks at once: all of them spend, or none.
//!
//! A store implements [`States`], which reads, steps and restores the state that an ask is about,
//! and this module decides. The order of the steps is the rule:
//!
//! 1. look at every state;
//! 2. step in the order of the asks, so that an ask sees the charges of the asks before it;
//! 3. if all pass, keep the states;
//! 4. otherwise restore them, and make once more what a refusal writes, without the charges of
//!    other asks;
//! 5. answer the refused asks with their refusals, and the others with the looks.
//!
//! Compare-and-swap finds states by kind within one value, a script by the index of a key in the
//! answer, and a store of one's own by `StateKey` (`Transaction`). All three copy states, so they
//! implement [`CopiedStates`]. `Local` must not copy long logs: it steps them in place, last of
//! all, and where a look refuses the call, no state of another ask is stepped.
//!
//! Two stores cannot use this module. `driver.lua` contains the same rule once more, because it
//! runs on the server; the differential tests compare both. Counters cannot look and add in one
//! step: they add, decide by the total, and take back.

use smallvec::SmallVec;

use crate::{
    algorithm::{Algorithm, Step},
    decision::{Charge, Cost, Decision},
    store::{Decisions, ask::ResolvedAsk},
    time::Timestamp,
};

/// One element for each ask of a call.
type Few<T> = SmallVec<[T; 4]>;

/// The answers to the asks of a call.
#[derive(Debug, Default)]
pub(in crate::store) struct Answers {
    pub(in crate::store) decisions: Decisions,
    /// Looks at the states as they were before. Only for a call that spends nothing.
    pub(in crate::store) looks: Decisions,
    /// `true` if a settlement [refunded nothing](Algorithm::forgets).
    pub(in crate::store) forgets: bool,
    /// The instant, and the state of each delta's key in bytes. Only for deltas.
    pub(in crate::store) pulled: (Timestamp, Vec<Option<Vec<u8>>>),
}

/// There is no room for the state of an ask.
pub(in crate::store) struct NoRoom {
    /// The index of the ask.
    pub(in crate::store) index: usize,
    pub(in crate::store) decision: Decision,
}

/// States that calls are decided on, at one instant. `Q` is an ask, which names its state.
pub(in crate::store) trait States<Q> {
    /// A state as it was.
    type Saved;

    /// Returns the units without which an ask is refused.
    fn cost(&self, ask: &Q) -> Cost;

    /// Returns the decision of an ask's rule about the current state, without spending.
    fn look(&mut self, ask: &Q) -> Decision;

    /// Steps on the state of an ask.
    fn step(&mut self, ask: &Q) -> Step;

    /// Returns `true` if no earlier ask of the call is about the state. The default is for stores
    /// that do not know.
    fn is_first(&self, _: &Q) -> bool {
        false
    }

    /// Saves a state before the first step of a call. Returns `None` if a step on it cannot be
    /// undone. Such a state is that of one ask, and is stepped when all pass.
    fn save(&mut self, ask: &Q) -> Option<Self::Saved>;

    /// Restores a state.
    fn undo(&mut self, ask: &Q, saved: Self::Saved);

    /// Makes room for states that were stepped, when all asks pass. Returns an ask whose state has
    /// no room; then nothing is spent.
    fn make_room(&mut self) -> Option<NoRoom> {
        None
    }

    /// Spends all asks, or none.
    fn spend(&mut self, asks: &[Q]) -> Answers {
        let decisions = match asks {
            [ask] => self.step(ask).decision().into(),
            _ => self.decide(asks, true, &mut SmallVec::new()).into(),
        };
        Answers {
            decisions,
            ..Answers::default()
        }
    }

    /// Answers as [`spend`](Self::spend) does, but spends nothing. The writes of a refusal are
    /// kept.
    fn probe(&mut self, asks: &[Q]) -> Answers {
        let mut looks = SmallVec::new();
        Answers {
            decisions: self.decide(asks, false, &mut looks).into(),
            looks: looks.into_iter().collect(),
            ..Answers::default()
        }
    }

    /// Returns the decisions, and the looks before them in `looks`, which is empty.
    #[inline]
    fn decide(&mut self, asks: &[Q], spends: bool, looks: &mut Few<Decision>) -> Vec<Decision> {
        looks.extend(asks.iter().map(|ask| self.look(ask)));
        let mut decisions = looks.to_vec();
        let fails =
            |states: &Self, (ask, look): (&Q, &Decision)| !look.would_admit(states.cost(ask));
        // The first ask about a state steps on it as it is, so a look decides.
        let is_lost = |(ask, look)| fails(self, (ask, look)) && self.is_first(ask);
        if asks.iter().zip(&*looks).any(is_lost) {
            let mut has_written = false;
            for (ask, decision) in asks.iter().zip(&mut decisions) {
                if fails(self, (ask, decision))
                    && let Some(step) = self.refuse(ask, has_written)
                {
                    has_written |= matches!(step, Step::Wrote(_));
                    *decision = step.decision();
                }
            }
            return decisions;
        }
        let mut steps: Few<(Option<Self::Saved>, bool)> =
            asks.iter().map(|ask| (self.save(ask), false)).collect();
        for ((ask, decision), (saved, has_written)) in
            asks.iter().zip(&mut decisions).zip(&mut steps)
        {
            if saved.is_some() {
                let step = self.step(ask);
                *has_written = matches!(step, Step::Wrote(_));
                *decision = step.decision();
            }
        }
        let all_pass = decisions.iter().all(Decision::is_admitted);
        let spends = all_pass && spends;
        let no_room = if spends { self.make_room() } else { None };
        if spends && no_room.is_none() {
            for ((ask, decision), (saved, _)) in asks.iter().zip(&mut decisions).zip(&steps) {
                if saved.is_none() {
                    *decision = self.step(ask).decision();
                }
            }
            return decisions;
        }
        for (ask, (saved, _)) in asks.iter().zip(&mut steps) {
            if let Some(saved) = saved.take() {
                self.undo(ask, saved);
            }
        }
        if let Some(NoRoom { index, decision }) = no_room {
            decisions.copy_from_slice(looks);
            decisions[index] = decision;
        } else if !all_pass {
            for (n, ask) in asks.iter().enumerate() {
                if decisions[n].is_admitted() {
                    decisions[n] = looks[n];
                } else if steps[n].1 {
                    self.refuse(ask, true);
                }
            }
        }
        decisions
    }

    /// Steps on a state for what a refusal writes. An ask that passes, because it is not charged
    /// with the others or another rule has written its state, is not stepped.
    fn refuse(&mut self, ask: &Q, may_pass: bool) -> Option<Step> {
        let passes = may_pass && self.look(ask).would_admit(self.cost(ask));
        (!passes).then(|| self.step(ask))
    }
}

/// States that are copied from where a store keeps them: it reads them, decides calls one
/// after the other, and then writes the entries that were [written](Entry::is_written).
pub(in crate::store) trait CopiedStates<Rule: Algorithm, At> {
    /// Returns the instant of all decisions.
    fn now(&self) -> Timestamp;

    /// Returns the state that an ask is about.
    fn entry(&mut self, ask: &ResolvedAsk<Rule, At>) -> &mut Entry<Rule::State>;
}

impl<Rule: Algorithm, At, T: CopiedStates<Rule, At>> States<ResolvedAsk<Rule, At>> for T {
    type Saved = Entry<Rule::State>;

    fn cost(&self, ask: &ResolvedAsk<Rule, At>) -> Cost {
        ask.spend.cost()
    }

    fn look(&mut self, ask: &ResolvedAsk<Rule, At>) -> Decision {
        let now = self.now();
        ask.rule.look(self.entry(ask).state.as_ref(), now)
    }

    fn step(&mut self, ask: &ResolvedAsk<Rule, At>) -> Step {
        let now = self.now();
        let entry = self.entry(ask);
        let cost = ask.spend.in_state(&ask.rule, entry.state.as_ref(), now);
        entry.step(&ask.rule, now, cost)
    }

    fn save(&mut self, ask: &ResolvedAsk<Rule, At>) -> Option<Self::Saved> {
        Some(self.entry(ask).clone())
    }

    fn undo(&mut self, ask: &ResolvedAsk<Rule, At>, saved: Self::Saved) {
        *self.entry(ask) = saved;
    }
}

/// The state of one kind of rule under a key.
#[derive(Clone)]
pub(in crate::store) struct Entry<S> {
    pub(in crate::store) state: Option<S>,
    /// The instant from which on the state no longer matters to any rule that wrote it, as far as
    /// the store knows.
    pub(in crate::store) until: Timestamp,
    pub(in crate::store) is_written: bool,
}

impl<S> Entry<S> {
    /// Creates an entry that was read and not written.
    pub(in crate::store) fn new(state: Option<S>, until: Timestamp) -> Self {
        Self {
            state,
            until,
            is_written: false,
        }
    }

    pub(in crate::store) fn step<Rule>(&mut self, rule: &Rule, now: Timestamp, cost: Cost) -> Step
    where
        Rule: Algorithm<State = S>,
    {
        let before = self.matters_until(rule);
        let step = rule.step(&mut self.state, now, cost);
        if matches!(step, Step::Wrote(_)) {
            self.wrote(rule, before, now);
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
        let (was_there, before) = (self.state.is_some(), self.matters_until(rule));
        let forgets = rule.forgets(self.state.as_ref(), charge, now, actual);
        rule.settle(&mut self.state, charge, now, actual);
        if was_there || self.state.is_some() {
            self.wrote(rule, before, now);
        }
        forgets
    }

    fn matters_until<Rule: Algorithm<State = S>>(&self, rule: &Rule) -> Timestamp {
        let state = self.state.as_ref();
        state.map_or(Timestamp::default(), |state| rule.forgettable_at(state))
    }

    fn wrote<Rule: Algorithm<State = S>>(
        &mut self,
        rule: &Rule,
        before: Timestamp,
        now: Timestamp,
    ) {
        let [until, before, after, now] =
            [self.until, before, self.matters_until(rule), now].map(Timestamp::as_nanos);
        self.until = match self.state {
            Some(_) => Timestamp::from_nanos(postponed(until, before, after, now)),
            None => Timestamp::default(),
        };
        self.is_written = true;
    }
}

/// Returns the expiry of a state, which was `until`, after a rule wrote it. It mattered to that
/// rule until `before`, and now matters to it until `after`.
///
/// A client that chooses the endpoint chooses the rule. So a write under a shorter rule must not
/// have the debt expire that a longer one sees in the state that was written.
#[inline]
pub(in crate::store) fn postponed(until: u64, before: u64, after: u64, now: u64) -> u64 {
    if until <= before.max(now) {
        // It matters to no other rule for longer.
        after
    } else {
        // A charge postpones the expiry under longer rules by the same span, and that of a log or a
        // window by the time since the last one, too. A refund does not change it.
        after.max(until.saturating_add(after.saturating_sub(before)))
    }
}
