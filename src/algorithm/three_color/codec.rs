//! A marker's state as bytes.

use super::{ThreeColor, ThreeColorState};
use crate::{
    algorithm::{
        codec::{Codec, put_instant, take_instant, take_tag},
        credit::Credit,
    },
    error::Error,
};

impl Codec for ThreeColorState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(ThreeColor::TAG);
        put_instant(bytes, self.written_at);
        self.committed.encode(bytes);
        self.peak.encode(bytes);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, ThreeColor::TAG)?;
        Ok(Self {
            written_at: take_instant(bytes)?,
            committed: Credit::decode(bytes)?,
            peak: Credit::decode(bytes)?,
        })
    }
}
