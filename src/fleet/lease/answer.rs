//! The answer of a store to a request for units.

use super::{Request, portion::Portion};
use crate::{algorithm::Validity, decision::Decision};

/// The decision of a store under the stricter rule, and how long its units are valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(super) decision: Decision,
    pub(super) validity: Validity,
}

impl Answer {
    pub(crate) fn new(decision: Decision, validity: Validity) -> Self {
        Self { decision, validity }
    }

    /// Returns the units that were granted to a request.
    pub(super) fn portion(&self, granted: u64, request: &Request) -> Portion {
        let validity = self.validity.shortened();
        Portion::new(granted, request.sent_at, validity).charged(self.decision.charge())
    }
}
