//! A state as bytes.

use super::{SECOND, WarmUp, WarmUpState};
use crate::{
    algorithm::{
        codec::{Codec, damaged, put_number, take_number, take_tag},
        span::Span,
    },
    clock::Timestamp,
    error::Error,
};

impl Codec for WarmUpState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let second = self.second;
        bytes.push(WarmUp::TAG);
        put_number(bytes, second.as_nanos() / SECOND);
        put_number(bytes, self.passed);
        self.warmth.encode(bytes);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, WarmUp::TAG)?;
        let nanos = take_number(bytes)?.checked_mul(SECOND);
        Ok(Self {
            second: nanos.map(Timestamp::from_nanos).ok_or_else(damaged)?,
            passed: take_number(bytes)?,
            warmth: Span::decode(bytes)?,
        })
    }
}
