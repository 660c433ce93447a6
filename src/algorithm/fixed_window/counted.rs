//! A window's count as a counter that a store adds to.

use std::time::Duration;

use super::{Begin, FixedWindow, FixedWindowState};
use crate::{
    algorithm::{Counted, Slicing},
    clock::Timestamp,
    error::Error,
};

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
