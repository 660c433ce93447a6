//! What is remembered of a key: its counters.

use std::ops::{Deref, DerefMut};

use super::slices::{Place, Slices};
use crate::clock::Timestamp;

/// What a [`SlidingWindow`](super::SlidingWindow) remembers of a key: how much each slice has counted, as of the last
/// write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindowState {
    pub(super) written_at: Timestamp,
    /// The window of the rule that wrote, in nanoseconds.
    pub(super) window: u64,
    /// One more than that rule has slices.
    pub(super) counters: Counters,
}

/// The counters, that of the newest slice first; those of one slice to the window lie in the state itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Counters {
    Two([u64; 2]),
    Many(Box<[u64]>),
}

impl Counters {
    /// Zeros, for so many slices.
    #[inline]
    pub(super) fn zero(slices: u64) -> Self {
        if slices == 1 {
            Self::Two([0; 2])
        } else {
            Self::Many(vec![0; slices as usize + 1].into())
        }
    }
}

impl Deref for Counters {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        match self {
            Self::Two(counters) => counters,
            Self::Many(counters) => counters,
        }
    }
}

impl DerefMut for Counters {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        match self {
            Self::Two(counters) => counters,
            Self::Many(counters) => counters,
        }
    }
}

impl SlidingWindowState {
    /// A key that has counted nothing.
    #[inline]
    pub(super) fn empty(slices: &Slices, at: Timestamp) -> Self {
        Self {
            written_at: at,
            window: slices.window(),
            counters: Counters::zero(slices.count()),
        }
    }

    /// The slices that it counts in.
    pub(super) fn slices(&self) -> Slices {
        Slices::new(self.window, self.counters.len() as u32 - 1)
    }

    /// Whether these are the slices that it counts in.
    #[inline]
    pub(super) fn counts_in(&self, slices: &Slices) -> bool {
        self.window == slices.window() && self.counters.len() as u64 == slices.count() + 1
    }

    /// How many slices have begun between the last write and `at`, which lies at `place` and is not earlier.
    #[inline]
    pub(super) fn passed(&self, slices: &Slices, at: Timestamp, place: &Place) -> u64 {
        if at.nanos_since(self.written_at) <= place.length - place.rest {
            return 0;
        }
        place.slice - slices.place(self.written_at).slice
    }

    /// The counters that still count when so many slices have begun since the last write.
    #[inline]
    pub(super) fn counting(&self, passed: u64) -> &[u64] {
        let left = (self.counters.len() as u64).saturating_sub(passed);
        &self.counters[..left as usize]
    }

    /// Moves on to `at`, before which so many slices have begun since the last write.
    #[inline]
    pub(super) fn advance(&mut self, at: Timestamp, passed: u64) {
        if passed > 0 {
            let left = self.counting(passed).len();
            let new = self.counters.len() - left;
            self.counters.copy_within(..left, new);
            self.counters[..new].fill(0);
        }
        self.written_at = at;
    }

    /// The same calls in other slices: nothing is minted.
    ///
    /// Each counts as if it had come as late as it can have: in the last nanosecond of its old slice, but not
    /// after the last write.
    #[cold]
    pub(super) fn converted(&self, slices: &Slices) -> Self {
        let mut converted = Self::empty(slices, self.written_at);
        let old = self.slices();
        let newest = slices.place(self.written_at).slice;
        let mut latest = self.written_at;
        for count in &*self.counters {
            let age = newest - slices.place(latest).slice;
            let counter = usize::try_from(age)
                .ok()
                .and_then(|age| converted.counters.get_mut(age));
            match counter {
                Some(counter) => *counter = counter.saturating_add(*count),
                // This and all before it have left the new window.
                None => break,
            }
            // On to the last nanosecond before this slice, if there is one after the epoch.
            let Place { rest, length, .. } = old.place(latest);
            match latest.as_nanos().checked_sub(length - rest + 1) {
                Some(earlier) => latest = Timestamp::from_nanos(earlier),
                None => break,
            }
        }
        converted
    }
}
