//! The value of a key: a state of each kind of rule that charges it, and the work on these states.
//!
//! ```text
//! value   0xf1 | state | state | ..                  1 to 16 states, ordered by kind
//!
//! state   kind     | until     | length    | bytes
//!         8 bytes, | LEB128,   | LEB128,   | as many as `length`, as `Codec` writes them
//!         little   | at most   | at most   |
//!         endian   | 10 bytes  | 10 bytes  |
//!
//! kind    `Algorithm::state_kind`; the sequence numbers of deltas have a kind of their own (see `sync`)
//! until   nanoseconds of Unix time from which on the state no longer matters to its rule
//!
//! load -> Frame::read -> Draft::apply for each job -> Draft::change -> ValueChange -> swap
//! ```
//!
//! A key without states has no value. A first byte of 0xf2 to 0xf7 is a newer version. A value with
//! another first byte, a kind twice, or more than 16 states is damaged.
//!
//! A state of a newer version is an error; other foreign bytes are no state. To replace what a
//! newer release wrote would grant a fresh limit for each request, and a roll-out takes hours.

use std::{cmp::Reverse, ops::Range, time::Duration};

use smallvec::SmallVec;

use super::{
    sync::{KEEP_NUMBERS, SequenceNumbers},
    worker::Work,
};
use crate::{
    algorithm::{Algorithm, Codec, FRAME, StateKind, put_number, take_number, take_tag},
    decision::Charge,
    error,
    store::{
        StoreError,
        ask::ResolvedAsk,
        delta::ResolvedDelta,
        engine::{Answers, CopiedStates, Entry, States},
    },
    time::Timestamp,
};

/// The most states of a value.
const MOST: usize = 16;

/// Time for which a state of another kind is kept after it expired, so that hosts whose clocks
/// differ by less drop no state of each other.
const GRACE: Duration = Duration::from_secs(900);

/// A value, and the states in it. They are decoded when they are first asked for.
pub(super) struct Frame<S> {
    /// The bytes to be stored; none if there is no state.
    bytes: Vec<u8>,
    entries: Entries<S>,
}

type Entries<S> = SmallVec<[StoredEntry<S>; 1]>;

#[derive(Clone)]
struct StoredEntry<S> {
    kind: StateKind,
    until: Timestamp,
    /// Range of the state in the bytes.
    at: Range<usize>,
    held: StoredState<S>,
}

/// A state in a value.
#[derive(Clone)]
enum StoredState<S> {
    /// Not decoded yet.
    Unread,
    State(S),
    /// Not readable; counts as no state.
    Damaged,
    /// Written by a newer program.
    Newer,
}

/// A state after work was done on it.
struct WrittenState<S> {
    kind: StateKind,
    /// The state and its bytes; `None` to remove it.
    state: Option<(StoredState<S>, Vec<u8>)>,
    /// Instant from which on it no longer matters to the rule that wrote it.
    until: Timestamp,
}

impl<S> Default for Frame<S> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            entries: Entries::new(),
        }
    }
}

impl<S> Frame<S> {
    /// Returns the states in a value.
    ///
    /// # Errors
    ///
    /// Fails if another program or a newer version wrote the value. The returned value then has no
    /// states.
    pub(super) fn read(bytes: Vec<u8>) -> (Self, Result<(), error::Error>) {
        let (entries, result) = match entries(&bytes) {
            Ok(entries) => (entries, Ok(())),
            Err(error) => (Entries::new(), Err(error)),
        };
        (Self { bytes, entries }, result)
    }

    /// Replaces the states of these kinds and drops those that have not mattered for `margin`.
    /// Returns the new value, and the time for which it must be kept.
    ///
    /// Of more than [`MOST`] states, those go that matter least long, and the new ones last.
    fn with(
        &self,
        written: Vec<WrittenState<S>>,
        now: Timestamp,
        margin: Duration,
    ) -> (Self, Duration)
    where
        S: Clone,
    {
        let is_written = |kind| written.iter().any(|written| written.kind == kind);
        // The host that wrote it may have a clock that is behind this one.
        let kept_until = |entry: &StoredEntry<S>| entry.until.saturating_add(GRACE);
        let is_kept = |entry: &&StoredEntry<S>| kept_until(entry) > now && !is_written(entry.kind);
        let mut others: Vec<&StoredEntry<S>> = self.entries.iter().filter(is_kept).collect();
        let mut news: Vec<_> = written
            .iter()
            .filter_map(|written| {
                let (state, bytes) = written.state.as_ref()?;
                let until = self.until(written, bytes, now);
                (until.saturating_add(margin) > now).then_some((
                    written.kind,
                    until,
                    &bytes[..],
                    state,
                ))
            })
            .collect();
        news.sort_by_key(|(_, until, ..)| Reverse(*until));
        news.truncate(MOST);
        others.sort_by_key(|entry| Reverse(entry.until));
        others.truncate(MOST - news.len());
        let last_of_others = others.iter().map(|entry| kept_until(entry)).max();
        let last = news
            .first()
            .map(|(_, until, ..)| until.saturating_add(margin))
            .max(last_of_others);
        let others = others.into_iter().map(|entry| {
            let bytes = &self.bytes[entry.at.clone()];
            (entry.kind, entry.until, bytes, entry.held.clone())
        });
        let news = news
            .into_iter()
            .map(|(kind, until, bytes, state)| (kind, until, bytes, state.clone()));
        let mut states: Vec<_> = others.chain(news).collect();
        // Equal states are then equal bytes.
        states.sort_by_key(|(kind, ..)| *kind);
        let mut frame = Self::default();
        for (kind, until, bytes, held) in states {
            frame.push(kind, until, bytes, held);
        }
        (frame, last.unwrap_or_default().saturating_since(now))
    }

    /// Returns the bytes of the state of a kind.
    fn bytes_of(&self, kind: StateKind) -> Option<&[u8]> {
        let entry = self.entries.iter().find(|entry| entry.kind == kind)?;
        Some(&self.bytes[entry.at.clone()])
    }

    /// Returns the latest instant at which a state of a rule matters.
    fn last_until(&self) -> Timestamp {
        let rules = self
            .entries
            .iter()
            .filter(|entry| entry.kind != SequenceNumbers::KIND);
        rules.map(|entry| entry.until).max().unwrap_or_default()
    }

    /// Returns the instant until which a written state matters: the one before if the state has not
    /// changed.
    fn until(&self, written: &WrittenState<S>, bytes: &[u8], now: Timestamp) -> Timestamp {
        let is_it = |entry: &&StoredEntry<S>| entry.kind == written.kind && entry.until > now;
        let before = self.entries.iter().find(is_it);
        let before = before.filter(|entry| self.bytes[entry.at.clone()] == *bytes);
        before.map_or(written.until, |entry| entry.until)
    }

    fn push(&mut self, kind: StateKind, until: Timestamp, bytes: &[u8], held: StoredState<S>) {
        if self.bytes.is_empty() {
            self.bytes.push(FRAME);
        }
        self.bytes.extend(kind.as_u64().to_le_bytes());
        put_number(&mut self.bytes, until.as_nanos());
        put_number(&mut self.bytes, bytes.len() as u64);
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.entries.push(StoredEntry {
            kind,
            until,
            at: begin..self.bytes.len(),
            held,
        });
    }
}

impl<S: Codec> Frame<S> {
    /// Returns the state of a kind, until when it matters, and `true` if it was decoded just now;
    /// `None` if there is none, or it no longer mattered at `as_of`.
    fn open(
        &mut self,
        kind: StateKind,
        as_of: Timestamp,
    ) -> Option<(&StoredState<S>, Timestamp, bool)> {
        let is_it = |entry: &&mut StoredEntry<S>| entry.kind == kind && entry.until > as_of;
        let entry = self.entries.iter_mut().find(is_it)?;
        let is_first = matches!(entry.held, StoredState::Unread);
        if is_first {
            entry.held = match S::from_bytes(&self.bytes[entry.at.clone()]) {
                Ok(state) => StoredState::State(state),
                Err(error) if error.is_newer_state() => StoredState::Newer,
                Err(_) => StoredState::Damaged,
            };
        }
        Some((&entry.held, entry.until, is_first))
    }
}

/// Finds the states in a value, without decoding them.
fn entries<S>(bytes: &[u8]) -> Result<Entries<S>, error::Error> {
    let mut rest = bytes;
    take_tag(&mut rest, FRAME)?;
    let mut entries = Entries::new();
    while entries.is_empty() || !rest.is_empty() {
        let (kind, after) = rest.split_first_chunk().ok_or_else(foreign)?;
        let kind = StateKind::from_u64(u64::from_le_bytes(*kind));
        rest = after;
        let until = Timestamp::from_nanos(take_number(&mut rest)?);
        let length = usize::try_from(take_number(&mut rest)?).map_err(|_| foreign())?;
        let begin = bytes.len() - rest.len();
        rest = rest.get(length..).ok_or_else(foreign)?;
        let is_twice = entries
            .iter()
            .any(|entry: &StoredEntry<S>| entry.kind == kind);
        if is_twice || entries.len() == MOST {
            return Err(foreign());
        }
        entries.push(StoredEntry {
            kind,
            until,
            at: begin..begin + length,
            held: StoredState::Unread,
        });
    }
    Ok(entries)
}

/// An error that is counted, and never shown.
#[cold]
fn foreign() -> error::Error {
    error::Error::new(
        "the value is none of this program: expected the states of a key; remove the key to begin afresh",
    )
}

/// States of a key while a batch of work is done on them. Only the states that the work needs are
/// decoded.
pub(super) struct Draft<'a, S> {
    now: Timestamp,
    /// Time for which states are kept after they no longer matter.
    margin: Duration,
    frame: &'a mut Frame<S>,
    /// `true` if a newer program wrote the value. Then only a reset may replace it.
    is_newer: bool,
    is_reset: bool,
    states: SmallVec<[DraftState<S>; 1]>,
    /// `None` until a delta needs them.
    sequence_numbers: Option<SequenceNumbers>,
    /// Number of states that could not be read and count as none.
    pub(super) healed: u64,
    /// Number of states that a newer program wrote.
    pub(super) newer: u64,
}

/// A state of one kind in a draft.
struct DraftState<S> {
    kind: StateKind,
    /// `true` if a newer program wrote the state. Then only a reset may replace it.
    is_newer: bool,
    entry: Entry<S>,
}

/// The new value of a key.
pub(super) struct ValueChange<S> {
    pub(super) frame: Frame<S>,
    pub(super) keep: Duration,
}

impl<S> ValueChange<S> {
    /// Returns the bytes; `None` if no state is left.
    pub(super) fn value(&self) -> Option<&[u8]> {
        Some(&*self.frame.bytes).filter(|bytes| !bytes.is_empty())
    }
}

impl<'a, S: Codec + Clone> Draft<'a, S> {
    pub(super) fn new(
        frame: &'a mut Frame<S>,
        is_newer: bool,
        now: Timestamp,
        margin: Duration,
    ) -> Self {
        Self {
            now,
            margin,
            frame,
            is_newer,
            is_reset: false,
            states: SmallVec::new(),
            sequence_numbers: None,
            healed: 0,
            newer: 0,
        }
    }

    /// Does the work.
    ///
    /// # Errors
    ///
    /// Fails if a newer program wrote a state that the work is about.
    pub(super) fn apply<Rule>(&mut self, work: &Work<Rule>) -> Result<Answers, StoreError>
    where
        Rule: Algorithm<State = S>,
    {
        let rules = work.rules();
        // A delta is added behind what mattered at its own instant.
        let as_of = match work {
            Work::Sync { deltas, .. } => {
                let ages = deltas.iter().map(|delta| delta.age);
                self.now.saturating_sub(ages.max().unwrap_or_default())
            }
            _ => self.now,
        };
        let mut is_newer = self.is_newer;
        for rule in &rules {
            is_newer |= self.state_as_of(rule.state_kind(), as_of).is_newer;
        }
        if is_newer && !rules.is_empty() {
            return Err(StoreError::unsupported(crate::Error::newer_state()));
        }
        let now = self.now;
        match work {
            Work::Spend(asks) => return Ok(self.spend(asks)),
            Work::Probe(asks) => return Ok(self.probe(asks)),
            Work::Look(rule) => {
                let state = self.state(rule.state_kind()).entry.state.as_ref();
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
                let entry = &mut self.state(rule.state_kind()).entry;
                return Ok(Answers {
                    forgets: entry.settle(rule, charge, now, *actual),
                    ..Answers::default()
                });
            }
            Work::Sync { deltas, .. } => return self.sync(deltas),
            Work::Reset => {
                (self.is_newer, self.is_reset) = (false, true);
                self.states.clear();
                self.sequence_numbers = None;
            }
        }
        Ok(Answers::default())
    }

    /// Adds the deltas that the key does not have, and returns the states.
    fn sync<Rule>(&mut self, deltas: &[ResolvedDelta<Rule, usize>]) -> Result<Answers, StoreError>
    where
        Rule: Algorithm<State = S>,
    {
        let now = self.now;
        for delta in deltas.iter().filter(|delta| delta.units > 0) {
            if !self.sequence_numbers()?.record(delta.batch) {
                continue;
            }
            let at = now.saturating_sub(delta.age);
            let entry = &mut self.state(delta.rule.state_kind()).entry;
            // Charged at its own instant: later charges stand, and the refill since then counts.
            entry.settle(&delta.rule, &Charge::new(at, 0), at, delta.units);
        }
        let bytes = |delta: &ResolvedDelta<Rule, usize>| {
            let entry = &self.state(delta.rule.state_kind()).entry;
            entry.state.as_ref().map(Codec::to_bytes)
        };
        Ok(Answers {
            pulled: (now, deltas.iter().map(bytes).collect()),
            ..Answers::default()
        })
    }

    /// Returns the sequence numbers of the key. The first call decodes them.
    fn sequence_numbers(&mut self) -> Result<&mut SequenceNumbers, StoreError> {
        if self.sequence_numbers.is_none() {
            let bytes = self
                .frame
                .bytes_of(SequenceNumbers::KIND)
                .filter(|_| !self.is_reset);
            let sequence_numbers = match bytes.map(SequenceNumbers::read).transpose() {
                Ok(sequence_numbers) => sequence_numbers.unwrap_or_default(),
                Err(error) if error.is_newer_state() => return Err(StoreError::unsupported(error)),
                Err(_) => {
                    self.healed += 1;
                    SequenceNumbers::default()
                }
            };
            self.sequence_numbers = Some(sequence_numbers);
        }
        Ok(self.sequence_numbers.get_or_insert_default())
    }

    /// Returns the state of a kind.
    fn state(&mut self, kind: StateKind) -> &mut DraftState<S> {
        self.state_as_of(kind, self.now)
    }

    /// Returns the state of a kind. The first call decodes it, if it mattered at `as_of`.
    fn state_as_of(&mut self, kind: StateKind, as_of: Timestamp) -> &mut DraftState<S> {
        let index = self.states.iter().position(|state| state.kind == kind);
        let index = index.unwrap_or_else(|| {
            let state = self.open(kind, as_of);
            self.states.push(state);
            self.states.len() - 1
        });
        &mut self.states[index]
    }

    fn open(&mut self, kind: StateKind, as_of: Timestamp) -> DraftState<S> {
        let (mut state, mut is_newer, mut until) = (None, false, Timestamp::default());
        let found = if self.is_reset {
            None
        } else {
            self.frame.open(kind, as_of)
        };
        if let Some((held, end, is_first)) = found {
            match held {
                StoredState::State(found) => (state, until) = (Some(found.clone()), end),
                StoredState::Newer => {
                    is_newer = true;
                    self.newer += u64::from(is_first);
                }
                StoredState::Damaged | StoredState::Unread => self.healed += u64::from(is_first),
            }
        }
        DraftState {
            kind,
            is_newer,
            entry: Entry::new(state, until),
        }
    }

    /// Returns the value to be written; `None` if it has not changed.
    pub(super) fn change(self) -> Option<ValueChange<S>> {
        let (now, margin) = (self.now, self.margin);
        let written = self
            .states
            .into_iter()
            .filter(|state| state.entry.is_written);
        let written = written.map(|state| WrittenState {
            kind: state.kind,
            until: state.entry.until,
            state: state.entry.state.map(|state| {
                let bytes = state.to_bytes();
                (StoredState::State(state), bytes)
            }),
        });
        let mut written: Vec<_> = written.collect();
        if let Some(sequence_numbers) = self
            .sequence_numbers
            .filter(|sequence_numbers| sequence_numbers.is_new)
        {
            let last = written.iter().map(|written| written.until).max();
            let last = last.max(Some(self.frame.last_until())).max(Some(now));
            written.push(WrittenState {
                kind: SequenceNumbers::KIND,
                until: last.unwrap_or(now).saturating_add(KEEP_NUMBERS),
                state: Some((StoredState::Unread, sequence_numbers.to_bytes())),
            });
        }
        if written.is_empty() && !self.is_reset {
            return None;
        }
        let (frame, keep) = if self.is_reset {
            Frame::default().with(written, now, margin)
        } else {
            self.frame.with(written, now, margin)
        };
        (frame.bytes != self.frame.bytes).then_some(ValueChange { frame, keep })
    }
}

/// The kind of its rule says which state an ask is about.
impl<S, Rule> CopiedStates<Rule, usize> for Draft<'_, S>
where
    S: Codec + Clone,
    Rule: Algorithm<State = S>,
{
    fn now(&self) -> Timestamp {
        self.now
    }

    fn entry(&mut self, ask: &ResolvedAsk<Rule, usize>) -> &mut Entry<S> {
        &mut self.state(ask.rule.state_kind()).entry
    }
}
