//! The last answer of the store about a key, and the parts of a decision that leases made.

use std::time::Duration;

use super::Terms;
use crate::{
    decision::{Compute, Cost, Decision, Deferred, Numbers, Position, RuleLimit, Verdict},
    time::Timestamp,
};

/// The last answer of the store about a key, by the clock of this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastAnswer {
    /// Added to a time of this node, it gives the store's, modulo 2⁶⁴.
    store_is_ahead: u64,
    pub(super) remaining: u64,
    /// When `remaining` has grown; `None` if it cannot grow.
    more_at: Option<Timestamp>,
    /// When the key is equal to an unused one.
    reset_at: Timestamp,
}

impl LastAnswer {
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
    pub(super) fn parts(
        &self,
        now: Timestamp,
        left: u64,
        full_at: FullAt,
        terms: &Terms,
    ) -> DecisionParts {
        let reset_after = self.reset_at.nanos_since(now);
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
            reset_after,
            full_after: full_at.after(now).unwrap_or(reset_after),
            position: None,
        }
    }
}

/// When a key has its full quota by the last answer, by the clock of this node; in seconds rounded
/// up, as they fit beside the flags of a key. 0 if that is when it is equal to an unused one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullAt(u32);

impl FullAt {
    pub(super) fn new(answer: &Decision, now: Timestamp) -> Self {
        let wait = answer.full_after();
        if wait >= answer.reset_after() {
            return Self(0);
        }
        let at = now.saturating_add(wait).as_nanos().div_ceil(1_000_000_000);
        Self(u32::try_from(at).unwrap_or(0))
    }

    /// Returns the wait in nanoseconds.
    #[inline]
    fn after(self, now: Timestamp) -> Option<u64> {
        let at = u64::from(self.0) * 1_000_000_000;
        (at > 0).then(|| at.saturating_sub(now.as_nanos()))
    }
}

/// The parts of a decision that leases made. A decision is several times as large, so it is put
/// together after the lock of the key was released.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DecisionParts {
    /// By the clock of the store.
    pub(super) at: Timestamp,
    /// The limit that clients see.
    pub(super) limit: Option<RuleLimit>,
    pub(super) remaining: u64,
    /// In nanoseconds, as all waits here.
    pub(super) more_after: u64,
    pub(super) reset_after: u64,
    pub(super) full_after: u64,
    /// That of the charge.
    pub(super) position: Option<Position>,
}

impl DecisionParts {
    /// Returns the admission of a call.
    #[inline]
    pub(crate) fn admission(&self, cost: Cost) -> Decision {
        self.decision(Verdict::Allow, cost)
    }

    /// Returns the refusal of a call, with the wait before a retry.
    pub(crate) fn refusal(&self, cost: Cost, wait: Option<Duration>) -> Decision {
        let refusal = self.decision(Verdict::Refuse, cost);
        refusal.with_retry_after(wait)
    }

    #[inline]
    fn decision(&self, verdict: Verdict, cost: Cost) -> Decision {
        let [end, behind] = self.position.map_or([0; 2], Position::to_words);
        let deferred = Deferred {
            state: [
                self.remaining,
                self.more_after,
                self.reset_after,
                end,
                behind,
                0,
            ],
            compute: &NUMBERS,
        };
        let decision = Decision::new(verdict, self.at, cost.get())
            .with_rule_limit(self.limit)
            .with_deferred(deferred);
        match self.full_after < self.reset_after {
            true => decision.with_full_after(Duration::from_nanos(self.full_after)),
            false => decision,
        }
    }
}

/// The numbers of a decision from a lease: the remaining units, the waits in nanoseconds, and the
/// two words of a position, which are 0 if there is none.
const NUMBERS: Compute = Compute {
    remaining: |&[remaining, ..]| remaining,
    more_after: |&[_, more_after, ..], _| Duration::from_nanos(more_after),
    reset_after: |&[_, _, reset_after, ..]| Duration::from_nanos(reset_after),
    position: |&[_, _, _, end, behind, _], _| Position::of_words([end, behind]),
};
