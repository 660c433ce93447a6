//! Encodings: the state as bytes, and the rule and its state as numbers for scripts.

use super::{
    InFlight,
    step::{InFlightState, Span, span_of},
    waits, without_lease,
};
use crate::{
    algorithm::{
        codec::{Codec, damaged, put_instant, put_number, take_instant, take_number, take_tag},
        scripted::{
            MICRO, ScriptTuple, Scripted, count, fitting, instant, micros, most, natural, only,
        },
    },
    error::Error,
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
        Self::of_spans(spans).ok_or_else(damaged)
    }
}

impl Scripted for InFlight {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        let lease = self.lease.ok_or_else(without_lease)?.get();
        if self.wait_at_most.is_some() {
            return Err(waits());
        }
        let most = fitting(self.most.get().into(), self)?;
        let times = [micros(lease, self)?, micros(span_of(lease), self)?];
        parts.push([&[Self::KIND, most], &times[..]].concat());
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<InFlightState> {
        let Some((&Self::KIND, spans)) = only(parts)?.split_first() else {
            return None;
        };
        let spans = spans.chunks(2).map(|span| match span {
            &[end, units] => Some(Span {
                end: instant(end)?,
                units: natural(units)?,
            }),
            _ => None,
        });
        InFlightState::of_spans(spans.collect::<Option<_>>()?)
    }

    fn state_parts(&self, state: &InFlightState, parts: &mut Vec<Option<ScriptTuple>>) {
        let spans = state.clone().spans().into_iter();
        let spans = spans.flat_map(|Span { end, units }| {
            let end = most(end.as_nanos().div_ceil(MICRO).into());
            [end, count(units)]
        });
        let part = [Self::KIND].into_iter().chain(spans);
        parts.push(Some(part.collect()));
    }
}
