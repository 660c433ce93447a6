//! A log as bytes.

use super::{SlidingLog, SlidingLogState};
use crate::{
    algorithm::codec::{Codec, damaged, put_number, take_number, take_tag},
    clock::Timestamp,
    error::Error,
};

/// The number of entries, and of each how long it came after the one before and its units.
impl Codec for SlidingLogState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(SlidingLog::TAG);
        put_number(bytes, self.len() as u64);
        let mut last = Timestamp::default();
        for (at, units) in self.entries() {
            put_number(bytes, at.nanos_since(last));
            put_number(bytes, units);
            last = at;
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, SlidingLog::TAG)?;
        let mut log = Self::new();
        let mut last = 0_u64;
        for n in 0..take_number(bytes)? {
            let (since, units) = (take_number(bytes)?, take_number(bytes)?);
            let at = last.checked_add(since).filter(|at| *at != u64::MAX);
            let counted = log.units_from(0).checked_add(units);
            match (at, counted) {
                (Some(at), Some(_)) if units > 0 && (since > 0 || n == 0) => {
                    log.push(Timestamp::from_nanos(at), units);
                    last = at;
                }
                _ => return Err(damaged()),
            }
        }
        if log.is_empty() {
            return Err(damaged());
        }
        Ok(log)
    }
}
