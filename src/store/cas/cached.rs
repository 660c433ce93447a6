//! What a process knows of what is kept under a key.

use std::time::Duration;

use super::{Loaded, draft::Change, frame::Frame};
use crate::time::{Clock, Timestamp};

/// How long the store's clock is reckoned from this process's, before it is asked again.
const RECKONED: Duration = Duration::from_secs(1);

/// What is kept under a key, as far as is known.
pub(super) struct CachedValue<V, S> {
    pub(super) version: Option<V>,
    pub(super) frame: Frame<S>,
    pub(super) form: Form,
    pub(super) source: Source,
    /// The store's clock, and this process's at the same instant or later.
    clocks: Option<[Timestamp; 2]>,
}

/// How it is known, and so how far it can be trusted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// It was read since the calls came that it answers.
    Load,
    /// A lost swap found it.
    Loss,
    /// It was read or written for calls before these: true if a swap that expects it takes place.
    Before,
}

/// The form of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// States that a program of this version wrote, or nothing at all.
    CachedValue,
    /// No value of this program; it counts as none.
    Damaged,
    /// A value that a newer program wrote.
    Newer,
}

impl<V, S> CachedValue<V, S> {
    pub(super) fn read(loaded: Loaded<V>, source: Source, clock: &impl Clock) -> Self {
        let (version, bytes) = loaded.value.unzip();
        let (frame, read) = bytes.map_or_else(|| (Frame::default(), Ok(())), Frame::read);
        let form = match read {
            Ok(()) => Form::CachedValue,
            Err(error) if error.is_newer_state() => Form::Newer,
            Err(_) => Form::Damaged,
        };
        Self {
            version,
            frame,
            form,
            source,
            clocks: loaded.now.map(|now| [now, clock.now()]),
        }
    }

    /// The store's time where it tells one, else this process's.
    ///
    /// Reckoned, it is never ahead of the store's by more than the clocks drift apart: this process's was read
    /// after it.
    pub(super) fn now(&self, clock: &impl Clock) -> Timestamp {
        match self.clocks {
            None => clock.now(),
            Some([store, _]) if self.source == Source::Load => store,
            Some([store, own]) => store.saturating_add(clock.now().saturating_since(own)),
        }
    }

    /// Whether the store's clock has to be asked again: it was asked too long ago, or this process's has stepped back.
    pub(super) fn is_old(&self, clock: &impl Clock) -> bool {
        self.clocks.is_some_and(|[_, own]| {
            let now = clock.now();
            now < own || now.saturating_since(own) > RECKONED
        })
    }

    /// The same for calls that come later.
    pub(super) fn aged(self) -> Self {
        let source = Source::Before;
        Self { source, ..self }
    }

    /// What is there after a swap; `None` where the store did not tell its version.
    pub(super) fn replaced(self, change: Change<S>, version: Option<V>) -> Option<Self> {
        let is_kept = change.value().is_some();
        let is_told = version.is_some() || !is_kept;
        let version = version.filter(|_| is_kept);
        is_told.then_some(Self {
            version,
            frame: change.frame,
            form: Form::CachedValue,
            ..self
        })
    }
}
