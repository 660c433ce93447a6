//! A count for each window of the calendar.

mod step;
mod wire;

use std::{fmt, num::NonZeroU64, time::Duration};

pub(super) use self::step::FixedWindowState;
use super::{
    packed::PackedState,
    rule::{RuleWords, fmt_time, of_quota, text},
    ticks::PER_NANO,
};
use crate::{
    error::{Error, panicking},
    quota::{Quota, Written},
};

/// A fixed window: admits up to the quota's amount in each window of the quota's period.
///
/// Windows are those of the calendar in Unix time (UTC): under `100/1m`, 12:00:03 belongs to the
/// minute that began at 12:00:00. Windows of `7d` begin on Thursdays, as Unix time did; with an
/// [`offset`](Self::offset) of four days they begin on Mondays. `1000/1d offset=22h` begins at
/// 22:00 UTC, in summer and in winter.
///
/// The windows of all keys begin together, and refused clients all return at that instant: a
/// stampede at the full hour. To avoid it, [`spread`](Self::spread) gives each key an offset of its
/// own, and [`from_first_call`](Self::from_first_call) begins windows with the first call.
///
/// # Guarantees
///
/// In each window at most its limit passes, and so at most twice as much in any span of a window's
/// length: under `100/1m`, 100 calls at 07:09:59 and 100 at 07:10:00 all pass, but never 201.
/// Nothing is smoothed: a whole limit may pass at one instant.
///
/// A key takes a packed state of 8 bytes if windows are those of the calendar without an offset and
/// at most two years long, and 24 bytes otherwise. All arithmetic is exact; a window that ends
/// beyond the last [`Timestamp`](crate::Timestamp) does not end.
///
/// # Months
///
/// All windows of a rule have one length, and months do not: `30d` and an offset drift through the
/// calendar. For months, select the rule of each request by the month that it comes in:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Error, FixedWindow, Quota};
///
/// /// The rule from `start` to `end` of a month in Unix seconds, as a library of dates computes
/// /// them. For `.rule(…)`.
/// fn month(start: u64, end: u64) -> Result<FixedWindow, Error> {
///     let length = end - start;
///     let quota = Quota::try_new(1000, Duration::from_secs(length))?;
///     FixedWindow::new(quota).try_offset(Duration::from_secs(start % length))
/// }
///
/// const FEBRUARY: u64 = 1_769_904_000; // of 2026
/// const MARCH: u64 = 1_772_323_200;
/// const APRIL: u64 = 1_775_001_600;
/// # use tollgate::{Cost, Timestamp, algorithm::Algorithm};
/// # let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
/// # let (mut state, all) = (None, Cost::new(1000).unwrap());
/// let (february, march) = (month(FEBRUARY, MARCH)?, month(MARCH, APRIL)?);
/// assert!(february.step(&mut state, at(FEBRUARY), all).decision().is_admitted());
/// let refused = february.step(&mut state, at(MARCH - 1), Cost::ONE).decision();
/// assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
/// assert!(march.step(&mut state, at(MARCH), all).decision().is_admitted());
/// let refused = march.step(&mut state, at(APRIL - 1), Cost::ONE).decision();
/// assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
/// # Ok::<(), Error>(())
/// ```
///
/// # When the rule changes
///
/// A new limit applies to the count so far. If the length or the beginning of windows changes, the
/// first call of a key under the new rule carries the count of the current window over into the new
/// window that contains the call. The new limit applies to that count until that window ends. A
/// refused call does the same, unless its cost is above the limit. So an exhausted client stays
/// exhausted until the end of that window, and no longer. A window that has ended is ignored. With
/// `from=first-call`, windows of the new length are counted from the beginning of the old one.
///
/// # When the clock steps back
///
/// The window goes on until the clock has reached its end, also while the clock shows times before
/// its beginning: no earlier window is counted again.
///
/// # Examples
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
#[doc(alias("quota", "daily limit"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    quota: Quota,
    begin: Begin,
    /// Turns a division by the period that leaves no rest into a product.
    inverse: u64,
    /// Turns any division by the period in ticks into a product; 0 if a [`PackedState`] does not
    /// hold the rule's states.
    reciprocal: u64,
}

/// The beginning of windows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Begin {
    /// The calendar, plus an offset in nanoseconds that is less than the period.
    Offset(u64),
    /// The calendar, plus an offset from the key's digest.
    Spread,
    /// The first call after the previous window.
    FirstCall,
}

impl FixedWindow {
    /// Creates windows of the quota's period that begin with the calendar, with the quota's amount
    /// as their limit.
    pub const fn new(quota: Quota) -> Self {
        Self {
            quota,
            begin: Begin::Offset(0),
            inverse: inverse(quota.period_nanos()),
            reciprocal: reciprocal(quota),
        }
    }

    panicking! {
        /// Begins windows `offset` later than those of the calendar.
        pub fn offset(self, offset: Duration) = try_offset;
    }

    /// Begins windows `offset` later than those of the calendar.
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

    panicking! {
        /// Begins windows for each key at an offset of its own, which spreads keys evenly over the
        /// length of a window.
        ///
        /// Stores compute it from the key's digest, by
        /// [`for_key`](crate::algorithm::Algorithm::for_key). A key keeps its offset as long as its
        /// digest stays the same, which depends on the store's seed. Without a key the windows
        /// begin with the calendar.
        pub fn spread(self) = try_spread;
    }

    /// Begins windows for each key at an [offset of its own](Self::spread).
    ///
    /// # Errors
    ///
    /// When windows begin from the first call.
    pub fn try_spread(self) -> Result<Self, Error> {
        self.beginning(Begin::Spread)
    }

    panicking! {
        /// Begins each window at the key's first call after the previous one has ended.
        pub fn from_first_call(self) = try_from_first_call;
    }

    /// Begins each window at the key's first call after the previous one has ended.
    ///
    /// # Errors
    ///
    /// When windows have an offset, fixed or spread.
    pub fn try_from_first_call(self) -> Result<Self, Error> {
        self.beginning(Begin::FirstCall)
    }

    /// Returns windows that begin at the same time, with another limit.
    pub(super) fn with_quota(self, quota: Quota) -> Self {
        Self {
            begin: self.begin,
            ..Self::new(quota)
        }
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

    /// Returns the limit and the length of windows.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns how much later than those of the calendar its windows begin; `None` if that is
    /// [spread](Self::spread), and if they begin [from the first call](Self::from_first_call).
    pub const fn fixed_offset(&self) -> Option<Duration> {
        match self.begin {
            Begin::Offset(nanos) => Some(Duration::from_nanos(nanos)),
            Begin::Spread | Begin::FirstCall => None,
        }
    }

    /// Returns `true` if each key has an [offset of its own](Self::spread).
    pub const fn is_spread(&self) -> bool {
        matches!(self.begin, Begin::Spread)
    }

    /// Returns `true` if windows begin [from the first call](Self::from_first_call).
    pub const fn is_from_first_call(&self) -> bool {
        matches!(self.begin, Begin::FirstCall)
    }

    #[inline]
    const fn limit(&self) -> NonZeroU64 {
        self.quota.limit()
    }
}

of_quota!(
    FixedWindow,
    "At most `amount` units in each second of the calendar.",
    "At most `amount` units in each minute of the calendar.",
    "At most `amount` units in each hour of the calendar.",
    "At most `amount` units in each day of the calendar, in UTC."
);

/// Returns the inverse of the odd part of a period, modulo 2⁶⁴.
///
/// Newton's iteration doubles the number of correct bits, as in Warren, Hacker's Delight, 10-16.
const fn inverse(period: u64) -> u64 {
    let odd = period >> period.trailing_zeros();
    // Correct in three bits.
    let (mut inverse, mut bits) = (odd, 3);
    while bits < u64::BITS {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
}

/// Returns 2⁶⁴ divided by the length of a window in ticks, rounded down.
///
/// 0 if a packed state cannot hold the count: for windows of more than two years, and for limits of
/// at least as many units as a window has ticks.
const fn reciprocal(quota: Quota) -> u64 {
    let period = quota.period_nanos();
    match period.checked_mul(PER_NANO) {
        Some(ticks) if ticks <= PackedState::LONGEST && quota.amount() < ticks => {
            // At least three.
            ((1_u128 << u64::BITS) / ticks as u128) as u64
        }
        _ => 0,
    }
}

impl FixedWindow {
    /// Parses a quota and settings, without the name before them.
    fn of_words(words: &mut RuleWords<'_>) -> Result<Self, Error> {
        let mut window = Self::new(words.quota()?);
        let [offset, from] = words.settings(&["offset", "from"])?;
        if let Some(word) = from {
            if word.word() != "first-call" {
                return Err(
                    word.error("`from=first-call`; leave it out for windows of the calendar")
                );
            }
            window.begin = Begin::FirstCall;
        }
        match offset {
            None => Ok(window),
            Some(word) if word.word() == "spread" => word.apply((), |()| window.try_spread()),
            Some(word) => {
                let offset = word.duration().map_err(|_| {
                    word.error(
                        "a duration in ns, us, ms, s, m, h or d, as in `offset=10s`, or `offset=spread`",
                    )
                })?;
                word.apply(offset, |offset| window.try_offset(offset))
            }
        }
    }

    /// Writes the quota, and the settings that differ from the defaults.
    fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.quota)?;
        match self.begin {
            Begin::Offset(0) => Ok(()),
            Begin::Offset(nanos) => fmt_time(f, "offset", Some(nanos)),
            Begin::Spread => f.write_str(" offset=spread"),
            Begin::FirstCall => f.write_str(" from=first-call"),
        }
    }
}

text! {
    /// Parses `fixed-window 100/1m` with `offset=10s`, `offset=spread`, `from=first-call` or none
    /// of them.
    FixedWindow
}
