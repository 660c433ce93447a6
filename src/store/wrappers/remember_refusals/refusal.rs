//! A refusal of the store, and the same refusal later.

use std::time::Duration;

use crate::{
    decision::{Cost, Decision, Numbers, RuleLimit, Verdict},
    time::Timestamp,
};

/// A refusal of the store, with the local times at which it was received and ends.
pub(super) struct CachedRefusal {
    cost: Cost,
    /// Time of the decision, by the store's clock.
    at: Timestamp,
    limit: Option<RuleLimit>,
    numbers: Numbers,
    /// `true` if the request can never pass, as with a cost above the capacity.
    is_forever: bool,
    /// The end of the block, if there is one. From then on it is the refusal of the limit.
    blocked_until: Option<Timestamp>,
    received_at: Timestamp,
    ends_at: Timestamp,
}

impl CachedRefusal {
    /// Returns the refusal in a decision that was received at `now`. A refusal without an end holds for `forever_for`.
    pub(super) fn new(
        cost: Cost,
        decision: &Decision,
        now: Timestamp,
        forever_for: Duration,
    ) -> Option<Self> {
        if decision.verdict() != Verdict::Refuse {
            return None;
        }
        let wait = decision.retry_after();
        let ends_at = now.saturating_add(wait.unwrap_or(forever_for));
        (ends_at > now).then(|| Self {
            cost,
            at: decision.at(),
            limit: decision.rule_limit(),
            numbers: decision.numbers(),
            is_forever: wait.is_none(),
            blocked_until: decision
                .is_of_block()
                .then(|| now.saturating_add(decision.more_after())),
            received_at: now,
            ends_at,
        })
    }

    pub(super) fn ends_at(&self) -> Timestamp {
        self.ends_at
    }

    /// Returns the refusal of `cost` at `now`, if this one still holds for it.
    pub(super) fn decision(&self, cost: Cost, now: Timestamp) -> Option<Decision> {
        // After a clock that stepped back, it would hold for too long.
        if cost < self.cost || now < self.received_at || self.ends_at <= now {
            return None;
        }
        let (since, left) = (
            now.saturating_since(self.received_at),
            self.ends_at.saturating_since(now),
        );
        let Numbers {
            remaining,
            reset_after,
            more_after,
        } = self.numbers;
        let refusal = Decision::new(Verdict::Refuse, self.at.saturating_add(since), cost.get());
        let refusal = refusal.with_rule_limit(self.limit);
        let is_too_much = refusal.limit().is_some_and(|limit| cost.get() > limit);
        let grows_after = more_after.saturating_sub(since);
        let has_grown = grows_after.is_zero() && !more_after.is_zero();
        let refusal = refusal
            .with_remaining(remaining)
            .with_reset_after(reset_after.saturating_sub(since))
            // Once `remaining` has grown, the store must be asked for its new value.
            .with_more_after(if has_grown { left } else { grows_after });
        let retry_after = (!self.is_forever && !is_too_much).then_some(left);
        let refusal = refusal.with_retry_after(retry_after);
        let is_of_block = self.blocked_until.is_some_and(|until| now < until);
        Some(match is_of_block {
            true => refusal.of_block(),
            false => refusal,
        })
    }
}
