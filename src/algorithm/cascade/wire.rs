//! Encodings: the state as bytes, and the rule and its state as numbers for scripts.

use super::{
    Cascade, MOST,
    step::{CascadeState, PerBucket},
};
use crate::{
    algorithm::{
        bucket::BucketLevel,
        codec::{Codec, damaged, put_number, take_number, take_tag},
        scripted::{ScriptTuple, Scripted, in_micros, instant, only},
    },
    error::Error,
};

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
        Ok(Self::of(&buckets.collect::<Result<PerBucket<_>, _>>()?))
    }
}

impl Scripted for Cascade {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        let mut part = vec![Self::KIND];
        for bucket in &self.buckets {
            part.extend(bucket.numbers(self)?);
        }
        parts.push(part);
        Ok(())
    }

    /// Reads the buckets that this rule has, and ignores others.
    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<CascadeState> {
        let Some((&Self::KIND, numbers)) = only(parts)?.split_first() else {
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
        let mut buckets: PerBucket<_> = buckets.collect::<Option<_>>()?;
        buckets.truncate(self.buckets.len());
        Some(CascadeState::of(&buckets))
    }

    fn state_parts(&self, state: &CascadeState, parts: &mut Vec<Option<ScriptTuple>>) {
        let mut part = vec![Self::KIND];
        for (state, bucket) in state.as_slice().iter().zip(&self.buckets) {
            part.push(in_micros(state.written_at));
            part.extend(bucket.level(state.level));
        }
        parts.push(Some(part));
    }
}
