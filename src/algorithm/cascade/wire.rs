//! The text of a cascade, and its state as bytes and in the numbers of a script.

use std::{fmt, str::FromStr};

use super::{
    rule::{Cascade, MOST},
    step::{CascadeState, Few},
};
use crate::{
    algorithm::{
        bucket::BucketLevel,
        codec::{Codec, damaged, put_number, take_number, take_tag},
        rule::Words,
        scripted::{Part, Scripted, in_micros, instant},
        token_bucket::TokenBucket,
    },
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
    /// Adds the bucket that follows a `>`.
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

impl Codec for CascadeState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let buckets = self.as_slice();
        bytes.push(Cascade::TAG);
        put_number(bytes, buckets.len() as u64);
        for bucket in buckets {
            bucket.encode(bytes);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, Cascade::TAG)?;
        let count = take_number(bytes)?;
        if !(1..=MOST as u64).contains(&count) {
            return Err(damaged());
        }
        let buckets = (0..count).map(|_| BucketLevel::decode(bytes));
        Ok(Self::of(&buckets.collect::<Result<Few<_>, _>>()?))
    }
}

impl Scripted for Cascade {
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let mut part = vec![Self::KIND];
        for bucket in &self.buckets {
            part.extend(bucket.numbers(self)?);
        }
        parts.push(part);
        Ok(())
    }

    /// Reads the buckets that this rule has, and ignores others.
    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<CascadeState> {
        let Some([Some(part)]) = parts.first_chunk() else {
            return None;
        };
        let Some((&Self::KIND, numbers)) = part.split_first() else {
            return None;
        };
        let known = numbers.chunks(3);
        if !(1..=MOST).contains(&known.len()) {
            return None;
        }
        // Others are validated, too, as in the script.
        let last = self.buckets.last()?;
        let own = self.buckets.iter().chain(std::iter::repeat(last));
        let buckets = known.zip(own).map(|(numbers, bucket)| {
            let &[at, level, gain] = numbers else {
                return None;
            };
            Some(BucketLevel {
                written_at: instant(at)?,
                level: bucket.span(level, gain)?,
            })
        });
        let mut buckets: Few<_> = buckets.collect::<Option<_>>()?;
        buckets.truncate(self.buckets.len());
        Some(CascadeState::of(&buckets))
    }

    fn state_parts(&self, state: &CascadeState, parts: &mut Vec<Option<Part>>) {
        let mut part = vec![Self::KIND];
        for (state, bucket) in state.as_slice().iter().zip(&self.buckets) {
            part.push(in_micros(state.written_at));
            part.extend(bucket.level(state.level));
        }
        parts.push(Some(part));
    }
}
