//! The value that the last load or swap left under a key.

use std::time::Duration;

use super::{Loaded, draft::Change, frame::Frame};
use crate::time::{Clock, Timestamp};

/// For so long, the store's time is derived from the clock of this process; then it is read again.
const RECKONED: Duration = Duration::from_secs(1);

/// The value under a key when it was last read or written.
pub(super) struct CachedValue<V, S> {
    pub(super) version: Option<V>,
    pub(super) frame: Frame<S>,
    pub(super) form: Form,
    pub(super) source: Source,
    /// The time of the store, and the time of this process at the same instant or later.
    clocks: Option<[Timestamp; 2]>,
}

/// The operation that returned a value, which determines how far it can be trusted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A load after the calls came that the value answers.
    Load,
    /// A lost swap.
    Loss,
    /// A load or swap for earlier calls. The value is current if a swap that expects it takes place.
    Before,
}

/// The form of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// States that this version of the program can read, or no value.
    Current,
    /// Bytes of another program, which count as no value.
    Damaged,
    /// A value that a newer program wrote.
    Newer,
}

impl<V, S> CachedValue<V, S> {
    pub(super) fn read(loaded: Loaded<V>, source: Source, clock: &impl Clock) -> Self {
        let (version, bytes) = loaded.value.unzip();
        let (frame, read) = bytes.map_or_else(|| (Frame::default(), Ok(())), Frame::read);
        let form = match read {
            Ok(()) => Form::Current,
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

    /// Returns the time of the store if it has a clock, else the time of this process.
    ///
    /// If it is derived, it is ahead of the store's time by the drift of the clocks at most, because the clock of this process was
    /// read after it.
    pub(super) fn now(&self, clock: &impl Clock) -> Timestamp {
        match self.clocks {
            None => clock.now(),
            Some([store, _]) if self.source == Source::Load => store,
            Some([store, own]) => store.saturating_add(clock.now().saturating_since(own)),
        }
    }

    /// Returns `true` if the store's clock was read too long ago, or the clock of this process has stepped back.
    pub(super) fn is_old(&self, clock: &impl Clock) -> bool {
        self.clocks.is_some_and(|[_, own]| {
            let now = clock.now();
            now < own || now.saturating_since(own) > RECKONED
        })
    }

    /// Returns the value for later calls.
    pub(super) fn aged(self) -> Self {
        let source = Source::Before;
        Self { source, ..self }
    }

    /// Returns the value after a swap; `None` if the store did not return its version.
    pub(super) fn replaced(self, change: Change<S>, version: Option<V>) -> Option<Self> {
        let is_kept = change.value().is_some();
        let is_told = version.is_some() || !is_kept;
        let version = version.filter(|_| is_kept);
        is_told.then_some(Self {
            version,
            frame: change.frame,
            form: Form::Current,
            ..self
        })
    }
}
