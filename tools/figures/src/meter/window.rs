//! The meter of fixed and sliding windows.

use std::collections::BTreeMap;

use tollgate::{Quota, Timestamp};

use super::Meter;

/// Counts each slice of the calendar. The oldest one counts by the part that lies in the window.
pub(super) struct WindowMeter {
    limit: u128,
    /// In nanoseconds.
    slice: u64,
    /// The number of slices before the current one that count, the last of them in part.
    older: u64,
    units: BTreeMap<u64, u128>,
}

impl WindowMeter {
    /// A fixed window has 0 slices: it is one whole, and nothing before it counts.
    pub(super) fn new(quota: Quota, slices: u64) -> Self {
        Self {
            limit: quota.amount().into(),
            slice: quota.period_nanos() / slices.max(1),
            older: slices,
            units: BTreeMap::new(),
        }
    }
}

impl Meter for WindowMeter {
    fn excess(&self, at: Timestamp, units: u64) -> u64 {
        let (now, length) = (at.as_nanos() / self.slice, u128::from(self.slice));
        let into = u128::from(at.as_nanos() % self.slice);
        let mut weighted = u128::from(units) * length;
        for (slice, units) in &self.units {
            let weight = match now - slice {
                0 => length,
                age if age < self.older => length,
                age if age == self.older => length - into,
                _ => 0,
            };
            weighted += units * weight;
        }
        let over = weighted.saturating_sub(self.limit * length);
        over.div_ceil(length) as u64
    }

    fn add(&mut self, at: Timestamp, units: u64) {
        let now = at.as_nanos() / self.slice;
        self.units.retain(|slice, _| now - slice <= self.older);
        *self.units.entry(now).or_default() += u128::from(units);
    }
}
