//! Corrections of earlier charges to a bucket.
//!
//! A bucket is full again at its theoretical arrival time, and each charge moves that by the time that its cost takes to
//! refill. So a charge lies on the time axis between the arrival times before and after it. Refill restores it from its
//! beginning on, and only the part behind the last call can be given back, as time.

use super::fill::{Bucket, BucketLevel};
use crate::{
    algorithm::ticks::{PARTS_PER_NANO, Ticks},
    decision::Charge,
    time::Timestamp,
};

impl Bucket<'_, i128> {
    /// Returns the corrected bucket of a charge that has no position; `None` if nothing changes.
    ///
    /// Without a state the bucket is like new.
    pub(in crate::algorithm) fn corrected(
        &self,
        known: Option<&BucketLevel>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> Option<BucketLevel> {
        let end = self.least_end(charge);
        let corrected = self.correct(known, charge, now, actual, Some(end));
        corrected.map(|corrected| corrected.level)
    }

    /// Corrects a charge that ends at `end` on the time axis, in nanoseconds, or later; `None` for the last charge.
    pub(in crate::algorithm) fn correct(
        &self,
        known: Option<&BucketLevel>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
        end: Option<i128>,
    ) -> Option<Corrected> {
        let price = |cost| self.units.price_in_parts(cost);
        let change = price(charge.cost) - price(actual);
        let untouched = known.filter(|known| {
            let written_at = known.written_at;
            written_at == charge.at && now < self.at_rest_from(known)
        });
        if change > 0 {
            return self.give_back(known?, now, change, end.filter(|_| untouched.is_none()));
        }
        let (level, written_at) = match (untouched, known) {
            // Refill is still to come, and will be cut as it always is.
            (Some(known), _) => (known.level, charge.at),
            (None, Some(known)) => {
                let fill = self.filled(known, now);
                (self.units.span(fill.level), fill.at)
            }
            (None, None) => (self.units.span(self.initial_fill(now).level), now),
        };
        (change < 0).then(|| Corrected {
            level: BucketLevel {
                written_at,
                level: self.units.debt_cut(level.parts().saturating_add(change)),
            },
            gained: change,
        })
    }

    /// Gives back `parts` parts of a tick of a charge that ends at `end`, at most the part of the charge behind the last write.
    ///
    /// Refill has restored what lies before the last write, and no call came after it.
    fn give_back(
        &self,
        known: &BucketLevel,
        now: Timestamp,
        parts: i128,
        end: Option<i128>,
    ) -> Option<Corrected> {
        let (full, written_at) = (self.full_in_parts(), known.written_at);
        let level = known.level.parts();
        // No refill was added to a level above the burst.
        let is_overfull = level > full;
        let (parts, most) = match end {
            Some(end) if !is_overfull => {
                let ahead = end.saturating_sub(written_at.as_nanos().into());
                (parts.min(ahead.saturating_mul(PARTS_PER_NANO)), full)
            }
            _ => (
                parts,
                full.max(self.units.price_in_parts(self.rule.initial)),
            ),
        };
        let is_full = !is_overfull && self.filled(known, now).level >= self.units.full;
        let gained = level.saturating_add(parts).min(most) - level;
        (!is_full && gained > 0).then(|| Corrected {
            level: BucketLevel {
                written_at,
                level: Ticks::from_parts(level + gained),
            },
            gained,
        })
    }

    /// Returns the earliest end of a charge on the time axis, in nanoseconds: its end if the bucket was full.
    pub(in crate::algorithm) fn least_end(&self, charge: &Charge) -> i128 {
        let price = self.units.price_in_parts(charge.cost);
        i128::from(charge.at.as_nanos()) + price / PARTS_PER_NANO
    }
}

/// A bucket after a correction.
pub(in crate::algorithm) struct Corrected {
    pub(in crate::algorithm) level: BucketLevel,
    /// The level after the correction less the one before, in parts of a tick; below zero if more was taken.
    pub(in crate::algorithm) gained: i128,
}
