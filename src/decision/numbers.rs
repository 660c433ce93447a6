//! The numbers of a decision: stored, or computed when they are read.
//!
//! Most numbers are never read, and each takes a division, so they are computed when they are read.
//! A decision holds a few words and a reference to the functions that turn them into numbers, so it
//! knows nothing of buckets.
//!
//! `more_after` is the wait until `remaining` grows. The `t` of a RateLimit field needs it, and a
//! second look-up could contradict the decision.
//!
//! Keys, decisions and policies consist of whole words. Words that are read right after they were
//! written as bytes wait for memory; that cost more than the arithmetic. For the same reason a
//! single decision is not a list.

use std::{cmp::Ordering, fmt, num::NonZeroU64, time::Duration};

use super::charge::Position;
use crate::{quota::Quota, time::Timestamp};

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
/// Most decisions are never read, and each number takes a division.
#[derive(Clone, Copy)]
pub(crate) struct Deferred {
    /// The position of the last charge, and the state after it, in a format that `compute` defines.
    pub(crate) state: DeferredState,
    pub(crate) compute: &'static Compute,
}

/// The state from which numbers are computed.
pub(crate) type DeferredState = [u64; 6];

/// The functions of an algorithm that compute [`Deferred`] numbers.
// One for each number: most readers need one or two.
pub(crate) struct Compute {
    pub(crate) remaining: fn(&DeferredState) -> u64,
    pub(crate) reset_after: fn(&DeferredState) -> Duration,
    /// The second argument is the remaining units.
    pub(crate) more_after: fn(&DeferredState, u64) -> Duration,
    /// The position of a charge at an instant.
    pub(crate) position: fn(&DeferredState, Timestamp) -> Option<Position>,
}

/// The numbers of a decision, or the means to compute them.
#[derive(Clone, Copy)]
pub(super) enum NumbersSource {
    Stored(Numbers, Option<Position>),
    Deferred(Deferred),
}

impl NumbersSource {
    pub(super) const NONE: Self = Self::Stored(Numbers::NONE, None);

    pub(super) fn numbers(&self) -> Numbers {
        match self {
            Self::Stored(numbers, _) => *numbers,
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
            Self::Stored(numbers, _) => numbers.remaining,
            Self::Deferred(Deferred { state, compute }) => (compute.remaining)(state),
        }
    }

    #[inline]
    pub(super) fn reset_after(&self) -> Duration {
        match self {
            Self::Stored(numbers, _) => numbers.reset_after,
            Self::Deferred(Deferred { state, compute }) => (compute.reset_after)(state),
        }
    }

    /// Returns the wait until there are more than the `remaining` units.
    #[inline]
    pub(super) fn more_after(&self, remaining: u64) -> Duration {
        match self {
            Self::Stored(numbers, _) => numbers.more_after,
            Self::Deferred(Deferred { state, compute }) => (compute.more_after)(state, remaining),
        }
    }

    /// Returns the position of the charge of a decision at an instant.
    pub(super) fn position(&self, at: Timestamp) -> Option<Position> {
        match self {
            Self::Stored(_, position) => *position,
            Self::Deferred(deferred) => (deferred.compute.position)(&deferred.state, at),
        }
    }
}

impl PartialEq for NumbersSource {
    fn eq(&self, other: &Self) -> bool {
        self.numbers() == other.numbers()
    }
}

impl Eq for NumbersSource {}

impl fmt::Debug for NumbersSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.numbers().fmt(f)
    }
}

/// The greatest cost that a rule admits, and its capacity and rate as clients see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleLimit {
    /// The greatest cost that can ever pass.
    pub(crate) capacity: NonZeroU64,
    /// The capacity of the rule that has the quota.
    pub(crate) announced: NonZeroU64,
    /// The sustained rate.
    pub(crate) quota: Quota,
}

impl RuleLimit {
    /// The limit of one rule.
    #[inline]
    pub(crate) const fn new(capacity: NonZeroU64, quota: Quota) -> Self {
        Self {
            capacity,
            announced: capacity,
            quota,
        }
    }

    /// Returns the limit of two rules that are charged together.
    ///
    /// It announces the slower rule, and of equally fast ones that with the smaller capacity. The
    /// choice does not depend on the state, so that a policy has the same header in all responses.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        let rates = self.quota.compare_rates(other.quota);
        let tightest = match rates.then(self.announced.cmp(&other.announced)) {
            Ordering::Less | Ordering::Equal => self,
            Ordering::Greater => other,
        };
        Self {
            capacity: self.capacity.min(other.capacity),
            ..tightest
        }
    }
}
