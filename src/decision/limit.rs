//! The limit of a decision: the greatest cost, and what clients are told.

use std::{cmp::Ordering, num::NonZeroU64};

use crate::quota::Quota;

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
    /// It announces the slower rule, and of equally fast ones that with the smaller capacity. The choice does not depend on the state, so that a
    /// policy has the same header in all responses.
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
