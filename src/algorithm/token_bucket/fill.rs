//! What a bucket holds, how that changes, and how long until it has.

use std::time::Duration;

use super::{BucketLevel, BucketMeter, TokenBucket};
use crate::{
    algorithm::{
        credit::{Credit, div_floor, duration},
        mark::Mark,
    },
    clock::Timestamp,
};

/// The level of a bucket, at an instant that is never before the last write.
pub(in crate::algorithm) struct Fill {
    /// In units of the rate; below zero in debt.
    pub(in crate::algorithm) level: i128,
    pub(super) at: Timestamp,
    /// For how many nanoseconds the key has been as full as it gets, if it is known, or will be once this is
    /// written; 0 where nobody asks, as the bucket starts at rest.
    pub(in crate::algorithm) full_for: Option<u64>,
}

/// A wait that counts from `at`, counted from `now`, which is not later.
#[inline]
pub(in crate::algorithm) fn since(
    now: Timestamp,
    at: Timestamp,
    wait: Option<u128>,
) -> Option<Duration> {
    let stalled = u128::from(at.as_nanos() - now.as_nanos());
    wait.map(|wait| duration(stalled + wait))
}

impl TokenBucket {
    /// What `tokens` cost, in units of the rate.
    #[inline]
    pub(super) fn price(&self, tokens: u64) -> i128 {
        self.rate.price(tokens)
    }

    /// A bucket that is new at `at`.
    #[inline]
    pub(in crate::algorithm) fn initial_fill(&self, at: Timestamp) -> Fill {
        Fill {
            level: self.price(self.initial),
            at,
            full_for: None,
        }
    }

    /// What is in the bucket.
    #[inline]
    pub(super) fn fill(&self, state: Option<&BucketLevel>, now: Timestamp) -> Fill {
        match self.remembered(state, now) {
            Some(state) => self.filled(state, now),
            None => self.initial_fill(now),
        }
    }

    /// The state, if it says something: a key that is granted its initial fill again is like a new one.
    #[inline]
    pub(super) fn remembered<'a>(
        &self,
        state: Option<&'a BucketLevel>,
        now: Timestamp,
    ) -> Option<&'a BucketLevel> {
        state.filter(|state| self.starts_at_rest() || now < self.at_rest_from(state))
    }

    /// What is in a bucket that is remembered, however long it has been full.
    #[inline]
    pub(in crate::algorithm) fn filled(&self, state: &BucketLevel, now: Timestamp) -> Fill {
        let at = now.max(state.written_at);
        let (level, full) = (
            state.credit.units(self.rate.per_nano),
            self.price(self.burst.get()),
        );
        let elapsed = at.as_nanos() - state.written_at.as_nanos();
        let full_for = if self.starts_at_rest() {
            0
        } else {
            let wait = u64::try_from(self.wait(level, full)).unwrap_or(u64::MAX);
            elapsed.saturating_sub(wait)
        };
        let level = if level > full {
            level.min(full.max(self.price(self.initial)))
        } else {
            let refill = i128::from(elapsed) * i128::from(self.rate.per_nano);
            level.saturating_add(refill).min(full)
        };
        Fill {
            level,
            at,
            full_for: Some(full_for),
        }
    }

    /// What the bucket is counted with in words, where it can be.
    #[inline]
    pub(in crate::algorithm) fn in_words(&self) -> Option<&BucketMeter> {
        self.meter.as_ref()
    }

    /// The same, and what the bucket holds, in thirds of a nanosecond: where the state can be counted in words too, and
    /// `now` is not before the last write.
    ///
    /// The same as [`filled`](Self::filled), also what is lost of a credit: of one on a finer grid, all that is less than a unit.
    #[inline]
    pub(in crate::algorithm) fn metered(
        &self,
        state: &BucketLevel,
        now: Timestamp,
    ) -> Option<(&BucketMeter, i64)> {
        let meter = self.meter.as_ref()?;
        let elapsed = now.as_nanos().checked_sub(state.written_at.as_nanos())?;
        let credit = if self.rate.per_nano == 1 {
            state.credit.whole_in_thirds()
        } else {
            state.credit.thirds()
        };
        Some((meter, meter.level(credit?, elapsed)?))
    }

    /// When the bucket is full if nobody comes, where rule and state can be counted in words.
    #[inline]
    fn full_at(&self, state: &BucketLevel) -> Option<Timestamp> {
        let written_at = state.written_at;
        let (meter, level) = self.metered(state, written_at)?;
        let wait = ((meter.full() - level) as u64).div_ceil(Mark::PER_NANO);
        Some(Timestamp::from_nanos(
            written_at.as_nanos().saturating_add(wait),
        ))
    }

    /// From when on the bucket cannot be told from a new one.
    #[inline]
    pub(in crate::algorithm) fn at_rest_from(&self, state: &BucketLevel) -> Timestamp {
        self.full_at(state)
            .unwrap_or_else(|| self.at_rest_from_wide(state))
    }

    /// The same for any rule and any state.
    fn at_rest_from_wide(&self, state: &BucketLevel) -> Timestamp {
        let level = state.credit.units(self.rate.per_nano);
        let mut wait = self.wait(level, self.price(self.burst.get()));
        if !self.starts_at_rest() {
            wait += u128::from(self.keep);
        }
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
    }

    /// The state of a bucket that holds `level` at `at`.
    #[inline]
    pub(in crate::algorithm) fn state(&self, level: i128, at: Timestamp) -> BucketLevel {
        if let Some(thirds) = self.thirds(level) {
            return BucketLevel::of_thirds(thirds, at);
        }
        BucketLevel {
            written_at: at,
            credit: Credit::from_units(level, self.rate.per_nano),
        }
    }

    /// A level in thirds of a nanosecond, where it can be counted in words: by those it is divided faster.
    #[inline]
    fn thirds(&self, level: i128) -> Option<i64> {
        let scale = self.meter.map(|_| Mark::PER_NANO / self.rate.per_nano)?;
        i64::try_from(level).ok()?.checked_mul(scale as i64)
    }

    /// What `cost` leaves of a level that holds it.
    #[inline]
    pub(in crate::algorithm) fn pay(&self, level: i128, cost: u64) -> Option<i128> {
        self.holds(level, cost).then(|| level - self.price(cost))
    }

    /// Whether the bucket could pay `cost`.
    #[inline]
    pub(in crate::algorithm) fn holds(&self, level: i128, cost: u64) -> bool {
        cost <= self.burst.get() && level >= self.price(cost)
    }

    /// The greatest cost that the bucket could pay.
    #[inline]
    pub(in crate::algorithm) fn tokens(&self, level: i128) -> u64 {
        if self.holds(level, self.burst.get()) {
            return self.burst.get();
        }
        let held = u128::try_from(level).unwrap_or(0);
        div_floor(held, self.rate.per_token) as u64
    }

    /// Nanoseconds of filling until the bucket can pay `cost`; `None` is never.
    #[inline]
    pub(in crate::algorithm) fn until(&self, level: i128, cost: u64) -> Option<u128> {
        (cost <= self.burst.get()).then(|| self.wait(level, self.price(cost)))
    }

    /// Nanoseconds of filling until the bucket cannot be told from a new one; `None` where it cannot now.
    #[inline]
    pub(in crate::algorithm) fn until_rest(
        &self,
        level: i128,
        full_for: Option<u64>,
    ) -> Option<u128> {
        let wait = self.wait(level, self.price(self.burst.get()));
        if self.starts_at_rest() {
            (wait > 0).then_some(wait)
        } else {
            full_for.map(|nanos| wait + u128::from(self.keep.saturating_sub(nanos)))
        }
    }

    /// Nanoseconds until a bucket at `level` is at `target`.
    #[inline]
    pub(super) fn wait(&self, level: i128, target: i128) -> u128 {
        self.rate.wait(target.saturating_sub(level))
    }
}

impl BucketLevel {
    /// A bucket that holds what comes in so many thirds of a nanosecond.
    #[inline]
    pub(in crate::algorithm) fn of_thirds(thirds: i64, at: Timestamp) -> Self {
        Self {
            written_at: at,
            credit: Credit::from_thirds(thirds),
        }
    }
}
