//! A decision that can be shown in a header.

use crate::{decision::Decision, policy::Policy, quota::Quota};

/// A decision that carries a limit and a quota, with its policy.
pub(super) struct PolicyEntry<'a> {
    pub(super) policy: &'a Policy,
    pub(super) decision: &'a Decision,
    pub(super) limit: u64,
    pub(super) quota: Quota,
}

impl<'a> PolicyEntry<'a> {
    /// Returns `None` for an undecided answer, which carries no numbers.
    #[inline]
    pub(super) fn new((policy, decision): (&'a Policy, &'a Decision)) -> Option<Self> {
        if decision.is_undecided() {
            return None;
        }
        Some(Self {
            policy,
            decision,
            limit: decision.announced_limit()?,
            quota: decision.quota()?,
        })
    }
}
