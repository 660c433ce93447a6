//! A window's counters as those that a store adds to.

use super::{SlidingWindow, SlidingWindowState};
use crate::{
    algorithm::{Counted, Slicing},
    clock::Timestamp,
    error::Error,
};

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
