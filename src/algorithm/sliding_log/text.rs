//! A log's text: `sliding-log 100/1m`.

use std::{fmt, str::FromStr};

use super::SlidingLog;
use crate::{algorithm::text::Words, error::Error};

impl fmt::Display for SlidingLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sliding-log {}", self.quota)
    }
}

impl fmt::Debug for SlidingLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlidingLog({self})")
    }
}

impl FromStr for SlidingLog {
    type Err = Error;

    /// Parses `sliding-log 100/1m`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text);
        words.name(Self::NAME)?;
        let rule = Self::new(words.quota()?);
        words.end()?;
        Ok(rule)
    }
}
