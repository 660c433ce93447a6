//! Time that was given back to a key, and the correction of its charges.

use super::TokenBucketState;
use crate::{
    algorithm::{
        bucket::{Bucket, BucketLevel},
        ticks::{PARTS_PER_NANO, Ticks},
    },
    decision::{Charge, Position},
    time::Timestamp,
};

/// Time that was given back to a key while other charges may have been behind it.
///
/// Giving back moves the charges behind the corrected one forward on the time axis of the bucket. So a key keeps the sum of what was given
/// back, and each charge notes the sum that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct GivenBack {
    /// The sum, in nanoseconds rounded up.
    nanos: u64,
    /// The latest instant at which the last charge that was moved can pass.
    until: Timestamp,
}

impl GivenBack {
    pub(super) const NONE: Self = Self::new(0, Timestamp::from_nanos(0));

    pub(super) const fn new(nanos: u64, until: Timestamp) -> Self {
        Self { nanos, until }
    }

    #[inline]
    pub(super) fn nanos(self) -> u64 {
        self.nanos
    }

    #[inline]
    pub(super) fn until(self) -> Timestamp {
        self.until
    }

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Returns the part that must be remembered at `at`: none after all charges have passed.
    #[inline]
    pub(super) fn at(self, at: Timestamp, is_full: bool) -> Self {
        if is_full && self.until() <= at {
            Self::NONE
        } else {
            self
        }
    }
}

impl Bucket<'_, i128> {
    /// Returns the corrected state of a key; `None` if nothing changes.
    pub(super) fn settled(
        &self,
        state: Option<&TokenBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> Option<TokenBucketState> {
        let mut given_back = state.map_or(GivenBack::NONE, |state| state.given_back);
        let known = self.remembered(state.map(|state| &state.level), now);
        let moves = known.filter(|known| !self.is_last(known, given_back, charge));
        let is_if_last = charge.position.is_some_and(Position::is_if_last);
        if is_if_last && moves.is_some() && actual < charge.cost {
            return None;
        }
        let end = moves.map(|_| self.end(charge, given_back));
        let corrected = self.correct(known, charge, now, actual, end)?;
        if let Some(before) = moves.filter(|_| corrected.gained > 0) {
            given_back = GivenBack::new(
                given_back
                    .nanos()
                    .saturating_add(nanos_up(corrected.gained)),
                given_back.until().max(self.full_at_latest(before)),
            );
        }
        let level = corrected.level;
        Some(TokenBucketState { level, given_back })
    }

    /// Returns the end of a charge on the time axis, in nanoseconds rounded down, moved by all that was given back since.
    fn end(&self, charge: &Charge, given_back: GivenBack) -> i128 {
        let end = charge.position.map_or(0, |position| {
            let since = given_back.nanos().saturating_sub(position.given_back());
            position.end().saturating_sub(since)
        });
        i128::from(end).max(self.least_end(charge))
    }

    /// Returns `true` if no charge lies behind this one on the time axis.
    fn is_last(&self, before: &BucketLevel, given_back: GivenBack, charge: &Charge) -> bool {
        charge.position.is_some_and(|position| {
            // Each charge behind it takes the time of a unit at least; a script rounds by less than a microsecond.
            let least = self.units.price_in_parts(1).min(1000 * PARTS_PER_NANO);
            let next = i128::from(position.end()) * PARTS_PER_NANO + least;
            let full_at = i128::from(before.written_at.as_nanos()) * PARTS_PER_NANO;
            position.given_back() == given_back.nanos()
                && full_at.saturating_add(self.lacking(before.level)) < next
        })
    }

    /// Returns what a bucket lacks, in parts of a tick; below zero if it is overfull.
    fn lacking(&self, level: Ticks) -> i128 {
        self.full_in_parts() - level.parts()
    }

    /// Returns when a bucket with a state is full, rounded up.
    fn full_at_latest(&self, known: &BucketLevel) -> Timestamp {
        let nanos = known.written_at.as_nanos();
        Timestamp::from_nanos(nanos.saturating_add(nanos_up(self.lacking(known.level))))
    }
}

/// Returns parts of a tick in nanoseconds, rounded up; 0 if they are below zero.
fn nanos_up(parts: i128) -> u64 {
    let nanos = (parts.max(0) as u128).div_ceil(PARTS_PER_NANO as u128);
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
