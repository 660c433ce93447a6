//! The parts of a decision that leases made.

use std::time::Duration;

use super::Terms;
use crate::{
    decision::{Compute, Cost, Decision, Deferred, Numbers, Position, RuleLimit, Verdict},
    time::Timestamp,
};

/// The parts of a decision that leases made. A decision is several times as large, so it is put
/// together after the lock of the key was released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionParts {
    /// By the clock of the store.
    pub(super) at: Timestamp,
    /// The limit that clients see.
    pub(super) limit: Option<RuleLimit>,
    pub(super) remaining: u64,
    /// In nanoseconds, as all waits here.
    pub(super) more_after: u64,
    pub(super) reset_after: u64,
    /// That of the charge.
    pub(super) position: Option<Position>,
}

impl DecisionParts {
    /// The parts of an admission while the state of the key in the store is not known.
    pub(super) fn unknown(now: Timestamp, position: Option<Position>) -> Self {
        Self {
            at: now,
            limit: None,
            remaining: 0,
            more_after: 0,
            reset_after: 0,
            position,
        }
    }

    /// The parts of a decision of the store, with another position.
    pub(super) fn of(decision: &Decision, terms: &Terms, position: Position) -> Self {
        let Numbers {
            remaining,
            reset_after,
            more_after,
        } = decision.numbers();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            at: decision.at(),
            limit: terms.limit,
            remaining,
            more_after: nanos(more_after),
            reset_after: nanos(reset_after),
            position: Some(position),
        }
    }

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
        Decision::new(verdict, self.at, cost.get())
            .with_rule_limit(self.limit)
            .with_deferred(deferred)
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
