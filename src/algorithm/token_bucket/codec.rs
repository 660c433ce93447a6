//! A bucket's state as bytes.

use super::{BucketLevel, TokenBucket, TokenBucketState, settle::GivenBack};
use crate::{
    algorithm::{
        codec::{Codec, put_instant, put_number, take_instant, take_number, take_tag},
        credit::Credit,
    },
    error::Error,
};

/// Version 2, of a key to which something was given back.
const GIVEN_BACK: u8 = TokenBucket::TAG + 1;

/// The version says whether there is something that was given back: most keys have nothing.
impl Codec for TokenBucketState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let given_back = self.given_back;
        if given_back.is_none() {
            return self.level.encode(bytes);
        }
        bytes.push(GIVEN_BACK);
        self.level.put(bytes);
        put_number(bytes, given_back.nanos());
        put_instant(bytes, given_back.until());
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        if bytes.first() != Some(&GIVEN_BACK) {
            return BucketLevel::decode(bytes).map(Self::from);
        }
        take_tag(bytes, GIVEN_BACK)?;
        Ok(Self {
            level: BucketLevel::take(bytes)?,
            given_back: GivenBack::new(take_number(bytes)?, take_instant(bytes)?),
        })
    }
}

/// As the whole state of a key to which nothing was given back.
impl Codec for BucketLevel {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(TokenBucket::TAG);
        self.put(bytes);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, TokenBucket::TAG)?;
        Self::take(bytes)
    }
}

impl BucketLevel {
    fn put(&self, bytes: &mut Vec<u8>) {
        put_instant(bytes, self.written_at);
        self.credit.encode(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, Error> {
        Ok(Self {
            written_at: take_instant(bytes)?,
            credit: Credit::decode(bytes)?,
        })
    }
}
