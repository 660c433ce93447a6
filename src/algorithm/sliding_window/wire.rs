//! Encodings: the state as bytes, the rule and its state as numbers for scripts, and the state from
//! the totals of counters.

use super::{SlidingWindow, SlidingWindowState, step::SliceCounters};
use crate::{
    algorithm::{
        Counted, Slicing,
        codec::{Codec, damaged, put_instant, put_number, take_instant, take_number, take_tag},
        scripted::{
            MICRO, ScriptTuple, Scripted, count, fitting, in_micros, instant, micros, natural, only,
        },
    },
    error::Error,
    quota::Quota,
    time::Timestamp,
};

impl Codec for SlidingWindowState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(SlidingWindow::TAG);
        put_instant(bytes, self.written_at);
        put_number(bytes, self.window);
        put_number(bytes, self.counters.len() as u64 - 1);
        for counter in &*self.counters {
            put_number(bytes, *counter);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, SlidingWindow::TAG)?;
        let written_at = take_instant(bytes)?;
        let (window, slices) = (take_number(bytes)?, take_number(bytes)?);
        let fits = (1..=SlidingWindow::MAX_SLICES.min(window)).contains(&slices);
        if !fits || u128::from(window) > Quota::MAX_PERIOD.as_nanos() {
            return Err(damaged());
        }
        let mut counters = SliceCounters::zero(slices);
        for counter in &mut *counters {
            *counter = take_number(bytes)?;
        }
        Ok(Self {
            written_at,
            window,
            counters,
        })
    }
}

impl Scripted for SlidingWindow {
    /// Slices of whole microseconds only.
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        let slices = self.slices.count();
        let window = self.slices.window();
        micros(window, self)?;
        // A nanosecond is not a whole number of microseconds either.
        let length = if window.is_multiple_of(slices) {
            window / slices
        } else {
            1
        };
        let length = micros(length, self)?;
        // The product of the oldest counter, which is at most twice the limit after a change of
        // rules, and the slice's length.
        fitting(2 * u128::from(self.limit.get()) * length as u128, self)?;
        parts.push(vec![
            Self::KIND,
            slices as i64,
            length,
            fitting(self.limit.get().into(), self)?,
        ]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<SlidingWindowState> {
        let (&[Self::KIND, slices, length, at], counts) = only(parts)?.split_first_chunk()? else {
            return None;
        };
        let (number, length) = (natural(slices)?, natural(length)?);
        let fits = (1..=SlidingWindow::MAX_SLICES).contains(&number)
            && counts.len() as u64 == number + 1
            && length > 0;
        let window = slices.checked_mul(length as i64).filter(|_| fits)?;
        let mut counters = SliceCounters::zero(number);
        for (counter, count) in counters.iter_mut().zip(counts) {
            *counter = natural(*count)?;
        }
        Some(SlidingWindowState {
            written_at: instant(at)?,
            window: instant(window)?.as_nanos(),
            counters,
        })
    }

    fn state_parts(&self, state: &SlidingWindowState, parts: &mut Vec<Option<ScriptTuple>>) {
        let slices = state.counters.len() as u64 - 1;
        let mut part = vec![
            Self::KIND,
            slices as i64,
            (state.window / slices / MICRO) as i64,
            in_micros(state.written_at),
        ];
        part.extend(state.counters.iter().map(|units| count(*units)));
        parts.push(Some(part));
    }
}

impl Counted for SlidingWindow {
    fn slicing(&self) -> Result<Slicing, Error> {
        Slicing::sliding(self.quota.period(), self.slice_count())
    }

    fn state_of_totals(&self, totals: &[u64], at: Timestamp) -> Option<SlidingWindowState> {
        if totals.iter().all(|total| *total == 0) {
            return None;
        }
        let mut state = SlidingWindowState::empty(&self.slices, at);
        for (counter, total) in state.counters.iter_mut().zip(totals) {
            *counter = *total;
        }
        Some(state)
    }
}
