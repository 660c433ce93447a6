//! A cascade's text: `cascade 10/s burst=10 > 5/s burst=20`.

use std::{fmt, str::FromStr};

use super::Cascade;
use crate::{
    algorithm::{text::Words, token_bucket::TokenBucket},
    error::Error,
};

impl fmt::Display for Cascade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "cascade ";
        for bucket in &self.buckets {
            f.write_str(before)?;
            bucket.fmt_settings(f)?;
            before = " > ";
        }
        Ok(())
    }
}

impl fmt::Debug for Cascade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cascade({self})")
    }
}

impl FromStr for Cascade {
    type Err = Error;

    /// Parses `cascade 10/s burst=10 > 5/s burst=20`: 1 to 8 buckets, each written as a
    /// [`TokenBucket`] without its name.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = text.split('>');
        let first = parts.next().unwrap_or_default();
        let mut words = Words::of(first);
        words.name(Self::NAME)?;
        let mut cascade = Self::new(TokenBucket::of_words(&mut words)?);
        let mut at = first.len() + 1;
        for part in parts {
            cascade = cascade.then_text(part).map_err(|error| error.shifted(at))?;
            at += part.len() + 1;
        }
        Ok(cascade)
    }
}

impl Cascade {
    /// The same cascade with the bucket that stands behind a `>`.
    fn then_text(self, text: &str) -> Result<Self, Error> {
        let Some((_, column)) = Words::first(text) else {
            return Err(
                Error::new("no bucket behind `>`: expected a quota, as in `5/s burst=20`")
                    .at_column(1),
            );
        };
        let bucket = TokenBucket::of_words(&mut Words::of(text))?;
        self.try_then(bucket)
            .map_err(|error| error.at_column(column))
    }
}
