//! A bucket's text: `leaky-bucket 10/s queue=50 max-wait=2s`.

use std::{fmt, str::FromStr};

use super::LeakyBucket;
use crate::{algorithm::text::Words, error::Error, quota::fmt_duration};

impl fmt::Display for LeakyBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leaky-bucket {}", self.quota)?;
        let queue = self.capacity.get() - 1;
        if queue != self.quota.amount() {
            write!(f, " queue={queue}")?;
        }
        if let Some(wait) = self.max_wait {
            f.write_str(" max-wait=")?;
            fmt_duration(wait.get(), f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for LeakyBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeakyBucket({self})")
    }
}

impl FromStr for LeakyBucket {
    type Err = Error;

    /// Parses `leaky-bucket 10/s queue=50 max-wait=2s`; all but the quota may be left out.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text);
        words.name(Self::NAME)?;
        let mut bucket = Self::new(words.quota()?);
        let [queue, max_wait] = words.settings(&["queue", "max-wait"])?;
        if let Some(word) = queue {
            bucket = word.apply(word.number()?, |units| bucket.try_queue(units))?;
        }
        if let Some(word) = max_wait {
            bucket = word.apply(word.duration()?, |wait| bucket.try_max_wait(wait))?;
        }
        Ok(bucket)
    }
}
