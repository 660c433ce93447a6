//! The meter of a sliding log.

use std::{collections::VecDeque, time::Duration};

use tollgate::{Quota, Timestamp};

use super::Meter;

/// Remembers each admission of the last period.
pub(super) struct LogMeter {
    limit: u64,
    period: Duration,
    admitted: VecDeque<(Timestamp, u64)>,
    /// The sum of the units in the list.
    units: u64,
}

impl LogMeter {
    pub(super) fn new(quota: Quota) -> Self {
        Self {
            limit: quota.amount(),
            period: quota.period(),
            admitted: VecDeque::new(),
            units: 0,
        }
    }
}

impl Meter for LogMeter {
    fn excess(&self, at: Timestamp, units: u64) -> u64 {
        let is_old = |(then, _): &&(Timestamp, u64)| at.saturating_since(*then) >= self.period;
        let old: u64 = self
            .admitted
            .iter()
            .take_while(is_old)
            .map(|(_, units)| units)
            .sum();
        (self.units - old + units).saturating_sub(self.limit)
    }

    fn add(&mut self, at: Timestamp, units: u64) {
        while let Some((then, old)) = self.admitted.front()
            && at.saturating_since(*then) >= self.period
        {
            self.units -= old;
            self.admitted.pop_front();
        }
        self.admitted.push_back((at, units));
        self.units += units;
    }
}
