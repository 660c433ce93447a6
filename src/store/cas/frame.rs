//! The bytes of a value: a state of each kind of rule that charges the key.

use std::{cmp::Reverse, ops::Range, time::Duration};

use smallvec::SmallVec;

use super::marks::Marks;
use crate::{
    algorithm::{Codec, FRAME, StateKind, put_number, take_number, take_tag},
    error::Error,
    time::Timestamp,
};

/// The most states of a value.
const MOST: usize = 16;

/// A state of another kind is kept for so long after it matters, so that hosts whose clocks differ by less forget nothing of each
/// other.
const GRACE: Duration = Duration::from_secs(900);

/// A value, and the states in it.
///
/// | bytes | |
/// |---|---|
/// | 1 | the tag, with the version of this form |
/// | for each state 8 | its kind, the lowest byte first |
/// | up to 10 | the instant in nanoseconds from which on it no longer matters, as LEB128 |
/// | up to 10 | the length of the state, as LEB128 |
/// | that length | the state, as [`Codec`] writes it |
pub(super) struct Frame<S> {
    bytes: Vec<u8>,
    entries: Entries<S>,
}

type Entries<S> = SmallVec<[Entry<S>; 1]>;

#[derive(Clone)]
struct Entry<S> {
    kind: StateKind,
    until: Timestamp,
    /// The range of the state in the bytes.
    at: Range<usize>,
    held: StoredState<S>,
}

/// A state in a value.
#[derive(Clone)]
pub(super) enum StoredState<S> {
    /// Not decoded yet.
    Unread,
    State(S),
    /// Not readable; counts as no state.
    Damaged,
    /// Written by a newer program.
    Newer,
}

/// A state after work was done on it.
pub(super) struct Written<S> {
    pub(super) kind: StateKind,
    /// The state and its bytes; `None` if it is to be removed.
    pub(super) state: Option<(StoredState<S>, Vec<u8>)>,
    /// The instant from which on it no longer matters to the rule that wrote it.
    pub(super) until: Timestamp,
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
    /// Fails if another program or a newer version wrote the value. The returned value then has no states.
    pub(super) fn read(bytes: Vec<u8>) -> (Self, Result<(), Error>) {
        let (entries, result) = match entries(&bytes) {
            Ok(entries) => (entries, Ok(())),
            Err(error) => (Entries::new(), Err(error)),
        };
        (Self { bytes, entries }, result)
    }

    /// Returns the bytes to be stored; none if there is no state.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the value with these states in the place of those of their kinds, without those that no longer matter, and for how
    /// long it matters.
    ///
    /// Of more than [`MOST`] states, those go that matter least long, and the new ones last.
    pub(super) fn with(&self, written: Vec<Written<S>>, now: Timestamp) -> (Self, Duration)
    where
        S: Clone,
    {
        let is_written = |kind| written.iter().any(|written| written.kind == kind);
        // Whoever wrote it may have a clock that is behind this one.
        let kept_until = |entry: &Entry<S>| entry.until.saturating_add(GRACE);
        let is_kept = |entry: &&Entry<S>| kept_until(entry) > now && !is_written(entry.kind);
        let mut others: Vec<&Entry<S>> = self.entries.iter().filter(is_kept).collect();
        let mut news: Vec<_> = written
            .iter()
            .filter_map(|written| {
                let (state, bytes) = written.state.as_ref()?;
                let until = self.until(written, bytes, now);
                (until > now).then_some((written.kind, until, &bytes[..], state))
            })
            .collect();
        news.sort_by_key(|(_, until, ..)| Reverse(*until));
        news.truncate(MOST);
        others.sort_by_key(|entry| Reverse(entry.until));
        others.truncate(MOST - news.len());
        let last_of_others = others.iter().map(|entry| kept_until(entry)).max();
        let last = news
            .first()
            .map(|(_, until, ..)| *until)
            .max(last_of_others);
        let others = others.into_iter().map(|entry| {
            let bytes = &self.bytes[entry.at.clone()];
            (entry.kind, entry.until, bytes, entry.held.clone())
        });
        let news = news
            .into_iter()
            .map(|(kind, until, bytes, state)| (kind, until, bytes, state.clone()));
        let mut states: Vec<_> = others.chain(news).collect();
        // So the same states are the same bytes.
        states.sort_by_key(|(kind, ..)| *kind);
        let mut frame = Self::default();
        for (kind, until, bytes, held) in states {
            frame.push(kind, until, bytes, held);
        }
        (frame, last.unwrap_or_default().saturating_since(now))
    }

    /// Returns the bytes of a state that is not of a rule.
    pub(super) fn bytes_of(&self, kind: StateKind) -> Option<&[u8]> {
        let entry = self.entries.iter().find(|entry| entry.kind == kind)?;
        Some(&self.bytes[entry.at.clone()])
    }

    /// Returns until when the last of the states of rules matters.
    pub(super) fn last_until(&self) -> Timestamp {
        let rules = self
            .entries
            .iter()
            .filter(|entry| entry.kind != Marks::KIND);
        rules.map(|entry| entry.until).max().unwrap_or_default()
    }

    /// Returns until when a written state matters: as long as before if it has not changed.
    fn until(&self, written: &Written<S>, bytes: &[u8], now: Timestamp) -> Timestamp {
        let is_it = |entry: &&Entry<S>| entry.kind == written.kind && entry.until > now;
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
        self.entries.push(Entry {
            kind,
            until,
            at: begin..self.bytes.len(),
            held,
        });
    }
}

impl<S: Codec> Frame<S> {
    /// Returns the state of a kind, and whether it is read for the first time; `None` where there is none.
    ///
    /// One that cannot be read is none when it no longer matters.
    pub(super) fn open(
        &mut self,
        kind: StateKind,
        now: Timestamp,
    ) -> Option<(&StoredState<S>, bool)> {
        let entry = self.entries.iter_mut().find(|entry| entry.kind == kind)?;
        let is_first = matches!(entry.held, StoredState::Unread);
        if is_first {
            entry.held = match S::from_bytes(&self.bytes[entry.at.clone()]) {
                Ok(state) => StoredState::State(state),
                Err(error) if error.is_newer_state() => StoredState::Newer,
                Err(_) => StoredState::Damaged,
            };
        }
        let is_read = matches!(entry.held, StoredState::State(_));
        (is_read || entry.until > now).then_some((&entry.held, is_first))
    }
}

/// Finds the states in a value; their bytes are read when somebody asks for them.
fn entries<S>(bytes: &[u8]) -> Result<Entries<S>, Error> {
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
        let is_twice = entries.iter().any(|entry: &Entry<S>| entry.kind == kind);
        if is_twice || entries.len() == MOST {
            return Err(foreign());
        }
        entries.push(Entry {
            kind,
            until,
            at: begin..begin + length,
            held: StoredState::Unread,
        });
    }
    Ok(entries)
}

/// Counted, and shown to nobody.
#[cold]
fn foreign() -> Error {
    Error::new(
        "the value is none of this program: expected the states of a key; remove the key to begin afresh",
    )
}
