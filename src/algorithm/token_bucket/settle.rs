//! Corrections of earlier charges.
//!
//! A bucket is full again at its theoretical arrival time, and each charge moves that by what its cost takes to
//! refill: the charge lies on the time axis between where it found that time and where it left it. Refill restores it from
//! its beginning on, so only the part behind the last call can be given back, as time. Giving back moves the charges behind it
//! forward, so a key keeps the sum of what was given back, and each charge notes the sum that it found.

use super::{BucketLevel, TokenBucket, TokenBucketState};
use crate::{clock::Timestamp, decision::Charge};

/// Time that was given back to a key while other charges may have lain behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct GivenBack {
    /// The sum, in nanoseconds rounded up.
    nanos: u64,
    /// When the last charge that was moved has passed, wherever it lies now.
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

    /// What is still to be known of it at `at`: nothing, once all charges have passed.
    #[inline]
    pub(super) fn at(self, at: Timestamp, is_full: bool) -> Self {
        if is_full && self.until() <= at {
            Self::NONE
        } else {
            self
        }
    }
}

/// What a correction makes of a bucket.
struct Corrected {
    level: BucketLevel,
    /// By how many units of the rate it is fuller than before; below zero where more was taken.
    gained: i128,
}

impl TokenBucket {
    /// What a correction leaves of a bucket whose charges have no position; `None` is what it was.
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

    /// What a correction leaves of a key; `None` is what it was.
    pub(super) fn settled(
        &self,
        state: Option<&TokenBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> Option<TokenBucketState> {
        let mut given_back = state.map_or(GivenBack::NONE, |state| state.given_back);
        let known = self.remembered(state.map(TokenBucketState::level), now);
        let moves = known.filter(|known| !self.is_last(known, given_back, charge));
        let end = moves.map(|_| self.end(charge, given_back));
        let corrected = self.correct(known, charge, now, actual, end)?;
        if let Some(before) = moves.filter(|_| corrected.gained > 0) {
            let nanos = given_back.nanos();
            given_back = GivenBack {
                nanos: nanos.saturating_add(self.nanos_up(corrected.gained)),
                until: given_back.until().max(self.full_at_latest(before)),
            };
        }
        let level = corrected.level;
        Some(TokenBucketState { level, given_back })
    }

    /// Corrects a charge that ends at `end` on the time axis, in nanoseconds, or later; `None` is behind all others.
    fn correct(
        &self,
        known: Option<&BucketLevel>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
        end: Option<i128>,
    ) -> Option<Corrected> {
        let change = i128::from(charge.cost) - i128::from(actual);
        let change = change.saturating_mul(i128::from(self.rate.per_token));
        let untouched = known.filter(|known| {
            let written_at = known.written_at;
            written_at == charge.at && now < self.at_rest_from(known)
        });
        if change > 0 {
            return self.give_back(known?, now, change, end.filter(|_| untouched.is_none()));
        }
        let (level, at) = match (untouched, known) {
            // Refill is still to come, and will be cut as it always is.
            (Some(known), _) => (known.credit.units(self.rate.per_nano), charge.at),
            (None, Some(known)) => {
                let fill = self.filled(known, now);
                (fill.level, fill.at)
            }
            (None, None) => (self.initial_fill(now).level, now),
        };
        (change < 0).then(|| Corrected {
            level: self.state(level.saturating_add(change), at),
            gained: change,
        })
    }

    /// Gives back so many units of a charge that ends at `end`.
    ///
    /// No call came after the last write. Until then refill has restored what lay before it.
    fn give_back(
        &self,
        known: &BucketLevel,
        now: Timestamp,
        units: i128,
        end: Option<i128>,
    ) -> Option<Corrected> {
        let (full, at) = (self.price(self.burst.get()), known.written_at);
        let level = known.credit.units(self.rate.per_nano);
        // To what is above the burst, no refill has come.
        let is_overfull = level > full;
        let (units, most) = match end {
            Some(end) if !is_overfull => {
                let ahead = end.saturating_sub(at.as_nanos().into());
                let ahead = ahead.saturating_mul(self.rate.per_nano.into());
                (units.min(ahead), full)
            }
            _ => (units, full.max(self.price(self.initial))),
        };
        let is_full = !is_overfull && self.filled(known, now).level >= full;
        let gained = level.saturating_add(units).min(most) - level;
        (!is_full && gained > 0).then(|| Corrected {
            level: self.state(level + gained, at),
            gained,
        })
    }

    /// Where a charge ends on the time axis, in nanoseconds rounded down: it may have been moved by all that was given back
    /// since.
    fn end(&self, charge: &Charge, given_back: GivenBack) -> i128 {
        let end = charge.position.map_or(0, |position| {
            let since = given_back.nanos().saturating_sub(position.given_back());
            position.end().saturating_sub(since)
        });
        i128::from(end).max(self.least_end(charge))
    }

    /// Where a charge ends on the time axis at least, in nanoseconds: as if the bucket had been full.
    fn least_end(&self, charge: &Charge) -> i128 {
        // At most 2^64 and 2^103.
        i128::from(charge.at.as_nanos()) + self.price(charge.cost) / i128::from(self.rate.per_nano)
    }

    /// Whether no charge lies behind this one on the time axis.
    fn is_last(&self, before: &BucketLevel, given_back: GivenBack, charge: &Charge) -> bool {
        let per_nano = i128::from(self.rate.per_nano);
        charge.position.is_some_and(|position| {
            // Each charge behind it takes the time of a unit at least; a script rounds by less than a microsecond.
            let next = i128::from(position.end()) * per_nano + self.price(1).min(1000 * per_nano);
            let level = before.credit.units(self.rate.per_nano);
            let lacking = self.price(self.burst.get()).saturating_sub(level);
            let full_at = i128::from(before.written_at.as_nanos()) * per_nano;
            position.given_back() == given_back.nanos() && full_at.saturating_add(lacking) < next
        })
    }

    /// When a bucket that holds `level` at `at` is full, in nanoseconds rounded down.
    pub(super) fn full_from(&self, level: i128, at: Timestamp) -> u64 {
        let lacking = self.price(self.burst.get()).saturating_sub(level);
        let nanos = u64::try_from(lacking.max(0) / i128::from(self.rate.per_nano));
        at.as_nanos().saturating_add(nanos.unwrap_or(u64::MAX))
    }

    /// The same of a bucket that is remembered, rounded up.
    fn full_at_latest(&self, known: &BucketLevel) -> Timestamp {
        let level = known.credit.units(self.rate.per_nano);
        let lacking = self.price(self.burst.get()).saturating_sub(level);
        let nanos = known.written_at.as_nanos();
        Timestamp::from_nanos(nanos.saturating_add(self.nanos_up(lacking)))
    }

    /// So many units of the rate in nanoseconds, rounded up.
    fn nanos_up(&self, units: i128) -> u64 {
        u64::try_from(self.rate.wait(units)).unwrap_or(u64::MAX)
    }
}
