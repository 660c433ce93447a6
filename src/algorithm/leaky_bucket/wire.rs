//! Encodings: the state as bytes, and the rule and its state as numbers for scripts.

use super::{
    LeakyBucket,
    step::{LeakyBucketState, QueueSlot, RefundedSlots},
};
use crate::{
    algorithm::{
        codec::{Codec, damaged, put_instant, put_number, take_instant, take_number, take_tag},
        rate::ScriptRate,
        scripted::{MICRO, ScriptTuple, Scripted, fitting, in_micros, instant, micros, only},
        ticks::{put_span, take_span_up},
    },
    error::Error,
    time::Timestamp,
};

impl Codec for LeakyBucketState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(LeakyBucket::TAG);
        put_instant(bytes, self.written_at);
        put_span(bytes, self.backlog);
        let refunded = self.refunded.as_ref().map(|refunded| &refunded.0);
        let count = refunded.map_or(0, |refunded| refunded.len() as u64);
        put_number(bytes, count << 1 | u64::from(self.sole));
        for slot in refunded.into_iter().flatten() {
            put_instant(bytes, slot.departs);
            put_span(bytes, slot.span);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, LeakyBucket::TAG)?;
        let written_at = take_instant(bytes)?;
        let backlog = take_span_up(bytes)?;
        let number = take_number(bytes)?;
        let (count, sole) = (number >> 1, number & 1 == 1);
        if backlog < 0 {
            return Err(damaged());
        }
        let mut refunded = RefundedSlots::default();
        // The count is not trusted: an error ends the loop where the bytes end.
        for _ in 0..count {
            let slot = QueueSlot {
                departs: take_instant(bytes)?,
                span: take_span_up(bytes)?,
            };
            let is_next = |last: &QueueSlot| last.departs < slot.departs;
            if !refunded.0.back().is_none_or(is_next) || slot.span < 1 {
                return Err(damaged());
            }
            refunded.0.push_back(slot);
        }
        Ok(Self {
            written_at,
            refunded: (count > 0).then(|| Box::new(refunded)),
            backlog,
            sole,
        })
    }
}

impl LeakyBucket {
    /// Returns the span of `level` units of a `gain` a microsecond, if it is not below zero.
    fn span_of(&self, level: i64, gain: i64) -> Option<i64> {
        let span = ScriptRate::of(&self.rate).span_up(level, gain)?;
        (span >= 0).then_some(span)
    }

    /// Returns the level and the gain that a script keeps of a span, rounded in favour of the
    /// limit.
    fn units_of(&self, span: i64) -> [i64; 2] {
        ScriptRate::of(&self.rate).level_up(span)
    }
}

/// A slot that was refunded is four numbers, which the script carries along: its departure in
/// microseconds and what is left of it in nanoseconds, and its span.
const SLOT: usize = 4;

impl Scripted for LeakyBucket {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        let ScriptRate { gain, price } = ScriptRate::of(&self.rate);
        let capacity = self.capacity.get();
        let full = u128::from(capacity) * price as u128;
        fitting(full + gain as u128, self)?;
        let longest = match self.max_wait {
            Some(nanos) if u128::from(nanos.get()) * (gain as u128) < full * u128::from(MICRO) => {
                // Otherwise a backlog could lie between it and the next microsecond.
                micros(nanos.get(), self)? * gain
            }
            _ => full as i64,
        };
        parts.push(vec![Self::KIND, gain, price, capacity as i64, longest]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<LeakyBucketState> {
        let (&[Self::KIND, at, backlog, gain, sole], slots) = only(parts)?.split_first_chunk()?
        else {
            return None;
        };
        let mut refunded = RefundedSlots::default();
        for slot in slots.chunks(SLOT) {
            let &[at, nanos, span, gain] = slot else {
                return None;
            };
            let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos < MICRO)?;
            let departs = instant(at)?.as_nanos().checked_add(nanos)?;
            refunded.0.push_back(QueueSlot {
                departs: Timestamp::from_nanos(departs),
                span: self.span_of(span, gain)?,
            });
        }
        if !refunded.0.iter().is_sorted_by_key(|slot| slot.departs) || !matches!(sole, 0 | 1) {
            return None;
        }
        Some(LeakyBucketState {
            written_at: instant(at)?,
            refunded: (!refunded.0.is_empty()).then(|| Box::new(refunded)),
            backlog: self.span_of(backlog, gain)?,
            sole: sole == 1,
        })
    }

    fn state_parts(&self, state: &LeakyBucketState, parts: &mut Vec<Option<ScriptTuple>>) {
        let [backlog, gain] = self.units_of(state.backlog);
        let mut part = vec![
            Self::KIND,
            in_micros(state.written_at),
            backlog,
            gain,
            i64::from(state.sole),
        ];
        for slot in state.refunded.iter().flat_map(|refunded| &refunded.0) {
            let [span, gain] = self.units_of(slot.span);
            let departs = slot.departs.as_nanos();
            let (at, nanos) = (departs / MICRO, departs % MICRO);
            part.extend([at as i64, nanos as i64, span, gain]);
        }
        parts.push(Some(part));
    }
}
