//! The decision of one limit.

use super::taken::Taken;
use crate::{decision::Decision, policy::Policy};

/// The decision of one limit.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) policy: Policy,
    pub(super) decision: Decision,
    /// Set once the charge was taken out of the outcome.
    pub(super) taken: Taken,
}

impl Entry {
    #[inline]
    pub(super) fn new(policy: Policy, decision: Decision) -> Self {
        Self {
            policy,
            decision: decision.shared(),
            taken: Taken::default(),
        }
    }
}
