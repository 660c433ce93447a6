//! What is to be done about a key, and what that makes of its state.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use crate::{
    algorithm::{Algorithm, Codec, Step},
    clock::Timestamp,
    decision::{Charge, Cost, Decision},
    store::{Decisions, Error},
};

/// Asks about one key, each with its rule as the key meets it.
pub(super) type Asks<Rule> = SmallVec<[(Rule, Cost); 1]>;

/// Something to be done about one key.
pub(super) enum Work<Rule> {
    /// Spends all asks or none.
    Spend(Asks<Rule>),
    /// Tells how all would be answered; what a refusal writes is written.
    Try(Asks<Rule>),
    Look(Rule),
    Settle {
        rule: Rule,
        charge: Charge,
        actual: u64,
    },
    Reset,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) decisions: Decisions,
    /// How the asks of a [`Work::Try`] stand.
    pub(super) looks: Decisions,
}

/// Work, and who waits for it.
pub(super) struct Job<Rule> {
    pub(super) work: Work<Rule>,
    pub(super) reply: oneshot::Sender<Result<Told, Error>>,
    /// Races that it lost.
    pub(super) losses: u32,
    /// Until when it is tried; `None` before its turn.
    pub(super) until: Option<Instant>,
}

impl<Rule> Job<Rule> {
    pub(super) fn new(work: Work<Rule>, reply: oneshot::Sender<Result<Told, Error>>) -> Self {
        Self {
            work,
            reply,
            losses: 0,
            until: None,
        }
    }

    /// Whether it is done for somebody who waits; settlements and resets are done for themselves.
    pub(super) fn is_call(&self) -> bool {
        !matches!(self.work, Work::Settle { .. } | Work::Reset)
    }

    /// Whether nobody waits any more, so that nobody is charged.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_call() && self.reply.is_closed()
    }

    pub(super) fn answer(self, answer: Result<Told, Error>) {
        // Who does not listen any more need not know.
        let _ = self.reply.send(answer);
    }
}

/// A key's state while work is done on it.
pub(super) struct Draft<'a, Rule: Algorithm> {
    now: Timestamp,
    state: Option<Rule::State>,
    /// Whether the state is one that a newer program wrote, which nothing but a reset may replace.
    is_newer: bool,
    is_written: bool,
    /// The rule that wrote last.
    writer: Option<&'a Rule>,
    /// States of another algorithm that were dropped.
    pub(super) restarted: u64,
}

/// What is to be under a key.
pub(super) struct Change<S> {
    /// `None` where nothing is worth keeping.
    pub(super) state: Option<S>,
    pub(super) bytes: Vec<u8>,
    pub(super) keep: Duration,
}

impl<'a, Rule: Algorithm> Draft<'a, Rule> {
    pub(super) fn new(state: Option<Rule::State>, is_newer: bool, now: Timestamp) -> Self {
        Self {
            now,
            state,
            is_newer,
            is_written: false,
            writer: None,
            restarted: 0,
        }
    }

    /// Does the work.
    ///
    /// # Errors
    ///
    /// When the state is one that a newer program wrote.
    pub(super) fn apply(&mut self, work: &'a Work<Rule>) -> Result<Told, Error> {
        if self.is_newer && !matches!(work, Work::Reset) {
            return Err(Error::unsupported(crate::Error::newer_state()));
        }
        let decisions = match work {
            Work::Spend(asks) => match &asks[..] {
                [(rule, cost)] => self.step(rule, *cost).decision().into(),
                asks => return Ok(self.step_all(asks, true)),
            },
            Work::Try(asks) => return Ok(self.step_all(asks, false)),
            Work::Look(rule) => rule.look(self.state.as_ref(), self.now).into(),
            Work::Settle {
                rule,
                charge,
                actual,
            } => {
                let was_there = self.state.is_some();
                rule.settle(&mut self.state, charge, self.now, *actual);
                if was_there || self.state.is_some() {
                    self.wrote(rule);
                }
                Decisions::default()
            }
            Work::Reset => {
                (self.state, self.is_newer, self.is_written) = (None, false, true);
                Decisions::default()
            }
        };
        Ok(Told {
            decisions,
            looks: Decisions::default(),
        })
    }

    fn wrote(&mut self, rule: &'a Rule) {
        (self.is_written, self.writer) = (true, Some(rule));
    }

    fn step(&mut self, rule: &'a Rule, cost: Cost) -> Step {
        let step = rule.step(&mut self.state, self.now, cost);
        if !matches!(step, Step::Kept(_)) {
            self.wrote(rule);
            self.restarted += u64::from(matches!(step, Step::Restarted(_)));
        }
        step
    }

    /// Spends all asks, if `spends`, or none.
    fn step_all(&mut self, asks: &'a [(Rule, Cost)], spends: bool) -> Told {
        let look = |(rule, _): &(Rule, Cost)| rule.look(self.state.as_ref(), self.now);
        let looks: Decisions = asks.iter().map(look).collect();
        let (before, restarted) = (self.state.clone(), self.restarted);
        let (was_written, writer) = (self.is_written, self.writer);
        let steps: SmallVec<[Step; 4]> = asks
            .iter()
            .map(|(rule, cost)| self.step(rule, *cost))
            .collect();
        let all = steps.iter().all(|step| step.decision().is_admitted());
        if !(all && spends) {
            (self.state, self.restarted) = (before.clone(), restarted);
            (self.is_written, self.writer) = (was_written, writer);
        }
        if all {
            return Told {
                decisions: steps.into_iter().map(Step::decision).collect(),
                looks,
            };
        }
        // What a refusal writes stays: when a rule that does not start at rest saw the key first.
        for ((rule, cost), step) in asks.iter().zip(&steps) {
            if !step.decision().is_admitted() && !matches!(step, Step::Kept(_)) {
                self.state.clone_from(&before);
                self.step(rule, *cost);
            }
        }
        let decision = |(step, look): (&Step, &Decision)| match step.decision() {
            refusal if !refusal.is_admitted() => refusal,
            _ => *look,
        };
        let decisions = steps.iter().zip(looks.as_slice()).map(decision);
        Told {
            decisions: decisions.collect(),
            looks,
        }
    }
}

impl<Rule: Algorithm<State: Codec>> Draft<'_, Rule> {
    /// What has to be written where these bytes are; `None` where nothing has.
    pub(super) fn change(self, bytes: Option<&[u8]>) -> Option<Change<Rule::State>> {
        if !self.is_written {
            return None;
        }
        let new = self.state.as_ref().map(Codec::to_bytes);
        if new.as_deref() == bytes {
            return None;
        }
        let until = |state| Some(self.writer?.forgettable_at(state));
        let until = self.state.as_ref().and_then(until).unwrap_or_default();
        let keep = until.saturating_since(self.now);
        if keep.is_zero() {
            // No state says as much.
            return bytes.map(|_| Change {
                state: None,
                bytes: Vec::new(),
                keep,
            });
        }
        Some(Change {
            state: self.state,
            bytes: new.unwrap_or_default(),
            keep,
        })
    }
}
