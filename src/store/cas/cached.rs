//! The value of a key as this process knows it, and whether it may be relied on.

use std::time::Duration;

use super::{
    Loaded,
    frame::{Draft, Frame, ValueChange},
};
use crate::{
    algorithm::Codec,
    time::{Clock, Timestamp},
};

/// Chooses between the cached value and a load. If other processes write the key, too, the cached
/// value is often old: each time that it was, it is left out twice as often.
#[derive(Default)]
pub(super) struct CacheTrust {
    times: u32,
    left_out: u32,
}

impl CacheTrust {
    pub(super) fn allows(&mut self) -> bool {
        let allows = self.left_out == 0;
        self.left_out = self.left_out.saturating_sub(1);
        allows
    }

    pub(super) fn reduce(&mut self) {
        self.times = (self.times + 1).min(6);
        self.left_out = 1 << self.times;
    }
}

/// Time for which the store's time is derived from the clock of this process, before it is read
/// again.
const RECKONED: Duration = Duration::from_secs(1);

/// Time for which states are kept after they no longer matter by the clock of the host that writes
/// them. The clocks of other hosts may be behind by less.
const CLOCKS_APART: Duration = Duration::from_secs(60);

/// The value under a key when it was last read or written.
pub(super) struct CachedValue<V, S> {
    pub(super) version: Option<V>,
    pub(super) frame: Frame<S>,
    pub(super) form: ValueForm,
    pub(super) source: ValueSource,
    /// Time of the store, and time of this process at that instant or later.
    clocks: Option<[Timestamp; 2]>,
}

/// Operation that returned a value. It determines whether the value may be old.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueSource {
    /// A load that was sent after the calls came.
    Load,
    /// A lost swap.
    Loss,
    /// A load or swap for earlier calls. Only a swap that expects the value shows that it is
    /// current.
    Before,
}

/// Readability of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// States that this version of the program can read, or no value.
    Current,
    /// Bytes of another program, which count as no value.
    Damaged,
    /// A value that a newer program wrote.
    Newer,
}

impl<V, S> CachedValue<V, S> {
    pub(super) fn read(loaded: Loaded<V>, source: ValueSource, clock: &impl Clock) -> Self {
        let (version, bytes) = loaded.value.unzip();
        let (frame, read) = bytes.map_or_else(|| (Frame::default(), Ok(())), Frame::read);
        let form = match read {
            Ok(()) => ValueForm::Current,
            Err(error) if error.is_newer_state() => ValueForm::Newer,
            Err(_) => ValueForm::Damaged,
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
    /// If it is derived, it is ahead of the store's time by the drift of the clocks at most,
    /// because the clock of this process was read after it.
    fn now(&self, clock: &impl Clock) -> Timestamp {
        match self.clocks {
            None => clock.now(),
            Some([store, _]) if self.source == ValueSource::Load => store,
            Some([store, own]) => store.saturating_add(clock.now().saturating_since(own)),
        }
    }

    /// Returns the time for which states are kept after they no longer matter: none if all hosts
    /// decide by the store's clock.
    fn margin(&self) -> Duration {
        match self.clocks {
            None => CLOCKS_APART,
            Some(_) => Duration::ZERO,
        }
    }

    /// Begins work on the states.
    pub(super) fn draft(&mut self, clock: &impl Clock) -> Draft<'_, S>
    where
        S: Codec + Clone,
    {
        let (now, margin, is_newer) = (
            self.now(clock),
            self.margin(),
            self.form == ValueForm::Newer,
        );
        Draft::new(&mut self.frame, is_newer, now, margin)
    }

    /// Returns `true` if the store's clock must be read again: it was read too long ago, or the
    /// clock of this process has stepped back.
    pub(super) fn is_old(&self, clock: &impl Clock) -> bool {
        self.clocks.is_some_and(|[_, own]| {
            let now = clock.now();
            now < own || now.saturating_since(own) > RECKONED
        })
    }

    /// Returns the value for later calls.
    pub(super) fn aged(self) -> Self {
        let source = ValueSource::Before;
        Self { source, ..self }
    }

    /// Returns the value after a swap; `None` if the store did not return its version.
    pub(super) fn replaced(self, change: ValueChange<S>, version: Option<V>) -> Option<Self> {
        let is_kept = change.value().is_some();
        let is_known = version.is_some() || !is_kept;
        let version = version.filter(|_| is_kept);
        is_known.then_some(Self {
            version,
            frame: change.frame,
            form: ValueForm::Current,
            source: ValueSource::Before,
            ..self
        })
    }
}
