//! A rule for counters that configuration chose.

use std::{fmt, str::FromStr};

use super::{Counted, Slicing};
use crate::{
    algorithm::{
        Algorithm, AnyRule, AnyState, FixedWindow, SlidingWindow, StateKind, Step, any::Own,
    },
    decision::{Charge, Cost, Decision},
    error::Error,
    time::Timestamp,
};

/// A rule chosen at run time, of those that counters can run: a fixed window of the calendar, or a sliding one.
///
/// Parses from the text that [`AnyRule`] has, prints what parses back, and reads from serde as a string (feature
/// `serde`).
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
// Always a window that counters can run.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CountedRule(AnyRule);

impl CountedRule {
    /// Returns the rule for stores that run any algorithm.
    pub const fn as_any(&self) -> &AnyRule {
        &self.0
    }
}

impl TryFrom<AnyRule> for CountedRule {
    type Error = Error;

    /// # Errors
    ///
    /// When counters cannot run the rule. The error names those that they can run, and what to use for this one.
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
impl serde::Serialize for CountedRule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for CountedRule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rule = AnyRule::deserialize(deserializer)?;
        rule.try_into().map_err(serde::de::Error::custom)
    }
}
