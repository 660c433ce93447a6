//! A counter for each window of the calendar.

mod codec;
mod counted;
mod meter;
mod script;
mod step;
mod text;
mod window;

use std::{num::NonZeroU64, time::Duration};

use super::of_quota::of_quota;
use crate::{
    clock::Timestamp,
    error::Error,
    quota::{Quota, Written},
};

/// A fixed window: counts what passes in each window of the quota's period, up to the quota's amount.
///
/// Windows are those of the calendar in Unix time (UTC): under `100/1m`, 12:00:03 belongs to the minute that
/// began at 12:00:00. Windows of `7d` begin on Thursdays, as Unix time did; with an
/// [`offset`](Self::offset) of four days they begin on Mondays.
///
/// The windows of all keys begin together, and clients that were refused all come back at that instant: at
/// the full hour there is a stampede. [`spread`](Self::spread) gives each key windows of its own against it, and
/// [`from_first_call`](Self::from_first_call) begins them with the first call.
///
/// # What it guarantees
///
/// In each window at most its limit passes, and so at most twice as much in any span of a window's length:
/// under `100/1m`, 100 calls at 07:09:59 and 100 at 07:10:00 all pass, but never 201. Nothing is smoothed: a whole
/// limit may pass at one instant.
///
/// A key takes a [mark](super::Mark) of 8 bytes where windows are those of the calendar without an offset, up to two years
/// long, and 24 bytes otherwise. All arithmetic is exact; a window that ends beyond the last
/// [`Timestamp`] does not end.
///
/// # When the rule changes
///
/// Another limit meets the same count. Where windows are others, in length or beginning, the count of the one that
/// goes on is carried over by the key's first call under the new rule, into the new window that holds that call, and
/// meets the new limit until that one ends. This is so also if the call is refused, unless its cost is above the limit:
/// an exhausted client stays exhausted until the end of that window, and no longer. A window that has ended by
/// then says nothing. From the first call, windows of the new length are counted on from the instant where the
/// old one began.
///
/// # When the clock steps back
///
/// The window goes on until the clock has come to its end, also while the clock shows times before its beginning: no
/// earlier window is counted again.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, Timestamp};
/// use tollgate::algorithm::{Algorithm, FixedWindow};
///
/// let rule = FixedWindow::per_minute(100);
/// let (mut state, hundred) = (None, Cost::new(100).unwrap());
/// let late = Timestamp::from_nanos(7 * 3_600_000_000_000 + 599_000_000_000); // 07:09:59
/// assert!(rule.step(&mut state, late, hundred).decision().is_admitted());
/// let refused = rule.step(&mut state, late, Cost::ONE).decision();
/// assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
///
/// let next = late.saturating_add(Duration::from_secs(1));
/// assert!(rule.step(&mut state, next, hundred).decision().is_admitted());
/// assert!(!rule.step(&mut state, next, Cost::ONE).decision().is_admitted());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    quota: Quota,
    begin: Begin,
    /// What makes a product of a division by the period, where that leaves no rest.
    inverse: u64,
    /// What makes a product of any, where windows are counted in words of 64 bits; 0 otherwise.
    reciprocal: u64,
}

/// What windows begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Begin {
    /// The calendar, so many nanoseconds late: less than the period.
    Offset(u64),
    /// The calendar, for each key as late as its digest says.
    Spread,
    /// The first call after the window before.
    FirstCall,
}

/// What a [`FixedWindow`] remembers of a key: the count of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowState {
    /// From when on all that passed is counted: the start of the window, or that of an earlier rule's window, within this
    /// one, whose count was carried over.
    start: Timestamp,
    /// The end of the window; [`Timestamp::MAX`] for one that does not end.
    end: Timestamp,
    count: u64,
}

impl FixedWindow {
    /// Windows of the quota's period that begin with the calendar, with the quota's amount as their limit.
    pub const fn new(quota: Quota) -> Self {
        Self {
            quota,
            begin: Begin::Offset(0),
            inverse: window::inverse(quota.period_nanos()),
            reciprocal: meter::reciprocal(quota),
        }
    }

    /// The same windows, beginning `offset` later than those of the calendar.
    ///
    /// # Panics
    ///
    /// Where [`try_offset`](Self::try_offset) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn offset(self, offset: Duration) -> Self {
        self.try_offset(offset)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same windows, beginning `offset` later than those of the calendar.
    ///
    /// # Errors
    ///
    /// When the offset is not below the length of a window, or windows begin from the first call.
    pub fn try_offset(self, offset: Duration) -> Result<Self, Error> {
        match u64::try_from(offset.as_nanos()) {
            Ok(nanos) if nanos < self.quota.period_nanos() => self.beginning(Begin::Offset(nanos)),
            _ => Err(Error::new(format!(
                "an offset of {} for windows of {}: expected less than their length, after \
                 which they begin again; take whole windows off it",
                Written(offset),
                Written(self.quota.period())
            ))),
        }
    }

    /// The same windows, beginning for each key at an offset of its own: its share of the length is the
    /// share that the key's digest has of all digests.
    ///
    /// Who stores the key draws it, by [`for_key`](super::Algorithm::for_key). A key keeps its offset for as long
    /// as its digest stays the same, so it lasts as long as the seed of that does. A rule that no key
    /// was drawn for begins its windows with the calendar.
    ///
    /// # Panics
    ///
    /// Where [`try_spread`](Self::try_spread) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn spread(self) -> Self {
        self.try_spread().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same windows, beginning for each key at an [offset of its own](Self::spread).
    ///
    /// # Errors
    ///
    /// When windows begin from the first call.
    pub fn try_spread(self) -> Result<Self, Error> {
        self.beginning(Begin::Spread)
    }

    /// The same windows, each beginning at the key's first call after the one before has ended.
    ///
    /// # Panics
    ///
    /// Where [`try_from_first_call`](Self::try_from_first_call) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn from_first_call(self) -> Self {
        self.try_from_first_call()
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same windows, each beginning at the key's first call after the one before has ended.
    ///
    /// # Errors
    ///
    /// When windows have an offset, fixed or spread.
    pub fn try_from_first_call(self) -> Result<Self, Error> {
        self.beginning(Begin::FirstCall)
    }

    fn beginning(self, begin: Begin) -> Result<Self, Error> {
        match (self.begin, begin) {
            (Begin::FirstCall, Begin::Offset(_) | Begin::Spread)
            | (Begin::Offset(1..) | Begin::Spread, Begin::FirstCall) => Err(Error::new(
                "an offset for windows that begin from the first call: expected one of both, as only \
                 windows of the calendar have an offset; take the other one out",
            )),
            _ => Ok(Self { begin, ..self }),
        }
    }

    /// Its limit, and the length of its windows.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// How much later than those of the calendar its windows begin; `None` where that is
    /// [spread](Self::spread), and where they begin [from the first call](Self::from_first_call).
    pub const fn fixed_offset(&self) -> Option<Duration> {
        match self.begin {
            Begin::Offset(nanos) => Some(Duration::from_nanos(nanos)),
            Begin::Spread | Begin::FirstCall => None,
        }
    }

    /// Whether each key has an [offset of its own](Self::spread).
    pub const fn is_spread(&self) -> bool {
        matches!(self.begin, Begin::Spread)
    }

    /// Whether windows begin [from the first call](Self::from_first_call).
    pub const fn is_from_first_call(&self) -> bool {
        matches!(self.begin, Begin::FirstCall)
    }

    #[inline]
    const fn limit(&self) -> NonZeroU64 {
        match NonZeroU64::new(self.quota.amount()) {
            Some(limit) => limit,
            None => unreachable!(),
        }
    }
}

of_quota!(
    FixedWindow,
    "At most `amount` units in each second of the calendar.",
    "At most `amount` units in each minute of the calendar.",
    "At most `amount` units in each hour of the calendar.",
    "At most `amount` units in each day of the calendar, in UTC."
);
