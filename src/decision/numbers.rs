//! The numbers of a decision: given, or computed when they are read.

use std::{fmt, time::Duration};

use super::Position;
use crate::time::Timestamp;

/// The remaining units, and the waits until there are more and until the key is like an unused one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) remaining: u64,
    pub(crate) reset_after: Duration,
    pub(crate) more_after: Duration,
}

impl Numbers {
    pub(super) const NONE: Self = Self {
        remaining: 0,
        reset_after: Duration::ZERO,
        more_after: Duration::ZERO,
    };
}

/// Numbers that the algorithm computes when they are read.
///
/// Most decisions are made and never read, and a number takes a division.
#[derive(Clone, Copy)]
pub(crate) struct Deferred {
    /// The position of the last charge, and the state after it, in a form that `compute` knows.
    pub(crate) state: DeferredState,
    pub(crate) compute: &'static Compute,
}

/// The state that numbers are computed from.
pub(crate) type DeferredState = [u64; 5];

/// The functions of an algorithm that compute [`Deferred`] numbers.
// One for each number: mostly one or two are read.
pub(crate) struct Compute {
    pub(crate) remaining: fn(&DeferredState) -> u64,
    pub(crate) reset_after: fn(&DeferredState) -> Duration,
    /// The second argument is what remains.
    pub(crate) more_after: fn(&DeferredState, u64) -> Duration,
    /// The position of a charge at an instant.
    pub(crate) position: fn(&DeferredState, Timestamp) -> Option<Position>,
}

/// Where the numbers of a decision come from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Given(Numbers, Option<Position>),
    Deferred(Deferred),
}

impl Source {
    pub(super) const NONE: Self = Self::Given(Numbers::NONE, None);

    pub(super) fn numbers(&self) -> Numbers {
        match self {
            Self::Given(numbers, _) => *numbers,
            Self::Deferred(Deferred { state, compute }) => {
                let remaining = (compute.remaining)(state);
                Numbers {
                    remaining,
                    reset_after: (compute.reset_after)(state),
                    more_after: (compute.more_after)(state, remaining),
                }
            }
        }
    }

    #[inline]
    pub(super) fn remaining(&self) -> u64 {
        match self {
            Self::Given(numbers, _) => numbers.remaining,
            Self::Deferred(Deferred { state, compute }) => (compute.remaining)(state),
        }
    }

    #[inline]
    pub(super) fn reset_after(&self) -> Duration {
        match self {
            Self::Given(numbers, _) => numbers.reset_after,
            Self::Deferred(Deferred { state, compute }) => (compute.reset_after)(state),
        }
    }

    /// The position of the charge of a decision at an instant.
    pub(super) fn position(&self, at: Timestamp) -> Option<Position> {
        match self {
            Self::Given(_, position) => *position,
            Self::Deferred(deferred) => (deferred.compute.position)(&deferred.state, at),
        }
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.numbers() == other.numbers()
    }
}

impl Eq for Source {}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.numbers().fmt(f)
    }
}
