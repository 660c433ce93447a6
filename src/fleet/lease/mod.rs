//! Leases: units that a store granted to this node, and when to ask for more.
//!
//! Nothing here reads a clock or does I/O: each function takes the time, and returns what the
//! caller has to do. So the store wrapper [`Leased`](crate::store::Leased) and a simulation run the
//! same code.
//!
//! # Grants
//!
//! An ask may be for more than its cost (`Ask::up_to`). A grant is then an ordinary decision with a
//! greater charge: its position on the time axis gives the lifetime of its units, its remaining
//! units are what the store has left, its refusal says when to come again. So stores need no second
//! function, wrappers forward nothing, and a store that cannot grant spends the cost. A grant is at
//! most a quarter of what remains, so that a node that asks a moment later finds something.
//!
//! A node holds a quarter of a limit at most, beside refunds of its calls. Several grants could add
//! up to more where answers are slow. So what others lack while a node holds units that it does not
//! need has a bound that needs only the number of nodes (`Leased::undershoot_bound`).
//!
//! Debt is forced onto the store at once, not with the next request for units, because that request
//! may not come.
//!
//! # Fleets with and without leases
//!
//! Nodes without leases add nothing to a bucket, although they do not pay for the lease duration. A
//! grant leaves a bucket of burst C at a level l of C − ⌈r·h⌉ at most, and its units end as if the
//! bucket were refilled from l to there, h later: at any time, no more of them are valid than C
//! less the level that l would have become. Units that were granted or admitted later are gone from
//! the level. So the level and all units that are valid are C together at most, on any number of
//! nodes with any lease durations. A log has no such order: it forgets by the rule of the node that
//! asks.

use std::{num::NonZeroU64, time::Duration};

use crate::{
    algorithm::Leasable,
    decision::{Cost, RuleLimit},
    quota::Quota,
    time::Timestamp,
};

mod answer;
mod grants;
#[cfg(test)]
pub(crate) mod proof;
mod state;

pub(crate) use self::{
    answer::DecisionParts,
    state::{Answer, LeaseState, Link, Request, Step},
};

/// The numbers that all leases of a rule share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The lease duration, in nanoseconds. The units that were asked for during it are asked for at
    /// once.
    pub(crate) duration: u64,
    /// The limit that clients see: that of the rule as it is written, not of the tightened one in
    /// the store.
    pub(crate) limit: Option<RuleLimit>,
    /// The greatest cost that the tightened rule ever admits.
    pub(super) capacity: u64,
    /// The units that are refilled during the lease duration, at least 1.
    pub(super) refilled: u64,
    /// The rate at which granted units end, if they end one by one.
    pub(crate) rate: Option<Quota>,
    /// `true` if granted units end while the state still counts them, so that nobody gets them
    /// back.
    pub(super) ends_early: bool,
}

impl Terms {
    /// Returns the numbers of a rule as it is written, and of the tightened one that the store
    /// runs.
    pub(crate) fn new<Rule: Leasable>(rule: &Rule, tightened: &Rule, duration: Duration) -> Self {
        let granted = tightened.step(&mut None, Timestamp::default(), Cost::ONE);
        let granted = granted.decision();
        let validity = tightened.validity(&granted, duration);
        let ends_at = validity.ends_at(Timestamp::default());
        let duration = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (limit, tightened) = (limit_as_written(rule), limit_as_written(tightened));
        let refilled = limit.and_then(|limit| limit.quota).map_or(0, |quota| {
            u128::from(duration) * u128::from(quota.amount()) / u128::from(quota.period_nanos())
        });
        Self {
            duration,
            limit,
            capacity: tightened.map_or(u64::MAX, |tightened| tightened.capacity.get()),
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

    /// Returns the limit as it is written, with the capacity of the tightened rule.
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
        let tightened = self.capacity.min(limit);
        let others = nodes.map_or(u64::MAX, |nodes| nodes.saturating_sub(1));
        let on_others = others.saturating_mul(self.most_held()).min(tightened);
        limit - tightened + on_others
    }
}

/// Returns the limit that clients see: that of the rule as it is written, not of the tightened one
/// in the store.
pub(crate) fn limit_as_written(rule: &impl Leasable) -> Option<RuleLimit> {
    rule.look(None, Timestamp::default()).rule_limit()
}
