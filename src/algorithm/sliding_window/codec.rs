//! A sliding window's state as bytes.

use super::{SlidingWindow, SlidingWindowState, state::Counters};
use crate::{
    algorithm::codec::{
        Codec, damaged, put_instant, put_number, take_instant, take_number, take_tag,
    },
    error::Error,
    quota::Quota,
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
        let mut counters = Counters::zero(slices);
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
