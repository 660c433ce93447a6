//! What the store said last about a key.

use std::{num::NonZeroU64, time::Duration};

use super::answer::Answer;
use crate::{
    decision::{Decision, Numbers, Verdict},
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
    numbers: Numbers,
    /// A cost that was refused, and until when.
    refused: Option<(u64, Timestamp)>,
}

impl Known {
    pub(super) fn new(answer: &Answer, asked: u64, now: Timestamp) -> Self {
        let decision = &answer.decision;
        let is_refusal = !decision.is_admitted();
        let wait = decision.retry_after().filter(|_| is_refusal);
        Self {
            at: decision.at(),
            received_at: now,
            limit: decision
                .limit()
                .and_then(NonZeroU64::new)
                .zip(decision.quota()),
            capacity: answer.capacity,
            numbers: decision.numbers(),
            refused: wait.map(|wait| (asked, now.saturating_add(wait))),
        }
    }

    pub(super) fn remaining(&self) -> u64 {
        self.numbers.remaining
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
        match cost.checked_sub(self.numbers.remaining) {
            None | Some(0) => Some(self.received_at),
            Some(1) if !self.numbers.more_after.is_zero() => {
                Some(self.received_at.saturating_add(self.numbers.more_after))
            }
            Some(_) => None,
        }
    }

    /// Returns a decision about a call at `now`; `left` units are on this side.
    #[inline]
    pub(super) fn decision(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        left: u64,
    ) -> Decision {
        let since = now.saturating_since(self.received_at);
        let decision = Decision::new(verdict, self.at.saturating_add(since), cost);
        let Some((limit, quota)) = self.limit else {
            return decision;
        };
        let remaining = self
            .numbers
            .remaining
            .saturating_add(left)
            .min(self.capacity);
        let more_after = self.numbers.more_after.saturating_sub(since);
        decision.with_limit(limit, quota).with_numbers(Numbers {
            remaining,
            reset_after: self.numbers.reset_after.saturating_sub(since),
            more_after: if remaining == self.capacity {
                Duration::ZERO
            } else {
                more_after.max(Duration::from_nanos(1))
            },
        })
    }
}
