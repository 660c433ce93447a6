//! A log of the instants of the admitted calls.

mod step;
mod wire;

use std::{fmt, num::NonZeroU64};

pub(super) use self::step::SlidingLogState;
use super::rule::{RuleWords, of_quota, text};
use crate::{error::Error, quota::Quota};

/// A sliding log: keeps the instant of each admitted call for one period of the quota.
///
/// # Guarantee
///
/// At most the quota's amount passes in any window of one period, wherever the window begins, and
/// no call is refused that would have fitted. A window is half open: a call that passed exactly one
/// period ago no longer counts. All arithmetic is exact.
///
/// Nothing is smoothed: a whole limit may pass at one instant, and as much again one period later.
///
/// # Cost
///
/// A key takes 40 bytes, and 16 for each call that passed in the last window: at most 16 times the
/// limit. Calls at one instant share an entry. The entries lie in a buffer that doubles when it is
/// full, and that shrinks to twice its content when three quarters of it are empty. So the buffer
/// takes up to twice as much, and up to four times while the traffic of a key decreases. For limits
/// above some thousands a [`SlidingWindow`](crate::SlidingWindow) or a
/// [`TokenBucket`](crate::TokenBucket) takes far less memory.
///
/// A decision is a binary search in the sorted entries. An admitted call appends its entry and
/// discards all expired entries at once. Growing and shrinking the buffer moves at most three
/// entries per admitted call on average. A store that copies a state copies all of its entries;
/// [`Local`](crate::store::Local) does so if one request asks for a key twice. A settlement moves
/// the sums of the entries that are newer than its charge.
///
/// Redis keeps the entries as slots of 16 bytes beside the state and reads a few of them, so a
/// refused call takes no longer in a long log than in a short one. A store that compares and swaps
/// transfers the whole log with each call, and refuses a rule whose log can take more than 64 KiB:
/// some ten thousand calls a minute, or nine thousand a day. [What a decision
/// costs](crate::operations#what-a-decision-costs-the-server) compares them.
///
/// # When the rule changes
///
/// The entries are counted under the new limit and the new period. Usage above the new limit only
/// causes refusals, and a shorter period forgets sooner. Under a longer period, calls that were
/// discarded before are not counted again.
///
/// # When the clock steps back
///
/// Time stands still for a key at its newest entry until the clock has caught up.
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
#[doc(alias("sliding window log", "rolling window"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    quota: Quota,
}

impl SlidingLog {
    /// Returns a log that admits at most the quota's amount in any window of its period.
    pub const fn new(quota: Quota) -> Self {
        Self { quota }
    }

    /// Returns the limit, and the length of the window as its period.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    const fn limit(&self) -> NonZeroU64 {
        self.quota.limit()
    }
}

of_quota!(
    SlidingLog,
    "At most `amount` units within any second.",
    "At most `amount` units within any minute.",
    "At most `amount` units within any hour.",
    "At most `amount` units within any 24 hours."
);

impl SlidingLog {
    fn of_words(words: &mut RuleWords<'_>) -> Result<Self, Error> {
        words.quota().map(Self::new)
    }

    fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.quota)
    }
}

text! {
    /// Parses `sliding-log 100/1m`.
    SlidingLog
}
