//! Encodings: the state as bytes, and the rule and its state as numbers for scripts.
//!
//! # The log in a script
//!
//! A log lies beside its state, because a call that reads a value takes time in proportion to it.
//! The state has totals, a string has a slot for each instant, and the sums of the slots form a
//! Fenwick tree: what counts and when a cost fits is found by reading a slot for each bit of their
//! number, and a settlement changes as many. The first slot that counts is known, so the usual
//! refusal searches nothing.
//!
//! The script returns an abridged log: one entry for all slots up to one that it looked at, on
//! which `step` decides as on the whole. Instead of inserting a slot, additional units join the
//! next one, in memory too. Rejected: a sorted set, which takes 100 bytes a call and cannot skip
//! many expired calls at once; blocks of entries in the state, which grow as well.

use super::{SlidingLog, SlidingLogState};
use crate::{
    algorithm::{
        codec::{Codec, damaged, put_number, take_number, take_tag},
        scripted::{
            ScriptTuple, Scripted, count, fitting, in_micros, instant, micros, natural, only,
        },
    },
    error::Error,
    time::Timestamp,
};

/// The number of entries, and for each the nanoseconds since the one before and its units.
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

impl Scripted for SlidingLog {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        let period = micros(self.quota.period_nanos(), self)?;
        let limit = fitting(self.limit().get().into(), self)?;
        parts.push(vec![Self::KIND, period, limit]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<SlidingLogState> {
        let Some((&Self::KIND, entries)) = only(parts)?.split_first() else {
            return None;
        };
        let mut log = SlidingLogState::new();
        for entry in entries.chunks(2) {
            let &[at, units] = entry else {
                return None;
            };
            let (at, units) = (instant(at)?, natural(units)?);
            if units == 0 || log.newest().is_some_and(|newest| at < newest) {
                return None;
            }
            log.units_from(0).checked_add(units)?;
            log.push(at, units);
        }
        (!log.is_empty()).then_some(log)
    }

    fn state_parts(&self, log: &SlidingLogState, parts: &mut Vec<Option<ScriptTuple>>) {
        let entries = log
            .entries()
            .flat_map(|(at, units)| [in_micros(at), count(units)]);
        let part = [Self::KIND].into_iter().chain(entries);
        parts.push(Some(part.collect()));
    }
}
