//! Encodings: the state as bytes, the rule and its state as numbers for scripts, and the state from
//! the totals of counters.

use std::time::Duration;

use super::{Begin, FixedWindow, step::FixedWindowState};
use crate::{
    algorithm::{
        Counted, Slicing,
        codec::{Codec, damaged, put_instant, put_number, take_instant, take_number, take_tag},
        scripted::{
            MICRO, ScriptTuple, Scripted, count, fitting, in_micros, instant, micros, natural, only,
        },
    },
    error::Error,
    time::Timestamp,
};

impl Counted for FixedWindow {
    /// Spread windows are those of a key by [`for_key`](crate::algorithm::Algorithm::for_key), and
    /// otherwise those of the calendar.
    ///
    /// # Errors
    ///
    /// When windows begin from the first call.
    fn slicing(&self) -> Result<Slicing, Error> {
        let offset = match self.begin {
            Begin::Offset(offset) => offset,
            Begin::Spread => 0,
            Begin::FirstCall => {
                return Err(Error::new(format!(
                    "counters cannot run `{self}`, for nobody can tell from a total when the first call came: expected \
                     windows of the calendar; take `offset=spread`, which begins them apart too, or a store that compares and \
                     swaps, runs a script, or is in memory"
                )));
            }
        };
        Slicing::windows(self.quota.period(), Duration::from_nanos(offset))
    }

    fn state_of_totals(&self, totals: &[u64], at: Timestamp) -> Option<FixedWindowState> {
        let count = totals.first().copied().filter(|count| *count > 0)?;
        let slicing = self.slicing().ok()?;
        let slice = slicing.slice(at);
        Some(FixedWindowState {
            start: slicing.begin(slice),
            end: slicing.over(slice),
            count,
        })
    }
}

/// Encodes the end, the length, and the count.
impl Codec for FixedWindowState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(FixedWindow::TAG);
        put_instant(bytes, self.end);
        put_number(bytes, self.end.nanos_since(self.start));
        put_number(bytes, self.count);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, FixedWindow::TAG)?;
        let end = take_instant(bytes)?;
        let start = end.as_nanos().checked_sub(take_number(bytes)?);
        Ok(Self {
            start: start.map(Timestamp::from_nanos).ok_or_else(damaged)?,
            end,
            count: take_number(bytes)?,
        })
    }
}

impl Scripted for FixedWindow {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        let begin = match self.begin {
            Begin::Offset(offset) => micros(offset, self)?,
            Begin::Spread => 0,
            Begin::FirstCall => -1,
        };
        let period = micros(self.quota.period_nanos(), self)?;
        let limit = fitting(self.limit().get().into(), self)?;
        parts.push(vec![Self::KIND, period, begin, limit]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<FixedWindowState> {
        let [Self::KIND, start, end, count] = *only(parts)? else {
            return None;
        };
        let (start, end, count) = (instant(start)?, instant(end)?, natural(count)?);
        (start <= end).then_some(FixedWindowState { start, end, count })
    }

    fn state_parts(&self, state: &FixedWindowState, parts: &mut Vec<Option<ScriptTuple>>) {
        parts.push(Some(vec![
            Self::KIND,
            in_micros(state.start),
            // Later ones do not fit, nor does the time that one would end at.
            count(state.end.as_nanos().div_ceil(MICRO)),
            count(state.count),
        ]));
    }
}
