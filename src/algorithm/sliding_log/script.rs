//! A log in the numbers of a script.

use super::{SlidingLog, SlidingLogState};
use crate::{
    algorithm::scripted::{Part, Scripted, count, fitting, in_micros, instant, micros, natural},
    error::Error,
};

impl Scripted for SlidingLog {
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let period = micros(self.quota.period_nanos(), self)?;
        let limit = fitting(self.limit().get().into(), self)?;
        parts.push(vec![Self::KIND, period, limit]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<SlidingLogState> {
        let Some([Some(part)]) = parts.first_chunk() else {
            return None;
        };
        let Some((&Self::KIND, entries)) = part.split_first() else {
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

    fn state_parts(&self, log: &SlidingLogState, parts: &mut Vec<Option<Part>>) {
        let entries = log
            .entries()
            .flat_map(|(at, units)| [in_micros(at), count(units)]);
        let part = [Self::KIND].into_iter().chain(entries);
        parts.push(Some(part.collect()));
    }
}
