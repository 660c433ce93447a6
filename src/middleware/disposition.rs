//! The next step of a request once it is decided.

use crate::{decision::Decision, store::Decisions};

/// The next step of a request once all its limits have decided.
pub(super) enum Disposition {
    /// Call the inner service.
    Pass,
    /// Answer without the inner service.
    Refuse,
    /// Call the inner service after a delay.
    Delay,
}

impl Disposition {
    /// Refuses if one decision refuses, else delays if one delays.
    #[inline]
    pub(super) fn of(decisions: &Decisions) -> Self {
        if let Some(decision) = decisions.only() {
            return Self::after(decision);
        }
        let mut disposition = Self::Pass;
        for decision in decisions.as_slice() {
            match Self::after(decision) {
                Self::Pass => {}
                Self::Delay => disposition = Self::Delay,
                Self::Refuse => return Self::Refuse,
            }
        }
        disposition
    }

    #[inline]
    fn after(decision: &Decision) -> Self {
        if !decision.is_admitted() {
            Self::Refuse
        } else if decision.delay().is_some() {
            Self::Delay
        } else {
            Self::Pass
        }
    }
}
