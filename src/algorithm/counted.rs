//! Rules for stores that can only add to counters and return totals.

use std::{fmt, num::NonZeroU64, str::FromStr, time::Duration};

use super::{Algorithm, AnyRule, AnyState, FixedWindow, SlidingWindow, StateKind, Step, any::Own};
use crate::{
    decision::{Charge, Cost, Decision},
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
    note = "counters run `FixedWindow`, `SlidingWindow`, and `CountedRule`, which `CountedRule::try_from(rule)` makes of an \
            `AnyRule`; for another rule take a store that compares and swaps (`CasStore`), one that runs a script \
            (`Redis`), or `Local`",
    note = "counters cannot keep the longest of several instants, so they keep no blocks of keys (`with_blocks`)"
)]
pub trait Counted: Algorithm {
    /// Returns the slices of time that are counted.
    ///
    /// # Errors
    ///
    /// When the windows do not depend on time alone, such as those that begin with a key's first
    /// call.
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

/// A rule for counters, chosen at run time: a fixed window of the calendar, or a sliding window.
///
/// It parses from the same text as [`AnyRule`], and its output parses back. With the feature
/// `serde`, it is serialized as a string.
///
/// ```
/// use tollgate::{AnyRule, CountedRule};
///
/// let rule: CountedRule = "sliding-window 100/1m slices=4".parse()?;
/// assert_eq!(rule.to_string(), "sliding-window 100/1m slices=4");
///
/// let bucket: AnyRule = "token-bucket 100/1m".parse()?;
/// let error = CountedRule::try_from(bucket).unwrap_err();
/// assert!(error.to_string().contains("expected `fixed-window` or `sliding-window`"));
/// # Ok::<(), tollgate::Error>(())
/// ```
// Invariant: a window that counters can run.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CountedRule(AnyRule);

impl CountedRule {
    /// Returns the rule as an [`AnyRule`], for stores that run any algorithm.
    pub const fn as_any(&self) -> &AnyRule {
        &self.0
    }
}

impl TryFrom<AnyRule> for CountedRule {
    type Error = Error;

    /// # Errors
    ///
    /// When counters cannot run the rule. The error names the rules that they can run, and what to
    /// use for this one.
    fn try_from(rule: AnyRule) -> Result<Self, Error> {
        slicing_of(&rule).map(|_| Self(rule))
    }
}

fn slicing_of(rule: &AnyRule) -> Result<Slicing, Error> {
    match rule {
        AnyRule::FixedWindow(rule) => rule.slicing(),
        AnyRule::SlidingWindow(rule) => rule.slicing(),
        AnyRule::All(_) => Err(Error::new(format!(
            "counters cannot run `{rule}` as one rule: expected `fixed-window` or `sliding-window` alone; give \
             the layer another limit for each (`.also(…)`), or take a store that compares and swaps, runs a script, or is in \
             memory"
        ))),
        _ => Err(Error::new(format!(
            "counters cannot run `{rule}`: expected `fixed-window` or `sliding-window`, which only add up; for other \
             rules take a store that compares and swaps, runs a script, or is in memory"
        ))),
    }
}

impl From<CountedRule> for AnyRule {
    fn from(rule: CountedRule) -> Self {
        rule.0
    }
}

impl From<SlidingWindow> for CountedRule {
    fn from(rule: SlidingWindow) -> Self {
        Self(rule.into())
    }
}

impl TryFrom<FixedWindow> for CountedRule {
    type Error = Error;

    /// # Errors
    ///
    /// When windows begin [from the first call](FixedWindow::from_first_call).
    fn try_from(rule: FixedWindow) -> Result<Self, Error> {
        AnyRule::from(rule).try_into()
    }
}

impl Algorithm for CountedRule {
    type State = AnyState;

    #[inline]
    fn step(&self, state: &mut Option<AnyState>, now: Timestamp, cost: Cost) -> Step {
        self.0.step(state, now, cost)
    }

    fn look(&self, state: Option<&AnyState>, now: Timestamp) -> Decision {
        self.0.look(state, now)
    }

    fn settle(&self, state: &mut Option<AnyState>, charge: &Charge, now: Timestamp, actual: u64) {
        self.0.settle(state, charge, now, actual);
    }

    fn forgettable_at(&self, state: &AnyState) -> Timestamp {
        self.0.forgettable_at(state)
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        self.0.state_kind()
    }

    #[inline]
    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        self.0.for_key(digest).map(Self)
    }
}

impl Counted for CountedRule {
    fn slicing(&self) -> Result<Slicing, Error> {
        slicing_of(&self.0)
    }

    fn state_of_totals(&self, totals: &[u64], at: Timestamp) -> Option<AnyState> {
        match &self.0 {
            AnyRule::FixedWindow(rule) => rule.state_of_totals(totals, at).map(Own::into_any),
            AnyRule::SlidingWindow(rule) => rule.state_of_totals(totals, at).map(Own::into_any),
            _ => None,
        }
    }
}

impl FromStr for CountedRule {
    type Err = Error;

    /// Parses `fixed-window 100/1m offset=10s`, `sliding-window 100/1m slices=4`.
    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse::<AnyRule>()?.try_into()
    }
}

impl fmt::Display for CountedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for CountedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CountedRule({self})")
    }
}

#[cfg(feature = "serde")]
crate::quota::as_text!(CountedRule);
