//! The states under a key while a batch of work is done on them.

use std::time::Duration;

use smallvec::SmallVec;

use super::{
    frame::{Frame, StoredState, Written},
    marks::{self, Marks},
    sync::{OwnedDelta, PulledBytes},
    work::Work,
};
use crate::{
    algorithm::{Algorithm, Codec, StateKind},
    decision::Charge,
    store::{
        Error, Spend,
        engine::{Answers, Entry, States},
    },
    time::Timestamp,
};

/// The states under a key while a batch of work is done on them, as far as the work is about them.
pub(super) struct Draft<'a, S> {
    now: Timestamp,
    frame: &'a mut Frame<S>,
    /// `true` if a newer program wrote the value. Then only a reset may replace it.
    is_newer: bool,
    is_reset: bool,
    parts: SmallVec<[Part<S>; 1]>,
    /// `None` while nobody asked for them.
    marks: Option<Marks>,
    /// The number of states that could not be read and count as none.
    pub(super) healed: u64,
    /// The number of states that a newer program wrote.
    pub(super) newer: u64,
}

/// The state of one kind.
struct Part<S> {
    kind: StateKind,
    /// `true` if a newer program wrote the state. Then only a reset may replace it.
    is_newer: bool,
    entry: Entry<S>,
}

/// The new value of a key.
pub(super) struct Change<S> {
    pub(super) frame: Frame<S>,
    pub(super) keep: Duration,
}

impl<S> Change<S> {
    /// Returns the bytes; `None` if no state is left.
    pub(super) fn value(&self) -> Option<&[u8]> {
        Some(self.frame.bytes()).filter(|bytes| !bytes.is_empty())
    }
}

impl<'a, S: Codec + Clone> Draft<'a, S> {
    pub(super) fn new(frame: &'a mut Frame<S>, is_newer: bool, now: Timestamp) -> Self {
        Self {
            now,
            frame,
            is_newer,
            is_reset: false,
            parts: SmallVec::new(),
            marks: None,
            healed: 0,
            newer: 0,
        }
    }

    /// Does the work.
    ///
    /// # Errors
    ///
    /// Fails if a newer program wrote a state that the work is about.
    pub(super) fn apply<Rule>(&mut self, work: &Work<Rule>) -> Result<Answers, Error>
    where
        Rule: Algorithm<State = S>,
    {
        let rules = work.rules();
        let mut is_newer = self.is_newer;
        for rule in &rules {
            is_newer |= self.part(rule.state_kind()).is_newer;
        }
        if is_newer && !rules.is_empty() {
            return Err(Error::unsupported(crate::Error::newer_state()));
        }
        let now = self.now;
        match work {
            Work::Spend(asks) => return Ok(self.spend(asks)),
            Work::Probe(asks) => return Ok(self.probe(asks)),
            Work::Look(rule) => {
                let state = self.part(rule.state_kind()).entry.state.as_ref();
                return Ok(Answers {
                    decisions: rule.look(state, now).into(),
                    ..Answers::default()
                });
            }
            Work::Settle {
                rule,
                charge,
                actual,
            } => {
                let entry = &mut self.part(rule.state_kind()).entry;
                return Ok(Answers {
                    forgets: entry.settle(rule, charge, now, *actual),
                    ..Answers::default()
                });
            }
            Work::Sync { deltas, pulled, .. } => self.sync(deltas, pulled)?,
            Work::Reset => {
                (self.is_newer, self.is_reset) = (false, true);
                self.parts.clear();
                self.marks = None;
            }
        }
        Ok(Answers::default())
    }

    /// Adds the deltas that the key does not have, and tells the states.
    fn sync<Rule>(&mut self, deltas: &[OwnedDelta<Rule>], pulled: &PulledBytes) -> Result<(), Error>
    where
        Rule: Algorithm<State = S>,
    {
        let now = self.now;
        for delta in deltas.iter().filter(|delta| delta.units > 0) {
            if !self.marks()?.note(delta.batch) {
                continue;
            }
            let at = now.saturating_sub(delta.age);
            let entry = &mut self.part(delta.rule.state_kind()).entry;
            // As of its own instant: what came later stands, and what was to be refilled since is.
            entry.settle(&delta.rule, &Charge::new(at, 0), at, delta.units);
        }
        let bytes = |delta: &OwnedDelta<Rule>| {
            let entry = &self.part(delta.rule.state_kind()).entry;
            entry.state.as_ref().map(Codec::to_bytes)
        };
        pulled.set(now, deltas.iter().map(bytes).collect());
        Ok(())
    }

    /// Returns the numbers of the deltas that the key has, which are read from the value the first time.
    fn marks(&mut self) -> Result<&mut Marks, Error> {
        if self.marks.is_none() {
            let bytes = self.frame.bytes_of(Marks::KIND).filter(|_| !self.is_reset);
            let marks = match bytes.map(Marks::read).transpose() {
                Ok(marks) => marks.unwrap_or_default(),
                Err(error) if error.is_newer_state() => return Err(Error::unsupported(error)),
                Err(_) => {
                    self.healed += 1;
                    Marks::default()
                }
            };
            self.marks = Some(marks);
        }
        Ok(self.marks.get_or_insert_default())
    }

    /// Returns the state of a kind, which is read from the value the first time.
    fn part(&mut self, kind: StateKind) -> &mut Part<S> {
        let index = self.parts.iter().position(|part| part.kind == kind);
        let index = index.unwrap_or_else(|| {
            let part = self.open(kind);
            self.parts.push(part);
            self.parts.len() - 1
        });
        &mut self.parts[index]
    }

    fn open(&mut self, kind: StateKind) -> Part<S> {
        let (mut state, mut is_newer) = (None, false);
        let found = if self.is_reset {
            None
        } else {
            self.frame.open(kind, self.now)
        };
        if let Some((held, is_first)) = found {
            match held {
                StoredState::State(found) => state = Some(found.clone()),
                StoredState::Newer => {
                    is_newer = true;
                    self.newer += u64::from(is_first);
                }
                StoredState::Damaged | StoredState::Unread => self.healed += u64::from(is_first),
            }
        }
        Part {
            kind,
            is_newer,
            entry: Entry::new(state),
        }
    }

    /// Returns the value to be written; `None` if it has not changed.
    pub(super) fn change(self) -> Option<Change<S>> {
        let now = self.now;
        let written = self.parts.into_iter().filter_map(|part| {
            Some(Written {
                kind: part.kind,
                until: part.entry.written_until?,
                state: part.entry.state.map(|state| {
                    let bytes = state.to_bytes();
                    (StoredState::State(state), bytes)
                }),
            })
        });
        let mut written: Vec<_> = written.collect();
        if let Some(marks) = self.marks.filter(|marks| marks.is_new) {
            let last = written.iter().map(|written| written.until).max();
            let last = last.max(Some(self.frame.last_until())).max(Some(now));
            written.push(Written {
                kind: Marks::KIND,
                until: last.unwrap_or(now).saturating_add(marks::KEEP),
                state: Some((StoredState::Unread, marks.to_bytes())),
            });
        }
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

impl<S, Rule> States<(Rule, Spend)> for Draft<'_, S>
where
    S: Codec + Clone,
    Rule: Algorithm<State = S>,
{
    type Rule = Rule;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn rule((rule, _): &(Rule, Spend)) -> &Rule {
        rule
    }

    fn spend_of((_, spend): &(Rule, Spend)) -> Spend {
        *spend
    }

    fn entry(&mut self, (rule, _): &(Rule, Spend)) -> &mut Entry<S> {
        &mut self.part(rule.state_kind()).entry
    }
}
