//! Encodings: the state as bytes.

use super::{
    InFlight, in_memory_only,
    step::{InFlightState, Span},
};
use crate::{
    algorithm::{
        codec::{Codec, damaged, put_instant, put_number, take_instant, take_number, take_tag},
        scripted::{ScriptTuple, Scripted},
    },
    error::Error,
    time::Timestamp,
};

impl Codec for InFlightState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let spans = self.clone().spans();
        bytes.push(InFlight::TAG);
        put_number(bytes, spans.len() as u64);
        for span in spans {
            put_instant(bytes, span.end);
            put_number(bytes, span.units);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, InFlight::TAG)?;
        let count = take_number(bytes)?;
        // Each takes two bytes or more.
        if count > bytes.len() as u64 {
            return Err(damaged());
        }
        let mut spans = Vec::new();
        for _ in 0..count {
            let (end, units) = (take_instant(bytes)?, take_number(bytes)?);
            spans.push(Span { end, units });
        }
        let ascends = spans.windows(2).all(|two| two[0].end < two[1].end);
        let mut state = Some(Self::Timed(Box::new(spans)));
        Self::tidy(&mut state, Timestamp::default());
        state.filter(|_| ascends).ok_or_else(damaged)
    }
}

impl Scripted for InFlight {
    fn rule_parts(&self, _: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        Err(in_memory_only())
    }

    fn state_of_parts(&self, _: &[Option<ScriptTuple>]) -> Option<InFlightState> {
        None
    }

    fn state_parts(&self, _: &InFlightState, parts: &mut Vec<Option<ScriptTuple>>) {
        parts.push(None);
    }
}
