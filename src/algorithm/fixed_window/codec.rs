//! A window's state as bytes.

use super::{FixedWindow, FixedWindowState};
use crate::{
    algorithm::codec::{
        Codec, damaged, put_instant, put_number, take_instant, take_number, take_tag,
    },
    clock::Timestamp,
    error::Error,
};

/// The end, how long before it the window began, and the count.
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
