//! Buckets in order in the numbers of a script.

use super::{Cascade, CascadeState, MOST, state::Few};
use crate::{
    algorithm::{
        scripted::{Part, Scripted, in_micros, instant},
        token_bucket::BucketLevel,
    },
    error::Error,
};

impl Scripted for Cascade {
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let mut part = vec![Self::KIND];
        for bucket in &self.buckets {
            part.extend(bucket.numbers(self)?);
        }
        parts.push(part);
        Ok(())
    }

    /// Of the buckets that this rule has; those that it has not say nothing to it.
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
        // Those of buckets that this rule has not are judged too, as in the script.
        let last = self.buckets.last()?;
        let own = self.buckets.iter().chain(std::iter::repeat(last));
        let buckets = known.zip(own).map(|(numbers, bucket)| {
            let &[at, level, gain] = numbers else {
                return None;
            };
            Some(BucketLevel {
                written_at: instant(at)?,
                credit: bucket.credit(level, gain)?,
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
            part.extend(bucket.level(state.credit));
        }
        parts.push(Some(part));
    }
}
