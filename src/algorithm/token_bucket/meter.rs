//! The common token bucket, counted in words of 64 bits.
//!
//! Decides as `step.rs` does, in a fraction of its time; the oracle of
//! `tests/token_bucket.rs` meets both.

use std::num::NonZeroU64;

use crate::{
    algorithm::{
        mark::{Mark, Moment},
        meter::Metering,
        rate::Rate,
        shape::Shape,
    },
    clock::Timestamp,
    decision::{Cost, Decision, Filling, Verdict},
    quota::Quota,
};

/// A bucket that is counted in words of 64 bits: its interval is a whole number of thirds of a
/// nanosecond, it starts full, and fills within two years.
///
/// A [`TokenBucket`](super::TokenBucket) is one where it can be. Its mark is when the bucket was last empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BucketMeter {
    quota: Quota,
    burst: NonZeroU64,
    /// What a token takes to come, in thirds of a nanosecond; above zero.
    interval: u64,
    /// What all of them take.
    full: u64,
}

impl Metering for BucketMeter {
    const AHEAD: u64 = 0;

    #[inline]
    fn shape(&self) -> Shape {
        Shape::bucket(self.full)
    }

    #[inline(always)]
    fn reads(&self, shape: Shape) -> bool {
        shape.is_bucket()
    }

    #[inline(always)]
    fn keeps_to(&self, shape: Shape) -> bool {
        self.full <= shape.lasts()
    }

    // Always: most callers look at a part of the decision.
    #[inline(always)]
    fn step_mark(&self, mark: Mark, now: Moment, cost: Cost) -> (Option<Mark>, Decision) {
        let level = now.mark().since(mark).min(self.full());
        let (level, decision) = self.decide(level, now.at(), 0, 0, cost);
        (level.map(|level| now.mark().before(level)), decision)
    }

    #[inline]
    fn step_debt(&self, debt: Option<Mark>, now: Moment, cost: Cost) -> (Option<Mark>, Decision) {
        self.step_mark(debt.unwrap_or(self.floor(now)), now, cost)
    }

    #[inline]
    fn floor(&self, now: Moment) -> Mark {
        now.mark().before(self.full())
    }
}

impl BucketMeter {
    /// The largest debt that is counted in words, in thirds of a nanosecond: 48 years.
    const DEEPEST: i64 = 1 << 62;

    /// A meter whose tokens come at `rate`, which is that of `quota`, if it can be counted in words.
    pub(super) const fn new(quota: Quota, burst: NonZeroU64, rate: Rate) -> Option<Self> {
        match rate.in_thirds(burst) {
            Some((interval, full)) => Some(Self {
                quota,
                burst,
                interval: interval.get(),
                full,
            }),
            None => None,
        }
    }

    /// The level that holds `thirds` of a nanosecond's filling, if it is no fuller than the bucket.
    #[inline]
    pub(super) fn level(&self, credit: i64, elapsed_nanos: u64) -> Option<i64> {
        let full = self.full as i64;
        if !(-Self::DEEPEST..=full).contains(&credit) {
            return None;
        }
        let elapsed = i64::try_from(elapsed_nanos.checked_mul(Mark::PER_NANO)?).ok()?;
        Some(credit.saturating_add(elapsed).min(full))
    }

    #[inline]
    pub(in crate::algorithm) const fn full(&self) -> i64 {
        self.full as i64
    }

    /// What a token takes to come, in thirds of a nanosecond.
    #[inline]
    pub(in crate::algorithm) const fn interval(&self) -> u64 {
        self.interval
    }

    /// What `cost` leaves of `level`, if that holds it.
    #[inline]
    pub(in crate::algorithm) const fn pay(&self, level: i64, cost: u64) -> Option<i64> {
        if cost > self.burst.get() {
            return None;
        }
        // At most that of a full bucket.
        let rest = level - (cost * self.interval) as i64;
        if rest < 0 { None } else { Some(rest) }
    }

    /// The greatest cost that `level` holds.
    #[inline]
    pub(in crate::algorithm) fn tokens(&self, level: i64) -> u64 {
        level.max(0) as u64 / self.interval
    }

    /// Nanoseconds of filling from `level` until the bucket can pay `cost`, which it cannot now; `None` is never.
    #[inline]
    pub(in crate::algorithm) fn until(&self, level: i64, cost: u64) -> Option<u64> {
        let lacking = || (cost * self.interval).wrapping_sub(level as u64);
        (cost <= self.burst.get()).then(|| lacking().div_ceil(Mark::PER_NANO))
    }

    /// What `cost` leaves of `level`, if that holds it, and the decision at `now`, which lies `stalled`
    /// nanoseconds before the last write, of a key to which so many nanoseconds were given back.
    #[inline(always)]
    pub(in crate::algorithm) fn decide(
        &self,
        level: i64,
        now: Timestamp,
        stalled: u64,
        given_back: u64,
        cost: Cost,
    ) -> (Option<i64>, Decision) {
        let answer = |verdict, level| {
            let filling = Filling {
                level,
                interval: self.interval,
                full: self.full,
                stalled,
                given_back,
            };
            let decision = Decision::new(verdict, now, cost.get())
                .with_limit(self.burst, self.quota)
                .with_filling(filling);
            (filling, decision)
        };
        if cost.get() > self.burst.get() {
            return (None, answer(Verdict::Refuse, level).1);
        }
        // At most that of a full bucket.
        let price = cost.get() * self.interval;
        let rest = level - price as i64;
        if rest >= 0 {
            return (Some(rest), answer(Verdict::Allow, rest).1);
        }
        let (filling, decision) = answer(Verdict::Refuse, level);
        (None, decision.with_retry_after(Some(filling.wait(price))))
    }
}
