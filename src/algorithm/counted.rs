//! Rules for stores that can only add to counters and return totals.

use std::{fmt, num::NonZeroU64, time::Duration};

use super::{Algorithm, AnyRule, AnyState, SlidingWindow, any::Own};
use crate::{
    error::Error,
    quota::{Written, fmt_duration},
    time::Timestamp,
};

/// A rule that counters can run: its state is the number of admitted units in each slice of time.
///
/// The totals of the counters become a state of the rule, and [`Algorithm::step`] decides on it as
/// in any other store.
///
/// # Laws
///
/// In addition to those of [`Algorithm`]:
///
/// - A call at `now` is counted in the slice of `now`. Only that slice and the
///   [older](Slicing::older) slices before it count for the decision.
/// - An admission adds its cost to the counter of its slice. A settlement corrects the counter of
///   the slice that was charged. Nothing else changes a counter.
/// - A greater total never admits more.
#[diagnostic::on_unimplemented(
    message = "the rule `{Self}` cannot be run by counters, which only add and return the total",
    label = "not a window that can be counted",
    note = "counters run `FixedWindow`, `SlidingWindow`, and an `AnyRule` that is one of them; for another rule take a store \
            that compares and swaps (`CasStore`), one that runs a script (`Redis`), or `Local`",
    note = "counters cannot keep the longest of several instants, so they keep no blocks of keys (`with_blocks`)"
)]
pub trait Counted: Algorithm {
    /// Returns the slices of time that are counted.
    ///
    /// # Errors
    ///
    /// When the windows do not depend on time alone, such as those that begin with a key's first
    /// call, and for an [`AnyRule`] that is no window.
    fn slicing(&self) -> Result<Slicing, Error>;

    /// Returns the state of a key with these totals, as written at `at`. `None` if the key has
    /// counted nothing.
    ///
    /// The first total is that of the slice of `at`. The next ones are those of the
    /// [older](Slicing::older) slices, newest first. Missing totals are 0.
    fn state_of_totals(&self, totals: &[u64], at: Timestamp) -> Option<Self::State>;
}

/// Slices of time, each with a counter of its own.
///
/// Windows follow each other from the Unix epoch on, or from an offset after it, and each is cut
/// into `count` slices. Slice `k` begins `⌈k · window / count⌉` nanoseconds after the first one.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Timestamp, algorithm::Slicing};
///
/// let minute = Duration::from_secs(60);
/// let quarters = Slicing::sliding(minute, 4)?;
/// let now = Timestamp::from_nanos(100_000_000_000);
/// let slice = quarters.slice(now);
/// assert_eq!(quarters.begin(slice), Timestamp::from_nanos(90_000_000_000));
/// // The window still holds a part of the fourth slice before.
/// assert_eq!(quarters.older(), 4);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slicing {
    window: NonZeroU64,
    count: NonZeroU64,
    /// The nanoseconds from the beginning of the first window to the epoch: less than a window.
    ahead: u64,
    older: u64,
}

impl Slicing {
    /// Creates windows that begin `offset` later than those of the calendar. Only the current
    /// window counts.
    ///
    /// # Errors
    ///
    /// When `window` is 0 or above 2⁶³ − 1 ns, or `offset` is not below `window`.
    pub fn windows(window: Duration, offset: Duration) -> Result<Self, Error> {
        let (window, offset) = (nanos(window)?, offset.as_nanos());
        let left = u128::from(window.get()).saturating_sub(offset);
        if left == 0 {
            return Err(Error::new(format!(
                "an offset of {offset} ns for windows of {window} ns: expected less than their length; take whole \
                 windows off it"
            )));
        }
        Ok(Self {
            window,
            count: NonZeroU64::MIN,
            ahead: if offset == 0 { 0 } else { left as u64 },
            older: 0,
        })
    }

    /// Creates windows of the calendar, each cut into `count` slices. The current slice and `count`
    /// older ones count, the oldest in part.
    ///
    /// # Errors
    ///
    /// When `window` is 0 or above 2⁶³ − 1 ns, when `count` is 0 or above
    /// [`SlidingWindow::MAX_SLICES`], or when slices would be shorter than a nanosecond.
    pub fn sliding(window: Duration, count: u64) -> Result<Self, Error> {
        let window = nanos(window)?;
        match NonZeroU64::new(count) {
            Some(count) if count <= window && count.get() <= SlidingWindow::MAX_SLICES => {
                Ok(Self {
                    window,
                    count,
                    ahead: 0,
                    older: count.get(),
                })
            }
            _ => Err(Error::new(format!(
                "{count} slices in a window of {window} ns: expected 1 to {}, none shorter than a nanosecond; take \
                 fewer slices or a longer window",
                SlidingWindow::MAX_SLICES
            ))),
        }
    }

    /// Returns the number of slices before the current one that still count, the oldest of them in
    /// part.
    pub const fn older(&self) -> u64 {
        self.older
    }

    /// Returns the number of the slice that contains an instant.
    pub fn slice(&self, at: Timestamp) -> u64 {
        // No overflow: at most 2^65 times the number of slices.
        let since = u128::from(at.as_nanos()) + u128::from(self.ahead);
        let slice = since * u128::from(self.count.get()) / u128::from(self.window.get());
        u64::try_from(slice).unwrap_or(u64::MAX)
    }

    /// Returns the beginning of a slice, limited to the range from the epoch to [`Timestamp::MAX`].
    pub fn begin(&self, slice: u64) -> Timestamp {
        let since = u128::from(slice) * u128::from(self.window.get());
        let since = since.div_ceil(u128::from(self.count.get()));
        let nanos = since.saturating_sub(u128::from(self.ahead));
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the instant from which a slice no longer counts.
    pub fn over(&self, slice: u64) -> Timestamp {
        self.begin(slice.saturating_add(self.older).saturating_add(1))
    }
}

fn nanos(window: Duration) -> Result<NonZeroU64, Error> {
    let nanos = u64::try_from(window.as_nanos())
        .ok()
        .filter(|nanos| nanos >> 63 == 0);
    nanos.and_then(NonZeroU64::new).ok_or_else(|| {
        Error::new(format!(
            "windows of {}: expected 1 ns to 2^63 - 1 ns (292 years); choose another length",
            Written(window)
        ))
    })
}

impl fmt::Display for Slicing {
    /// Writes a text that identifies the slicing: `1m`, `1m/1`, `1m/4`, `1m+50s`.
    ///
    /// It contains the window, the number of slices if the window slides, and the time from the
    /// beginning of the first window to the epoch if that is not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_duration(self.window.get(), f)?;
        if self.older > 0 {
            write!(f, "/{}", self.count)?;
        }
        if self.ahead > 0 {
            f.write_str("+")?;
            fmt_duration(self.ahead, f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Slicing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slicing({self})")
    }
}

/// Returns the slicing of a rule for its keys.
///
/// # Errors
///
/// Fails if counters cannot run the rule.
#[cfg(feature = "tokio")]
pub(crate) fn slicing_for_keys<Rule: Counted>(rule: &Rule) -> Result<Slicing, Error> {
    // Spread windows are those of a key: any key distinguishes them from those of another length.
    let of_a_key = rule.for_key(&|| u64::MAX / 2);
    of_a_key.as_ref().unwrap_or(rule).slicing()
}

impl Counted for AnyRule {
    fn slicing(&self) -> Result<Slicing, Error> {
        match self {
            Self::FixedWindow(rule) => rule.slicing(),
            Self::SlidingWindow(rule) => rule.slicing(),
            Self::All(_) => Err(Error::new(format!(
                "counters cannot run `{self}` as one rule: expected `fixed-window` or `sliding-window` alone; take \
                 another limit for each (in the route's list, or by `.also(…)`), or a store that compares and swaps, runs a script, \
                 or is in memory"
            ))),
            _ => Err(Error::new(format!(
                "counters cannot run `{self}`: expected `fixed-window` or `sliding-window`, which only add up; for other \
                 rules take a store that compares and swaps, runs a script, or is in memory"
            ))),
        }
    }

    fn state_of_totals(&self, totals: &[u64], at: Timestamp) -> Option<AnyState> {
        match self {
            Self::FixedWindow(rule) => rule.state_of_totals(totals, at).map(Own::into_any),
            Self::SlidingWindow(rule) => rule.state_of_totals(totals, at).map(Own::into_any),
            _ => None,
        }
    }
}
