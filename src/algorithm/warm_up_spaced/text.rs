//! A rule's text: `warm-up-spaced 2/s over=4s cold=3 max-wait=5s`.

use std::{fmt, str::FromStr};

use super::WarmUpSpaced;
use crate::{
    algorithm::{
        text::Words,
        warm_curve::{Curve, built_over, cold_of},
    },
    error::Error,
    quota::fmt_duration,
};

impl fmt::Display for WarmUpSpaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warm-up-spaced {}", self.quota)?;
        self.curve.fmt_settings(f)?;
        if self.max_wait != self.curve.over {
            f.write_str(" max-wait=")?;
            fmt_duration(self.max_wait, f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for WarmUpSpaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WarmUpSpaced({self})")
    }
}

impl FromStr for WarmUpSpaced {
    type Err = Error;

    /// Parses `warm-up-spaced 2/s over=4s cold=2.5 max-wait=5s`; all but the quota may be left out.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text);
        words.name(Self::NAME)?;
        let quota = words.quota()?;
        let [over, cold, max_wait] = words.settings(&["over", "cold", "max-wait"])?;
        let cold = cold_of(cold)?;
        let curve = built_over(over, |over| Curve::try_new(quota, over, cold))?;
        let rule = Self::on(quota, curve, curve.over);
        match max_wait {
            None => Ok(rule),
            Some(word) => word.apply(word.duration()?, |wait| rule.try_max_wait(wait)),
        }
    }
}
