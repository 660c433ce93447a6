//! A bucket's text: `token-bucket 100/1m burst=150 initial=300 keep=24h`.

use std::{fmt, str::FromStr};

use super::{DAY, TokenBucket};
use crate::{algorithm::text::Words, error::Error, quota::fmt_duration};

impl fmt::Display for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("token-bucket ")?;
        self.fmt_settings(f)
    }
}

impl TokenBucket {
    /// Writes the quota, and the settings that are not as they are by default.
    pub(in crate::algorithm) fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.quota)?;
        if self.burst.get() != self.quota.amount() {
            write!(f, " burst={}", self.burst)?;
        }
        if !self.starts_at_rest() {
            write!(f, " initial={}", self.initial)?;
        }
        // Also where it does not matter: what is parsed back is equal.
        if self.keep != DAY {
            f.write_str(" keep=")?;
            fmt_duration(self.keep, f)?;
        }
        Ok(())
    }

    /// Reads a quota and settings, without the name before them.
    pub(in crate::algorithm) fn of_words(words: &mut Words<'_>) -> Result<Self, Error> {
        let mut bucket = Self::new(words.quota()?);
        let settings = words.settings(&["burst", "initial", "keep"])?;
        if let Some(word) = settings[0] {
            bucket = word.apply(word.number()?, |burst| bucket.try_burst(burst))?;
        }
        if let Some(word) = settings[1] {
            bucket = word.apply(word.number()?, |initial| bucket.try_initial(initial))?;
        }
        if let Some(word) = settings[2] {
            bucket = bucket.keep(word.duration()?);
        }
        Ok(bucket)
    }
}

impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenBucket({self})")
    }
}

impl FromStr for TokenBucket {
    type Err = Error;

    /// Parses `token-bucket 100/1m burst=150 initial=300 keep=24h`; all but the quota may be left out.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text);
        words.name(Self::NAME)?;
        Self::of_words(&mut words)
    }
}
