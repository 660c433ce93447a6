//! A refusal that was heard, and what it says later.

use std::{num::NonZeroU64, time::Duration};

use crate::{
    decision::{Cost, Decision, Numbers, Verdict},
    quota::Quota,
    time::Timestamp,
};

/// A refusal, with when it was heard and how long it holds, by the clock of who heard it.
pub(super) struct Refusal {
    cost: Cost,
    /// On the store's own timeline.
    at: Timestamp,
    limit: Option<(NonZeroU64, Quota)>,
    numbers: Numbers,
    /// Whether the store said that it never passes.
    is_forever: bool,
    heard_at: Timestamp,
    until: Timestamp,
}

impl Refusal {
    /// What was heard at `now` of asking for `cost`, if it was a refusal; one for ever holds for `forever_for`.
    pub(super) fn heard(
        cost: Cost,
        decision: &Decision,
        now: Timestamp,
        forever_for: Duration,
    ) -> Option<Self> {
        if decision.verdict() != Verdict::Refuse {
            return None;
        }
        let wait = decision.retry_after();
        let until = now.saturating_add(wait.unwrap_or(forever_for));
        (until > now).then(|| Self {
            cost,
            at: decision.at(),
            limit: decision
                .limit()
                .and_then(NonZeroU64::new)
                .zip(decision.quota()),
            numbers: decision.numbers(),
            is_forever: wait.is_none(),
            heard_at: now,
            until,
        })
    }

    /// When it ends.
    pub(super) fn until(&self) -> Timestamp {
        self.until
    }

    /// What it says at `now` to who asks for `cost`, if anything.
    pub(super) fn again(&self, cost: Cost, now: Timestamp) -> Option<Decision> {
        // A clock that stepped back would prolong it.
        if cost < self.cost || now < self.heard_at || self.until <= now {
            return None;
        }
        let (since, left) = (
            now.saturating_since(self.heard_at),
            self.until.saturating_since(now),
        );
        let Numbers {
            remaining,
            reset_after,
            more_after,
        } = self.numbers;
        let refusal = Decision::new(Verdict::Refuse, self.at.saturating_add(since), cost.get());
        let (refusal, is_too_much) = match self.limit {
            Some((capacity, quota)) => {
                let refusal = refusal.with_limit(capacity, quota);
                (refusal, cost.get() > capacity.get())
            }
            None => (refusal, false),
        };
        let grows_after = more_after.saturating_sub(since);
        let has_grown = grows_after.is_zero() && !more_after.is_zero();
        let refusal = refusal
            .with_remaining(remaining)
            .with_reset_after(reset_after.saturating_sub(since))
            // By how much is known when the store is asked again.
            .with_more_after(if has_grown { left } else { grows_after });
        let retry_after = (!self.is_forever && !is_too_much).then_some(left);
        Some(refusal.with_retry_after(retry_after))
    }
}
