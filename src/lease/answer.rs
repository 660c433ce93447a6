//! The answer of a store to a request for units.

use std::num::NonZeroU64;

use crate::{algorithm::Validity, decision::Decision, quota::Quota};

/// The decision of a store under the stricter rule, and how long its units are valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(super) decision: Decision,
    pub(super) validity: Validity,
    /// The greatest cost that the stricter rule ever admits.
    pub(super) capacity: u64,
}

impl Answer {
    pub(crate) fn new(decision: Decision, validity: Validity) -> Self {
        Self {
            decision,
            validity,
            capacity: decision.limit().unwrap_or(u64::MAX),
        }
    }

    /// Shows clients the limit as it is written.
    #[must_use]
    pub(crate) fn shown_as(self, limit: Option<(NonZeroU64, Quota)>) -> Self {
        let decision = self.decision.shown_as(limit);
        Self { decision, ..self }
    }
}
