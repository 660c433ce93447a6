//! A window's text: `fixed-window 100/1m offset=10s`, `offset=spread` or `from=first-call`.

use std::{fmt, str::FromStr};

use super::{Begin, FixedWindow};
use crate::{algorithm::text::Words, error::Error, quota::fmt_duration};

impl fmt::Display for FixedWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fixed-window {}", self.quota)?;
        match self.begin {
            Begin::Offset(0) => Ok(()),
            Begin::Offset(nanos) => {
                f.write_str(" offset=")?;
                fmt_duration(nanos, f)
            }
            Begin::Spread => f.write_str(" offset=spread"),
            Begin::FirstCall => f.write_str(" from=first-call"),
        }
    }
}

impl fmt::Debug for FixedWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FixedWindow({self})")
    }
}

impl FromStr for FixedWindow {
    type Err = Error;

    /// Parses `fixed-window 100/1m` with `offset=10s`, `offset=spread`, `from=first-call` or none of them.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text);
        words.name(Self::NAME)?;
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
}
