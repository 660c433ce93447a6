//! The result of a step.

use crate::decision::Decision;

/// The result of [`Algorithm::step`](super::Algorithm::step): a decision, and if the state has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The state is as it was: a store need write nothing.
    Kept(Decision),
    /// The state has changed.
    Wrote(Decision),
}

impl Step {
    /// Returns the decision.
    #[inline]
    pub fn decision(self) -> Decision {
        match self {
            Self::Kept(decision) | Self::Wrote(decision) => decision,
        }
    }

    /// Replaces the decision.
    pub(super) fn map(self, change: impl FnOnce(Decision) -> Decision) -> Self {
        match self {
            Self::Kept(decision) => Self::Kept(change(decision)),
            Self::Wrote(decision) => Self::Wrote(change(decision)),
        }
    }
}
