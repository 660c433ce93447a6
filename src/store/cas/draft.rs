//! What work makes of the states under a key.

use std::time::Duration;

use smallvec::SmallVec;

use super::{
    frame::{Frame, Held, Written},
    work::{Told, Work},
};
use crate::{
    algorithm::{Algorithm, Codec, StateKind, Step},
    decision::{Cost, Decision},
    store::{Decisions, Error},
    time::Timestamp,
};

/// The states under a key while work is done on them: those of the kinds that it is about.
pub(super) struct Draft<'a, Rule: Algorithm> {
    now: Timestamp,
    frame: &'a mut Frame<Rule::State>,
    /// Whether a newer program wrote the value, which nothing but a reset may replace.
    is_newer: bool,
    is_reset: bool,
    parts: Parts<'a, Rule>,
    /// States that could not be read, and count as none.
    pub(super) healed: u64,
    /// States that a newer program wrote.
    pub(super) newer: u64,
}

type Parts<'a, Rule> = SmallVec<[Part<'a, Rule>; 1]>;

/// The state of one kind.
struct Part<'a, Rule: Algorithm> {
    kind: StateKind,
    state: Option<Rule::State>,
    /// Whether a newer program wrote the state, which nothing but a reset may replace.
    is_newer: bool,
    /// The rule that wrote last.
    writer: Option<&'a Rule>,
}

impl<Rule: Algorithm> Clone for Part<'_, Rule> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            ..*self
        }
    }
}

/// What is to be under a key.
pub(super) struct Change<S> {
    pub(super) frame: Frame<S>,
    pub(super) keep: Duration,
}

impl<S> Change<S> {
    /// The new value; `None` where nothing is worth keeping.
    pub(super) fn value(&self) -> Option<&[u8]> {
        Some(self.frame.bytes()).filter(|bytes| !bytes.is_empty())
    }
}

impl<'a, Rule: Algorithm<State: Codec>> Draft<'a, Rule> {
    pub(super) fn new(frame: &'a mut Frame<Rule::State>, is_newer: bool, now: Timestamp) -> Self {
        Self {
            now,
            frame,
            is_newer,
            is_reset: false,
            parts: Parts::new(),
            healed: 0,
            newer: 0,
        }
    }

    /// Does the work.
    ///
    /// # Errors
    ///
    /// When a state that it is about is one that a newer program wrote.
    pub(super) fn apply(&mut self, work: &'a Work<Rule>) -> Result<Told, Error> {
        let parts = work.rules().into_iter();
        let parts: SmallVec<[usize; 1]> = parts.map(|rule| self.part(rule.state_kind())).collect();
        let is_newer = parts.iter().any(|part| self.parts[*part].is_newer);
        if !parts.is_empty() && (self.is_newer || is_newer) {
            return Err(Error::unsupported(crate::Error::newer_state()));
        }
        let decisions = match work {
            Work::Spend(asks) => match (&asks[..], &parts[..]) {
                ([(rule, cost)], [part]) => self.step(*part, rule, *cost).decision().into(),
                _ => return Ok(self.step_all(asks, &parts, true)),
            },
            Work::Try(asks) => return Ok(self.step_all(asks, &parts, false)),
            Work::Look(rule) => self.look(parts[0], rule).into(),
            Work::Settle {
                rule,
                charge,
                actual,
            } => {
                let part = &mut self.parts[parts[0]];
                let was_there = part.state.is_some();
                rule.settle(&mut part.state, charge, self.now, *actual);
                if was_there || part.state.is_some() {
                    part.writer = Some(rule);
                }
                Decisions::default()
            }
            Work::Reset => {
                (self.is_newer, self.is_reset) = (false, true);
                self.parts.clear();
                Decisions::default()
            }
        };
        Ok(Told {
            decisions,
            looks: Decisions::default(),
        })
    }

    /// The state of a kind, by its place among the parts.
    fn part(&mut self, kind: StateKind) -> usize {
        if let Some(part) = self.parts.iter().position(|part| part.kind == kind) {
            return part;
        }
        let (mut state, mut is_newer) = (None, false);
        let found = if self.is_reset {
            None
        } else {
            self.frame.open(kind, self.now)
        };
        if let Some((held, is_first)) = found {
            match held {
                Held::State(found) => state = Some(found.clone()),
                Held::Newer => {
                    is_newer = true;
                    self.newer += u64::from(is_first);
                }
                Held::Damaged | Held::Unread => self.healed += u64::from(is_first),
            }
        }
        self.parts.push(Part {
            kind,
            state,
            is_newer,
            writer: None,
        });
        self.parts.len() - 1
    }

    fn look(&self, part: usize, rule: &Rule) -> Decision {
        rule.look(self.parts[part].state.as_ref(), self.now)
    }

    fn step(&mut self, part: usize, rule: &'a Rule, cost: Cost) -> Step {
        let part = &mut self.parts[part];
        let step = rule.step(&mut part.state, self.now, cost);
        if !matches!(step, Step::Kept(_)) {
            part.writer = Some(rule);
        }
        step
    }

    /// Spends all asks, if `spends`, or none.
    fn step_all(&mut self, asks: &'a [(Rule, Cost)], parts: &[usize], spends: bool) -> Told {
        let each = || asks.iter().zip(parts);
        let looks: Decisions = each()
            .map(|((rule, _), part)| self.look(*part, rule))
            .collect();
        let before = self.parts.clone();
        let steps: SmallVec<[Step; 4]> = each()
            .map(|((rule, cost), part)| self.step(*part, rule, *cost))
            .collect();
        let all = steps.iter().all(|step| step.decision().is_admitted());
        if !(all && spends) {
            self.parts.clone_from(&before);
        }
        if all {
            return Told {
                decisions: steps.into_iter().map(Step::decision).collect(),
                looks,
            };
        }
        // What a refusal writes stays: when a rule that does not start at rest saw the key first.
        for (((rule, cost), part), step) in each().zip(&steps) {
            if !step.decision().is_admitted() && !matches!(step, Step::Kept(_)) {
                self.parts[*part].state.clone_from(&before[*part].state);
                self.step(*part, rule, *cost);
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

    /// Returns what has to be written; `None` where nothing has.
    pub(super) fn change(self) -> Option<Change<Rule::State>> {
        let now = self.now;
        let written = self.parts.into_iter().filter_map(|part| {
            let writer = part.writer?;
            let until = part
                .state
                .as_ref()
                .map(|state| writer.forgettable_at(state));
            Some(Written {
                kind: part.kind,
                state: part.state.map(|state| {
                    let bytes = state.to_bytes();
                    (state, bytes)
                }),
                until: until.unwrap_or_default(),
            })
        });
        let written: Vec<_> = written.collect();
        if written.is_empty() && !self.is_reset {
            return None;
        }
        let (frame, keep) = if self.is_reset {
            Frame::default().with(written, now)
        } else {
            self.frame.with(written, now)
        };
        (frame.bytes() != self.frame.bytes()).then_some(Change { frame, keep })
    }
}
