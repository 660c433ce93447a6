//! The text of windows, their counters, and their state as bytes and in the numbers of a script.

use std::{fmt, time::Duration};

use super::{
    rule::{Begin, FixedWindow},
    step::FixedWindowState,
};
use crate::{
    algorithm::{
        Counted, Slicing,
        codec::{Codec, damaged, put_instant, put_number, take_instant, take_number, take_tag},
        rule::{Words, text},
        scripted::{MICRO, Part, Scripted, count, fitting, in_micros, instant, micros, natural},
    },
    error::Error,
    quota::fmt_duration,
    time::Timestamp,
};

impl FixedWindow {
    /// Parses a quota and settings, without the name before them.
    fn of_words(words: &mut Words<'_>) -> Result<Self, Error> {
        let mut window = Self::new(words.quota()?);
        let [offset, from] = words.settings(&["offset", "from"])?;
        if let Some(word) = from {
            if word.word() != "first-call" {
                return Err(
                    word.error("`from=first-call`; leave it out for windows of the calendar")
                );
            }
            window.begin = Begin::FirstCall;
        }
        match offset {
            None => Ok(window),
            Some(word) if word.word() == "spread" => word.apply((), |()| window.try_spread()),
            Some(word) => {
                let offset = word.duration().map_err(|_| {
                    word.error(
                        "a duration in ns, us, ms, s, m, h or d, as in `offset=10s`, or `offset=spread`",
                    )
                })?;
                word.apply(offset, |offset| window.try_offset(offset))
            }
        }
    }

    /// Writes the quota, and the settings that differ from the defaults.
    fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.quota)?;
        match self.begin {
            Begin::Offset(0) => Ok(()),
            Begin::Offset(nanos) => {
                f.write_str(" offset=")?;
                fmt_duration(nanos, f)
            }
            Begin::Spread => f.write_str(" offset=spread"),
            Begin::FirstCall => f.write_str(" from=first-call"),
        }
    }
}

text! {
    /// Parses `fixed-window 100/1m` with `offset=10s`, `offset=spread`, `from=first-call` or none of them.
    FixedWindow
}

impl Counted for FixedWindow {
    /// Spread windows are those of a key by [`for_key`](crate::algorithm::Algorithm::for_key), and otherwise those of
    /// the calendar.
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
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
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

    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<FixedWindowState> {
        let Some([Some(part)]) = parts.first_chunk() else {
            return None;
        };
        let [Self::KIND, start, end, count] = part[..] else {
            return None;
        };
        let (start, end, count) = (instant(start)?, instant(end)?, natural(count)?);
        (start <= end).then_some(FixedWindowState { start, end, count })
    }

    fn state_parts(&self, state: &FixedWindowState, parts: &mut Vec<Option<Part>>) {
        parts.push(Some(vec![
            Self::KIND,
            in_micros(state.start),
            // Later ones do not fit, nor does the time that one would end at.
            count(state.end.as_nanos().div_ceil(MICRO)),
            count(state.count),
        ]));
    }
}
