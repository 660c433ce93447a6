//! The used part of a limit, and the period that follows from it.

use std::time::Duration;

use crate::decision::Decision;

/// The used part of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pressure {
    /// Less than a tenth.
    Low,
    /// Less than a half.
    Medium,
    /// Less than four fifths.
    Usual,
    High,
}

impl Pressure {
    #[inline]
    pub(super) fn of(decision: &Decision) -> Self {
        let limit = decision.limit().unwrap_or(0);
        let used = limit.saturating_sub(decision.remaining().unwrap_or(0));
        match used {
            used if used.saturating_mul(10) < limit => Self::Low,
            used if used.saturating_mul(2) < limit => Self::Medium,
            used if used.saturating_mul(5) < limit.saturating_mul(4) => Self::Usual,
            _ => Self::High,
        }
    }

    /// Returns the time until the store is told or asked, which is the shorter the more of the
    /// limit is used.
    #[inline]
    pub(super) fn scale(self, period: Duration) -> Duration {
        match self {
            Self::Low => period * 4,
            Self::Medium => period * 2,
            Self::Usual => period,
            Self::High => period / 2,
        }
    }
}
