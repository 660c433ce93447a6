//! Encodings: the state as bytes, and the rule and its state as numbers for scripts.

use super::{Block, BlockState};
use crate::{
    algorithm::{
        codec::{Codec, put_instant, tag, take_byte, take_instant, take_tag},
        scripted::{ScriptTuple, Scripted, in_micros, instant, only},
    },
    error::Error,
};

impl BlockState {
    /// Returns `true` if the first byte is that of a block, in any version of the encoding.
    pub(super) fn begins(bytes: &[u8]) -> bool {
        let first = bytes.first().map(|byte| tag::family(*byte));
        first == Some(tag::family(Block::TAG))
    }
}

impl Codec for BlockState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(Block::TAG);
        put_instant(bytes, self.until);
        bytes.push(self.level);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, Block::TAG)?;
        Ok(Self {
            until: take_instant(bytes)?,
            level: take_byte(bytes)?,
        })
    }
}

impl Scripted for Block {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        // At most 365 days, so it fits.
        let micros = self.millis as i64 * 1000;
        parts.push(vec![Self::KIND, micros, self.extends.into()]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<BlockState> {
        let [Self::KIND, until, level] = *only(parts)? else {
            return None;
        };
        Some(BlockState {
            until: instant(until)?,
            level: u8::try_from(level).ok()?,
        })
    }

    fn state_parts(&self, state: &BlockState, parts: &mut Vec<Option<ScriptTuple>>) {
        let until = in_micros(state.until);
        parts.push(Some(vec![Self::KIND, until, state.level.into()]));
    }
}
