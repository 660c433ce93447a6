//! A window's count in the numbers of a script.

use super::{Begin, FixedWindow, FixedWindowState};
use crate::{
    algorithm::scripted::{
        Part, Scripted, count, fitting, in_micros, instant, kind, micros, natural,
    },
    error::Error,
};

impl Scripted for FixedWindow {
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let begin = match self.begin {
            Begin::Offset(offset) => micros(offset, self)?,
            Begin::Spread => 0,
            Begin::FirstCall => -1,
        };
        let period = micros(self.quota.period_nanos(), self)?;
        let limit = fitting(self.limit().get().into(), self)?;
        parts.push(vec![kind::FIXED_WINDOW, period, begin, limit]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<FixedWindowState> {
        let Some([Some(part)]) = parts.first_chunk() else {
            return None;
        };
        let [kind::FIXED_WINDOW, start, at, count] = part[..] else {
            return None;
        };
        let (start, at, count) = (instant(start)?, instant(at)?, natural(count)?);
        (start <= at).then_some(FixedWindowState { start, at, count })
    }

    fn state_parts(&self, state: &FixedWindowState, parts: &mut Vec<Option<Part>>) {
        parts.push(Some(vec![
            kind::FIXED_WINDOW,
            in_micros(state.start),
            in_micros(state.at),
            count(state.count),
        ]));
    }
}
