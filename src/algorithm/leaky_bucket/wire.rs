//! The state as bytes, and rule and state in the numbers of a script.

use super::{
    LeakyBucket,
    step::{Freed, LeakyBucketState, Place},
};
use crate::{
    algorithm::{
        codec::{Codec, damaged, put_instant, put_number, take_instant, take_number, take_tag},
        rate::ScriptRate,
        scripted::{MICRO, Part, Scripted, fitting, in_micros, instant, micros},
        ticks::Ticks,
    },
    error::Error,
    time::Timestamp,
};

impl Codec for LeakyBucketState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(LeakyBucket::TAG);
        put_instant(bytes, self.written_at);
        self.backlog.encode(bytes);
        let freed = self.freed.as_ref().map(|freed| &freed.0);
        let count = freed.map_or(0, |freed| freed.len() as u64);
        put_number(bytes, count << 1 | u64::from(self.sole));
        for place in freed.into_iter().flatten() {
            put_instant(bytes, place.departs);
            place.span.encode(bytes);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, LeakyBucket::TAG)?;
        let written_at = take_instant(bytes)?;
        let backlog = Ticks::decode_up(bytes)?;
        let number = take_number(bytes)?;
        let (count, sole) = (number >> 1, number & 1 == 1);
        if backlog.parts() < 0 {
            return Err(damaged());
        }
        let mut freed = Freed::default();
        // The count is not trusted: an error ends the loop where the bytes end.
        for _ in 0..count {
            let place = Place {
                departs: take_instant(bytes)?,
                span: Ticks::decode_up(bytes)?,
            };
            let is_next = |last: &Place| last.departs < place.departs;
            if !freed.0.back().is_none_or(is_next) || place.span.parts() < 1 {
                return Err(damaged());
            }
            freed.0.push_back(place);
        }
        Ok(Self {
            written_at,
            freed: (count > 0).then(|| Box::new(freed)),
            backlog,
            sole,
        })
    }
}

impl LeakyBucket {
    /// Returns the span of `level` units of a `gain` a microsecond, if it is not below zero.
    fn span_of(&self, level: i64, gain: i64) -> Option<Ticks> {
        let span = ScriptRate::of(&self.rate).span_up(level, gain)?;
        (span.parts() >= 0).then_some(span)
    }

    /// Returns the level and the gain that a script keeps of a span, rounded in favour of the limit.
    fn units_of(&self, span: Ticks) -> [i64; 2] {
        ScriptRate::of(&self.rate).level_up(span)
    }
}

/// A place that was given back is four numbers, which the script carries along: its departure in microseconds
/// and what is left of it in nanoseconds, and its span.
const PLACE: usize = 4;

impl Scripted for LeakyBucket {
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let ScriptRate { gain, price } = ScriptRate::of(&self.rate);
        let capacity = self.capacity.get();
        let full = price * i128::from(capacity);
        fitting((full + gain) as u128, self)?;
        let longest = match self.max_wait {
            Some(nanos) if i128::from(nanos.get()) * gain < full * i128::from(MICRO) => {
                // Otherwise a backlog could lie between it and the next microsecond.
                i128::from(micros(nanos.get(), self)?) * gain
            }
            _ => full,
        };
        parts.push(vec![
            Self::KIND,
            gain as i64,
            price as i64,
            capacity as i64,
            longest as i64,
        ]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<LeakyBucketState> {
        let Some([Some(part)]) = parts.first_chunk() else {
            return None;
        };
        let (&[Self::KIND, at, backlog, gain, sole], places) = part.split_first_chunk()? else {
            return None;
        };
        let mut freed = Freed::default();
        for place in places.chunks(PLACE) {
            let &[at, nanos, span, gain] = place else {
                return None;
            };
            let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos < MICRO)?;
            let departs = instant(at)?.as_nanos().checked_add(nanos)?;
            freed.0.push_back(Place {
                departs: Timestamp::from_nanos(departs),
                span: self.span_of(span, gain)?,
            });
        }
        if !freed.0.iter().is_sorted_by_key(|place| place.departs) || !matches!(sole, 0 | 1) {
            return None;
        }
        Some(LeakyBucketState {
            written_at: instant(at)?,
            freed: (!freed.0.is_empty()).then(|| Box::new(freed)),
            backlog: self.span_of(backlog, gain)?,
            sole: sole == 1,
        })
    }

    fn state_parts(&self, state: &LeakyBucketState, parts: &mut Vec<Option<Part>>) {
        let [backlog, gain] = self.units_of(state.backlog);
        let mut part = vec![
            Self::KIND,
            in_micros(state.written_at),
            backlog,
            gain,
            i64::from(state.sole),
        ];
        for place in state.freed.iter().flat_map(|freed| &freed.0) {
            let [span, gain] = self.units_of(place.span);
            let departs = place.departs.as_nanos();
            let (at, nanos) = (departs / MICRO, departs % MICRO);
            part.extend([at as i64, nanos as i64, span, gain]);
        }
        parts.push(Some(part));
    }
}
