//! A warm-up's text: `warm-up 200/s over=10s cold=3`.

use std::{fmt, str::FromStr};

use super::{WarmUp, checked_quota};
use crate::{
    algorithm::{
        text::Words,
        warm_curve::{built_over, cold_of},
    },
    error::Error,
};

impl fmt::Display for WarmUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warm-up {}", self.quota)?;
        self.curve.fmt_settings(f)
    }
}

impl fmt::Debug for WarmUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WarmUp({self})")
    }
}

impl FromStr for WarmUp {
    type Err = Error;

    /// Parses `warm-up 200/s over=10s cold=2.5`; all but the quota may be left out.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text);
        words.name(Self::NAME)?;
        let column = words.column();
        let quota = words.quota()?;
        let [over, cold] = words.settings(&["over", "cold"])?;
        let cold = cold_of(cold)?;
        checked_quota(quota, cold).map_err(|error| error.at_column(column))?;
        built_over(over, |over| Self::try_with(quota, over, cold))
    }
}
