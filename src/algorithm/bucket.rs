//! The arithmetic of one bucket, which token buckets, cascades and three-colour markers share.
//!
//! # Corrections of earlier charges
//!
//! A bucket is full again at its theoretical arrival time, and each charge moves that by the time
//! that its cost takes to refill. So a charge lies on the time axis between the arrival times
//! before and after it. Refill restores it from its beginning on, and only the part behind the last
//! call can be refunded, as time.
//!
//! A token bucket's charge is corrected where it happened while no other call has written and the
//! bucket has not filled up: exactly as if the call had cost that much from the start. With calls
//! in between, only the part behind the last of them is refunded.
//!
//! The proof: let the charge end at e on the axis and the last call have come at t, and let the
//! calls after the charge have taken S in all. A meter of the actual costs is full at t + S at the
//! latest without the charge, and at e + S with it, so e − t may be refunded. An earlier refund
//! moves the charges behind it forward, so a key keeps the sum that was refunded while others were
//! open. Cascades, markers and several rules on one key have no room for positions, and use the
//! last bound alone.
//!
//! # Tokens kept free
//!
//! The tokens that a rule keeps free are a floor below which no call of it takes the level. Only
//! admission knows the floor: what a call may pay, and the numbers of its decision, are counted
//! from there. Refill, the cut to the burst, corrections and expiry are those of the whole bucket,
//! so a state means the same to rules with other floors.
//!
//! # Grants by an operator
//!
//! A grant is a settlement of a charge that is made up (`Algorithm::grant_slack`), so
//! stores need no function for grants. The charge exceeds the grant by a minute's tokens, because a
//! bucket refunds no more of a charge than what refill cannot have restored since.

use std::time::Duration;

use super::{
    packed::{PackedState, StoreTime},
    ticks::{PER_NANO, after_ticks, cut, longer, nanos_up},
    token_bucket::TokenBucket,
};
use crate::{
    decision::{Charge, DeferredState},
    time::Timestamp,
};

/// The level of a bucket at its last write, as the time that it has been filling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketLevel {
    pub(super) written_at: Timestamp,
    /// In ticks, at most 2⁶² either way.
    pub(super) level: i64,
}

impl BucketLevel {
    /// Unpacks the instant at which a bucket was last empty. The level is not cut to the burst of a
    /// rule: others may have a larger one.
    #[inline]
    pub(super) fn unpack(packed: PackedState, now: StoreTime) -> Self {
        Self {
            written_at: now.at(),
            level: now.packed().since(packed),
        }
    }
}

/// The level of a bucket at an instant that is never before the last write.
#[derive(Clone, Copy)]
pub(super) struct Fill {
    /// In ticks; below zero in debt.
    pub(super) level: i64,
    pub(super) at: Timestamp,
    /// The nanoseconds for which the bucket has been full; `None` for a new key. 0 if the bucket
    /// starts full: then the number does not matter.
    pub(super) full_for: Option<u64>,
}

impl Fill {
    /// Creates the fill of a plain bucket with a state.
    #[inline]
    pub(super) fn of_plain(level: i64, at: Timestamp) -> Self {
        let full_for = Some(0);
        Self {
            level,
            at,
            full_for,
        }
    }
}

/// A rule as one bucket.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'a> {
    pub(super) rule: &'a TokenBucket,
    /// `true` if the bucket of a new key is full, as that of an idle key is.
    pub(super) starts_full: bool,
}

impl TokenBucket {
    #[inline]
    pub(super) fn bucket(&self) -> Bucket<'_> {
        Bucket {
            rule: self,
            starts_full: self.starts_full(),
        }
    }

    /// Returns the bucket of a rule that starts full; the compiler then leaves out what others
    /// need.
    #[inline]
    pub(super) fn plain(&self) -> Bucket<'_> {
        debug_assert!(self.starts_full());
        Bucket {
            rule: self,
            starts_full: true,
        }
    }

    /// Returns when an idle bucket can be forgotten, because a new key gets the same decisions.
    #[inline]
    pub(super) fn at_rest_from(&self, state: &BucketLevel) -> Timestamp {
        self.bucket().at_rest_from(state)
    }
}

impl Bucket<'_> {
    /// Returns the level of a full bucket.
    #[inline]
    pub(super) fn full(&self) -> i64 {
        self.rule.rate.full
    }

    /// Returns the fill of a bucket that is new at `at`.
    #[inline]
    pub(super) fn initial_fill(&self, at: Timestamp) -> Fill {
        Fill {
            level: self.rule.rate.price_of(self.rule.initial),
            at,
            full_for: None,
        }
    }

    /// Returns the fill of a bucket with a state, even if the state has expired.
    #[inline]
    pub(super) fn filled(&self, state: &BucketLevel, now: Timestamp) -> Fill {
        let at = now.max(state.written_at);
        let elapsed = at.nanos_since(state.written_at);
        let (full, written) = (self.full(), state.level);
        let level = longer(written, elapsed).min(full);
        if self.starts_full {
            let full_for = Some(0);
            return Fill {
                level,
                at,
                full_for,
            };
        }
        let wait = u64::try_from(self.until_full(written)).unwrap_or(u64::MAX);
        Fill {
            // The excess above the burst stays until it is spent, unless the rule has changed.
            level: match written > full {
                true => written.min(full.max(self.rule.rate.price_of(self.rule.initial))),
                false => level,
            },
            at,
            full_for: Some(elapsed.saturating_sub(wait)),
        }
    }

    #[inline]
    pub(super) fn at_rest_from(&self, state: &BucketLevel) -> Timestamp {
        let mut wait = self.until_full(state.level);
        if !self.starts_full {
            wait += u128::from(self.rule.keep);
        }
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
    }

    /// Returns the level after `cost` is paid, if the bucket holds that much beside what is
    /// kept free.
    #[inline]
    pub(super) fn pay(&self, level: i64, cost: u64) -> Option<i64> {
        if cost > self.rule.most.get() {
            return None;
        }
        let rest = level - self.rule.rate.price_of(cost);
        (rest >= self.rule.floor).then_some(rest)
    }

    /// Returns the greatest cost that the bucket can pay.
    #[inline]
    pub(super) fn tokens(&self, level: i64) -> u64 {
        let [level, price, _] = self.above_floor(level.min(self.full()));
        (level as i64).max(0) as u64 / price
    }

    /// Returns the nanoseconds of filling until the bucket can pay `cost`; `None` is never.
    #[inline]
    pub(super) fn until(&self, level: i64, cost: u64) -> Option<u128> {
        let TokenBucket {
            rate, floor, most, ..
        } = self.rule;
        (cost <= most.get()).then(|| self.wait(level, floor + rate.price_of(cost)))
    }

    /// Returns the beginning of a deferred state, counted from the level that is kept free: the
    /// level, the price of a token and the level of a full bucket.
    #[inline]
    pub(super) fn above_floor(&self, level: i64) -> [u64; 3] {
        let (rate, floor) = (&self.rule.rate, self.rule.floor);
        [level - floor, rate.price, rate.full - floor].map(|ticks| ticks as u64)
    }

    /// Returns the nanoseconds of filling until the bucket is full.
    #[inline]
    pub(super) fn until_full(&self, level: i64) -> u128 {
        self.wait(level, self.full())
    }

    /// Returns the nanoseconds of filling from one level to another; 0 if it is reached.
    #[inline]
    fn wait(&self, level: i64, target: i64) -> u128 {
        nanos_up((target - level).max(0)).into()
    }

    /// Returns the nanoseconds until a new key gets the same decisions; `None` if it does now.
    #[inline]
    pub(super) fn until_rest(&self, fill: &Fill) -> Option<u128> {
        let wait = self.until_full(fill.level);
        if self.starts_full {
            return (wait > 0).then_some(wait);
        }
        let kept = |full_for| self.rule.keep.saturating_sub(full_for);
        fill.full_for
            .map(|full_for| wait + u128::from(kept(full_for)))
    }

    /// Returns the corrected bucket of a charge that has no position; `None` if nothing changes.
    ///
    /// Without a state the bucket is like new.
    pub(super) fn corrected(
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

    /// Corrects a charge that ends at `end` on the time axis, in nanoseconds, or later; `None` for
    /// the last charge.
    pub(super) fn correct(
        &self,
        known: Option<&BucketLevel>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
        end: Option<i128>,
    ) -> Option<Corrected> {
        let price = |cost| self.rule.rate.price_of_any(cost);
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
                (fill.level, fill.at)
            }
            (None, None) => (self.initial_fill(now).level, now),
        };
        (change < 0).then(|| Corrected {
            level: BucketLevel {
                written_at,
                level: cut(i128::from(level) + change),
            },
            gained: 0,
        })
    }

    /// Refunds `ticks` of a charge that ends at `end`, at most the part of the
    /// charge behind the last write.
    ///
    /// Refill has restored what lies before the last write, and no call came after it.
    fn give_back(
        &self,
        known: &BucketLevel,
        now: Timestamp,
        ticks: i128,
        end: Option<i128>,
    ) -> Option<Corrected> {
        let (full, written_at) = (i128::from(self.full()), known.written_at);
        let level = i128::from(known.level);
        // No refill was added to a level above the burst.
        let is_overfull = level > full;
        let (ticks, most) = match end {
            Some(end) if !is_overfull => {
                let ahead = end.saturating_sub(written_at.as_nanos().into());
                (ticks.min(ahead.saturating_mul(PER_NANO.into())), full)
            }
            _ => (
                ticks,
                full.max(self.rule.rate.price_of_any(self.rule.initial)),
            ),
        };
        let is_full = !is_overfull && self.filled(known, now).level >= self.full();
        let gained = (level + ticks).min(most) - level;
        (!is_full && gained > 0).then(|| Corrected {
            level: BucketLevel {
                written_at,
                level: cut(level + gained),
            },
            gained: cut(gained),
        })
    }

    /// Returns the earliest end of a charge on the time axis, in nanoseconds: its end if the bucket
    /// was full.
    pub(super) fn least_end(&self, charge: &Charge) -> i128 {
        let price = self.rule.rate.price_of_any(charge.cost);
        i128::from(charge.at.as_nanos()) + price / i128::from(PER_NANO)
    }
}

/// A bucket after a correction.
pub(super) struct Corrected {
    pub(super) level: BucketLevel,
    /// The ticks by which the level rose; 0 if more was taken.
    pub(super) gained: i64,
}

/// Returns the tokens of a bucket that is counted in ticks.
///
/// Its deferred state begins with the level, the price of a token and the level of a full bucket,
/// in ticks [from the floor on](Bucket::above_floor), and the nanoseconds until the clock has
/// caught up with the last write.
#[inline]
pub(super) fn remaining(&[level, price, ..]: &DeferredState) -> u64 {
    (level as i64).max(0) as u64 / price
}

/// Returns the wait until such a bucket has one token more; zero if it is full.
#[inline]
pub(super) fn more_after(
    &[level, price, full, stalled, ..]: &DeferredState,
    remaining: u64,
) -> Duration {
    let lacking = ((remaining + 1) * price).wrapping_sub(level);
    after_ticks(stalled, if level == full { 0 } else { lacking })
}
