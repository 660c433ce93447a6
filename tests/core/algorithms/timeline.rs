//! Parts of random timelines: the wait before a call, and its cost.

use proptest::prelude::*;

const DAY: u64 = 86_400_000_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Wait {
    None,
    Nanos(u64),
    /// The last refusal's `retry_after`, or a nanosecond less or more.
    Retry(i64),
}

impl Wait {
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            3 => Just(Self::None),
            2 => (0..3_000_000_000_u64).prop_map(Self::Nanos),
            1 => (0..2_u64).prop_map(Self::Nanos),
            1 => (0..200 * 365 * DAY).prop_map(Self::Nanos),
            3 => (-1..=1_i64).prop_map(Self::Retry),
        ]
    }

    /// Returns the instant after the wait. `retry` is the last refusal's wait.
    pub(crate) fn after(&self, now: u64, retry: u64) -> u64 {
        let later = match *self {
            Self::None => return now,
            Self::Nanos(nanos) => now.saturating_add(nanos),
            Self::Retry(more) => now.saturating_add(retry).saturating_add_signed(more),
        };
        later.min(i64::MAX as u64)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum RequestCost {
    Units(u64),
    /// The last answer's `remaining` plus this many.
    Remaining(u64),
}

impl RequestCost {
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            5 => (1..5_u64).prop_map(Self::Units),
            2 => (0..2_u64).prop_map(Self::Remaining),
            1 => (1..=u64::MAX).prop_map(Self::Units),
        ]
    }

    pub(crate) fn units(&self, remaining: u64) -> u64 {
        match *self {
            Self::Units(units) => units,
            Self::Remaining(more) => (remaining + more).max(1),
        }
    }
}
