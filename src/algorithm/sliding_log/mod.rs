//! The times of the admitted calls.

mod codec;
mod log;
mod script;
mod step;
mod text;

use std::num::NonZeroU64;

pub use self::log::SlidingLogState;
use super::of_quota::of_quota;
use crate::quota::Quota;

/// A sliding log: remembers when each call passed, until that is a whole period of the quota ago.
///
/// # What it guarantees
///
/// At most the quota's amount passes in any window of its period, wherever that begins, and no
/// call is refused without cause: a refused one would have made it more. A window is half open: a call that
/// passed exactly a period ago counts no more. All arithmetic is exact.
///
/// Nothing is smoothed: a whole limit may pass at one instant, and as much again a period later.
///
/// # What it takes
///
/// A key takes 40 bytes, and 16 for each call that passed in the last window: at most 16 times the limit.
/// Calls at one instant share an entry. The entries lie in a buffer that doubles when it is full, and is cut to
/// twice what is in it when three quarters of it are empty, so it takes up to twice as much, and up to four times
/// while a key calms down. For limits above some thousands a [`SlidingWindow`](super::SlidingWindow) or a
/// [`TokenBucket`](crate::TokenBucket) takes far less.
///
/// A decision is a search in the sorted entries, by halves. A call that passes appends its entry and
/// discards those that are too old, all at once: it takes no longer the more they are. Making and giving back room
/// moves entries, averaged over all calls that passed at most three for each. A store that copies a state copies all of its
/// entries; [`Local`](crate::store::Local) does where one request asks for a key twice.
///
/// # When the rule changes
///
/// What the log holds meets the new limit and the new period: a count above the limit only
/// refuses, a shorter period forgets sooner. Under a longer one, calls that were discarded before are not
/// counted again.
///
/// # When the clock steps back
///
/// Time stands still for a key at its newest entry, until the clock has caught up.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, Timestamp};
/// use tollgate::algorithm::{Algorithm, SlidingLog};
///
/// let rule = SlidingLog::per_minute(2);
/// let (mut state, noon) = (None, Timestamp::from_nanos(43_200_000_000_000));
/// let at = |seconds| noon.saturating_add(Duration::from_secs(seconds));
/// for seconds in [0, 50] {
///     assert!(rule.step(&mut state, at(seconds), Cost::ONE).decision().is_admitted());
/// }
/// let refused = rule.step(&mut state, at(59), Cost::ONE).decision();
/// assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
/// assert!(rule.step(&mut state, at(60), Cost::ONE).decision().is_admitted());
/// assert!(!rule.step(&mut state, at(109), Cost::ONE).decision().is_admitted());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    quota: Quota,
}

impl SlidingLog {
    /// At most the quota's amount in any window of its period.
    pub const fn new(quota: Quota) -> Self {
        Self { quota }
    }

    /// Its limit, and the length of its window.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    const fn limit(&self) -> NonZeroU64 {
        match NonZeroU64::new(self.quota.amount()) {
            Some(limit) => limit,
            None => unreachable!(),
        }
    }
}

of_quota!(
    SlidingLog,
    "At most `amount` units within any second.",
    "At most `amount` units within any minute.",
    "At most `amount` units within any hour.",
    "At most `amount` units within any 24 hours."
);
