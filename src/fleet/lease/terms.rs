//! The numbers that all leases of a rule share.

use std::{num::NonZeroU64, time::Duration};

use crate::{
    algorithm::{Leasable, Step},
    decision::{Cost, RuleLimit},
    quota::Quota,
    time::Timestamp,
};

/// The numbers that all leases of a rule share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The hold, in nanoseconds. The units that were offered during it are asked for at once.
    pub(crate) hold: u64,
    /// The limit that clients see: that of the rule as it is written, not of the stricter one in
    /// the store.
    pub(crate) limit: Option<RuleLimit>,
    /// The greatest cost that the stricter rule ever admits.
    pub(super) capacity: u64,
    /// The units that are refilled during the hold, at least 1.
    pub(super) refilled: u64,
    /// The rate at which granted units end, if they end one by one.
    pub(crate) rate: Option<Quota>,
    /// `true` if granted units end while the state still counts them, so that nobody gets them
    /// back.
    pub(super) ends_early: bool,
}

impl Terms {
    /// Returns the numbers of a rule as it is written, and of the stricter one that the store runs.
    pub(crate) fn new<Rule: Leasable>(rule: &Rule, held: &Rule, hold: Duration) -> Self {
        let granted = held.step(&mut None, Timestamp::default(), Cost::ONE);
        let (Step::Wrote(granted) | Step::Kept(granted)) = granted;
        let validity = held.validity(&granted, hold);
        let ends_at = validity.ends_at(Timestamp::default());
        let hold = u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX);
        let (limit, held) = (limit_as_written(rule), limit_as_written(held));
        let refilled = limit.map_or(0, |RuleLimit { quota, .. }| {
            u128::from(hold) * u128::from(quota.amount()) / u128::from(quota.period_nanos())
        });
        Self {
            hold,
            limit,
            capacity: held.map_or(u64::MAX, |held| held.capacity.get()),
            refilled: u64::try_from(refilled).unwrap_or(u64::MAX).max(1),
            rate: validity.rate(),
            // A bucket that begins empty refuses, and refills what ends.
            ends_early: granted.is_admitted()
                && ends_at < Timestamp::default().saturating_add(granted.reset_after()),
        }
    }

    /// Returns the most units of a key that a node asks to hold, as a grant is at most a quarter of
    /// what the store has left.
    ///
    /// So a node that was busy and is not any more keeps the others from that much at most.
    pub(super) fn most_held(&self) -> u64 {
        (self.capacity / 4).max(1)
    }

    /// Returns the limit as it is written, with the capacity of the stricter rule.
    pub(super) fn limit_in_store(&self) -> Option<RuleLimit> {
        let capacity = NonZeroU64::new(self.capacity);
        self.limit.map(|limit| RuleLimit {
            capacity: capacity.map_or(limit.capacity, |capacity| capacity.min(limit.capacity)),
            ..limit
        })
    }

    /// Returns how many units may be lacking although the rule as it is written has them, with so
    /// many nodes if that is known.
    pub(crate) fn undershoot_bound(&self, nodes: Option<u64>) -> u64 {
        let limit = self.limit.map_or(0, |limit| limit.capacity.get());
        let held = self.capacity.min(limit);
        let others = nodes.map_or(u64::MAX, |nodes| nodes.saturating_sub(1));
        let on_others = others.saturating_mul(self.most_held()).min(held);
        limit - held + on_others
    }
}

/// Returns the limit that clients see: that of the rule as it is written, not of the stricter one
/// in the store.
pub(crate) fn limit_as_written(rule: &impl Leasable) -> Option<RuleLimit> {
    rule.look(None, Timestamp::default()).rule_limit()
}
