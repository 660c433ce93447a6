//! A cascade's state as bytes.

use super::{Cascade, CascadeState, MOST, state::Few};
use crate::{
    algorithm::{
        codec::{Codec, damaged, put_number, take_number, take_tag},
        token_bucket::BucketLevel,
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
        Ok(Self::of(&buckets.collect::<Result<Few<_>, _>>()?))
    }
}
