//! What the store said last about a key.

use std::{num::NonZeroU64, time::Duration};

use super::answer::Answer;
use crate::{
    decision::{Compute, Decision, Deferred, Numbers, Position, Verdict},
    quota::Quota,
    time::Timestamp,
};

/// What the store said last about a key, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// By the clock of the store.
    at: Timestamp,
    received_at: Timestamp,
    limit: Option<(NonZeroU64, Quota)>,
    /// The greatest cost that the stricter rule ever admits.
    capacity: u64,
    remaining: u64,
    /// When `remaining` has grown, by the clock of this node; `None` if it cannot grow.
    more_at: Option<Timestamp>,
    /// When the key is equal to an unused one.
    reset_at: Timestamp,
    /// A cost that was refused, and until when.
    refused: Option<(u64, Timestamp)>,
}

impl Known {
    pub(super) fn new(answer: &Answer, asked: u64, now: Timestamp) -> Self {
        let decision = &answer.decision;
        let is_refusal = !decision.is_admitted();
        let wait = decision.retry_after().filter(|_| is_refusal);
        let Numbers {
            remaining,
            reset_after,
            more_after,
        } = decision.numbers();
        Self {
            at: decision.at(),
            received_at: now,
            limit: decision
                .limit()
                .and_then(NonZeroU64::new)
                .zip(decision.quota()),
            capacity: answer.capacity,
            remaining,
            more_at: (!more_after.is_zero()).then(|| now.saturating_add(more_after)),
            reset_at: now.saturating_add(reset_after),
            refused: wait.map(|wait| (asked, now.saturating_add(wait))),
        }
    }

    pub(super) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the units that are refilled during some time, at least 1.
    pub(super) fn refilled(&self, time: Duration) -> u64 {
        let units = self.limit.map_or(0, |(_, quota)| {
            time.as_nanos() * u128::from(quota.amount()) / u128::from(quota.period_nanos())
        });
        u64::try_from(units).unwrap_or(u64::MAX).max(1)
    }

    /// Returns `true` if no state of the key admits the cost.
    pub(super) fn is_above_limit(&self, cost: u64) -> bool {
        cost > self.capacity
    }

    /// Returns the earliest instant at which the store admits a cost if nobody else spends; `None` if that is not known.
    pub(super) fn admits_at(&self, cost: u64) -> Option<Timestamp> {
        if let Some((refused, until)) = self.refused
            && refused == cost
        {
            return Some(until);
        }
        match cost.checked_sub(self.remaining) {
            None | Some(0) => Some(self.received_at),
            Some(1) => self.more_at,
            Some(_) => None,
        }
    }

    /// Returns a decision about a call at `now`; `left` units are on this side, and `position` is that of a charge to them.
    #[inline]
    pub(super) fn decision(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        (left, position): (u64, Option<Position>),
    ) -> Decision {
        let since = now.nanos_since(self.received_at);
        let at = Timestamp::from_nanos(self.at.as_nanos().saturating_add(since));
        let decision = Decision::new(verdict, at, cost);
        let remaining = self.remaining.saturating_add(left).min(self.capacity);
        let more_after = if remaining == self.capacity {
            0
        } else {
            let more_at = self.more_at.unwrap_or_default();
            more_at.nanos_since(now).max(1)
        };
        let reset_after = self.reset_at.nanos_since(now);
        let [end, behind] = position.map_or([0; 2], Position::to_words);
        let deferred = Deferred {
            state: [remaining, more_after, reset_after, end, behind, 0],
            compute: &NUMBERS,
        };
        match self.limit {
            Some((limit, quota)) => decision.with_limit(limit, quota).with_deferred(deferred),
            None => decision.with_deferred(deferred),
        }
    }
}

/// The numbers of a decision from a lease: the remaining units, the waits in nanoseconds, and the two words of a position, which are 0 if there
/// is none.
const NUMBERS: Compute = Compute {
    remaining: |&[remaining, ..]| remaining,
    more_after: |&[_, more_after, ..], _| Duration::from_nanos(more_after),
    reset_after: |&[_, _, reset_after, ..]| Duration::from_nanos(reset_after),
    position: |&[_, _, _, end, behind, _], _| Position::of_words([end, behind]),
};
