//! Encodings: the state as bytes, and the rule and its state as numbers for scripts.

use super::{Color, ThreeColor, step::ThreeColorState};
use crate::{
    algorithm::{
        codec::{Codec, put_instant, take_instant, take_tag},
        scripted::{ScriptTuple, Scripted, in_micros, instant, only},
        ticks::{put_span, take_span},
    },
    error::Error,
};

impl Codec for ThreeColorState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(ThreeColor::TAG);
        put_instant(bytes, self.written_at);
        put_span(bytes, self.committed);
        put_span(bytes, self.peak);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, ThreeColor::TAG)?;
        Ok(Self {
            written_at: take_instant(bytes)?,
            committed: take_span(bytes)?,
            peak: take_span(bytes)?,
        })
    }
}

impl Scripted for ThreeColor {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        let given = self.given.unwrap_or(Color::Green) as i64;
        let (committed, peak) = (self.committed.numbers(self)?, self.peak.numbers(self)?);
        parts.push([&[Self::KIND, given], &committed[..], &peak].concat());
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<ThreeColorState> {
        let [Self::KIND, at, committed, committed_gain, peak, peak_gain] = *only(parts)? else {
            return None;
        };
        Some(ThreeColorState {
            written_at: instant(at)?,
            committed: self.committed.span(committed, committed_gain)?,
            peak: self.peak.span(peak, peak_gain)?,
        })
    }

    fn state_parts(&self, state: &ThreeColorState, parts: &mut Vec<Option<ScriptTuple>>) {
        let at = in_micros(state.written_at);
        let (committed, peak) = (
            self.committed.level(state.committed),
            self.peak.level(state.peak),
        );
        parts.push(Some([&[Self::KIND, at], &committed[..], &peak].concat()));
    }
}
