//! A bucket's state as bytes.

use super::TokenBucketState;
use crate::{
    algorithm::{
        codec::{Codec, put_instant, tag, take_instant, take_tag},
        credit::Credit,
    },
    error::Error,
};

impl Codec for TokenBucketState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(tag::TOKEN_BUCKET);
        put_instant(bytes, self.written_at);
        self.credit.encode(bytes);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, tag::TOKEN_BUCKET)?;
        Ok(Self {
            written_at: take_instant(bytes)?,
            credit: Credit::decode(bytes)?,
        })
    }
}
