//! The last answer of the store about a key.

use super::{decision_parts::DecisionParts, terms::Terms};
use crate::{
    decision::{Decision, Numbers},
    time::Timestamp,
};

/// The last answer of the store about a key, by the clock of this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Added to a time of this node, it gives the store's, modulo 2⁶⁴.
    store_is_ahead: u64,
    remaining: u64,
    /// When `remaining` has grown; `None` if it cannot grow.
    more_at: Option<Timestamp>,
    /// When the key is equal to an unused one.
    reset_at: Timestamp,
}

impl Known {
    pub(super) fn new(answer: &Decision, now: Timestamp) -> Self {
        let Numbers {
            remaining,
            reset_after,
            more_after,
        } = answer.numbers();
        Self {
            store_is_ahead: answer.at().as_nanos().wrapping_sub(now.as_nanos()),
            remaining,
            more_at: (!more_after.is_zero()).then(|| now.saturating_add(more_after)),
            reset_at: now.saturating_add(reset_after),
        }
    }

    pub(super) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the earliest instant at which the store admits a cost if nobody else spends, or any
    /// earlier one if that has passed; `None` if it is not known.
    pub(super) fn admits_at(&self, cost: u64) -> Option<Timestamp> {
        match cost.checked_sub(self.remaining) {
            None | Some(0) => Some(Timestamp::default()),
            Some(1) => self.more_at,
            Some(_) => None,
        }
    }

    /// Returns the parts of a decision at `now`, without a position; `left` units are on this side.
    #[inline]
    pub(super) fn parts(&self, now: Timestamp, left: u64, terms: &Terms) -> DecisionParts {
        let remaining = self.remaining.saturating_add(left).min(terms.capacity);
        let more_after = if remaining == terms.capacity {
            0
        } else {
            let more_at = self.more_at.unwrap_or_default();
            more_at.nanos_since(now).max(1)
        };
        DecisionParts {
            at: Timestamp::from_nanos(now.as_nanos().wrapping_add(self.store_is_ahead)),
            limit: terms.limit,
            remaining,
            more_after,
            reset_after: self.reset_at.nanos_since(now),
            position: None,
        }
    }
}
