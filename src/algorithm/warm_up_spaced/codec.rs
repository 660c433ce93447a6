//! A state as bytes.

use super::{WarmUpSpaced, WarmUpSpacedState};
use crate::{
    algorithm::{
        codec::{Codec, put_instant, take_instant, take_tag},
        span::Span,
    },
    error::Error,
};

impl Codec for WarmUpSpacedState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(WarmUpSpaced::TAG);
        put_instant(bytes, self.written_at);
        self.backlog.encode(bytes);
        self.warmth.encode(bytes);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, WarmUpSpaced::TAG)?;
        Ok(Self {
            written_at: take_instant(bytes)?,
            backlog: Span::decode(bytes)?,
            warmth: Span::decode(bytes)?,
        })
    }
}
