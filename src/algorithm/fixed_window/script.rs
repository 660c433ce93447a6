//! A window's count in the numbers of a script.

use super::{Begin, FixedWindow, FixedWindowState};
use crate::{
    algorithm::scripted::{
        MICRO, Part, Scripted, count, fitting, in_micros, instant, micros, natural,
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
