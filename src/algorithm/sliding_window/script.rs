//! A window's counters in the numbers of a script.

use super::{SlidingWindow, SlidingWindowState, state::Counters};
use crate::{
    algorithm::scripted::{
        MICRO, Part, Scripted, count, fitting, in_micros, instant, micros, natural,
    },
    error::Error,
};

impl Scripted for SlidingWindow {
    /// Slices of whole microseconds only.
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let slices = self.slices.count();
        let length = micros(self.slices.window(), self)?;
        let whole = length % slices as i64 == 0;
        let length = micros(
            if whole {
                self.slices.window() / slices
            } else {
                1
            },
            self,
        )?;
        // What the oldest slice holds, twice the limit at most after a rule has changed, by its length.
        fitting(2 * u128::from(self.limit.get()) * length as u128, self)?;
        parts.push(vec![
            Self::KIND,
            slices as i64,
            length,
            fitting(self.limit.get().into(), self)?,
        ]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<SlidingWindowState> {
        let Some([Some(part)]) = parts.first_chunk() else {
            return None;
        };
        let (&[Self::KIND, slices, length, at], counts) = part.split_first_chunk()? else {
            return None;
        };
        let (number, length) = (natural(slices)?, natural(length)?);
        let fits = (1..=SlidingWindow::MAX_SLICES).contains(&number)
            && counts.len() as u64 == number + 1
            && length > 0;
        let window = slices.checked_mul(length as i64).filter(|_| fits)?;
        let mut counters = Counters::zero(number);
        for (counter, count) in counters.iter_mut().zip(counts) {
            *counter = natural(*count)?;
        }
        Some(SlidingWindowState {
            written_at: instant(at)?,
            window: instant(window)?.as_nanos(),
            counters,
        })
    }

    fn state_parts(&self, state: &SlidingWindowState, parts: &mut Vec<Option<Part>>) {
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
