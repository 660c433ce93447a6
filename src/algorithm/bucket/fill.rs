//! The level of a bucket over time: how it fills, what it can pay, and when.

use crate::{
    algorithm::{
        packed::{PackedState, StoreTime},
        ticks::{Ticks, Units, Width},
        token_bucket::TokenBucket,
    },
    time::Timestamp,
};

/// The level of a bucket at its last write, as the time that it has been filling.
// Packed: 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(in crate::algorithm) struct BucketLevel {
    pub(in crate::algorithm) written_at: Timestamp,
    pub(in crate::algorithm) level: Ticks,
}

impl BucketLevel {
    /// Unpacks the instant at which a bucket was last empty. The level is not cut to the burst of a rule: others may have a larger one.
    #[inline]
    pub(in crate::algorithm) fn unpack(packed: PackedState, now: StoreTime) -> Self {
        Self {
            written_at: now.at(),
            level: Ticks::new(now.packed().since(packed)),
        }
    }
}

/// The level of a bucket at an instant that is never before the last write.
#[derive(Clone, Copy)]
pub(in crate::algorithm) struct Fill<N> {
    /// In units of the rate; below zero in debt.
    pub(in crate::algorithm) level: N,
    pub(in crate::algorithm) at: Timestamp,
    /// The nanoseconds for which the bucket has been full; `None` for a new key. 0 if the bucket starts full: then the number
    /// does not matter.
    pub(in crate::algorithm) full_for: Option<u64>,
}

impl Fill<i64> {
    /// Creates the fill of a plain bucket with a state.
    #[inline]
    pub(in crate::algorithm) fn of_plain(level: i64, at: Timestamp) -> Self {
        let full_for = Some(0);
        Self {
            level,
            at,
            full_for,
        }
    }
}

/// A rule, with its numbers in one width.
#[derive(Clone, Copy)]
pub(in crate::algorithm) struct Bucket<'a, N> {
    pub(in crate::algorithm) rule: &'a TokenBucket,
    pub(in crate::algorithm) units: Units<N>,
    /// `true` if the bucket of a new key is full, as that of an idle key is.
    pub(in crate::algorithm) starts_full: bool,
}

impl TokenBucket {
    #[inline]
    pub(in crate::algorithm) fn bucket<N: Width>(&self) -> Bucket<'_, N> {
        Bucket {
            rule: self,
            units: N::units(&self.rate),
            starts_full: self.starts_full(),
        }
    }

    /// Returns the bucket of a rule that is plain; the compiler then leaves out what others need.
    #[inline]
    pub(in crate::algorithm) fn plain(&self) -> Bucket<'_, i64> {
        debug_assert!(self.starts_full());
        Bucket {
            starts_full: true,
            ..self.bucket()
        }
    }

    /// Returns when an idle bucket can be forgotten, because a new key gets the same decisions.
    #[inline]
    pub(in crate::algorithm) fn at_rest_from(&self, state: &BucketLevel) -> Timestamp {
        if self.is_plain {
            self.plain().at_rest_from(state)
        } else {
            self.any_at_rest_from(state)
        }
    }

    /// Returns [`at_rest_from`](Self::at_rest_from) for a bucket that need not be plain.
    fn any_at_rest_from(&self, state: &BucketLevel) -> Timestamp {
        if self.rate.is_narrow() {
            self.bucket::<i64>().at_rest_from(state)
        } else {
            self.bucket::<i128>().at_rest_from(state)
        }
    }
}

impl<N: Width> Bucket<'_, N> {
    /// Returns the fill of a bucket that is new at `at`.
    #[inline]
    pub(in crate::algorithm) fn initial_fill(&self, at: Timestamp) -> Fill<N> {
        Fill {
            level: self.units.price(self.rule.initial),
            at,
            full_for: None,
        }
    }

    /// Returns the fill of a bucket with a state, even if the state has expired.
    #[inline]
    pub(in crate::algorithm) fn filled(&self, state: &BucketLevel, now: Timestamp) -> Fill<N> {
        let at = now.max(state.written_at);
        let elapsed = at.nanos_since(state.written_at);
        let full = self.units.full;
        let level = self.units.level(state.level, elapsed).min(full);
        if self.starts_full {
            let full_for = Some(0);
            return Fill {
                level,
                at,
                full_for,
            };
        }
        let written = self.units.level(state.level, 0);
        let wait = u64::try_from(self.until_full(written)).unwrap_or(u64::MAX);
        Fill {
            // The excess above the burst stays until it is spent, unless the rule has changed.
            level: match written > full {
                true => written.min(full.max(self.units.price(self.rule.initial))),
                false => level,
            },
            at,
            full_for: Some(elapsed.saturating_sub(wait)),
        }
    }

    /// Returns the state of a bucket with this level.
    #[inline]
    pub(in crate::algorithm) fn state(&self, level: N, at: Timestamp) -> BucketLevel {
        BucketLevel {
            written_at: at,
            level: self.units.span(level),
        }
    }

    #[inline]
    pub(in crate::algorithm) fn at_rest_from(&self, state: &BucketLevel) -> Timestamp {
        let mut wait = self.until_full(self.units.level(state.level, 0));
        if !self.starts_full {
            wait += u128::from(self.rule.keep);
        }
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
    }

    /// Returns the level after `cost` is paid, if the bucket holds that much.
    #[inline]
    pub(in crate::algorithm) fn pay(&self, level: N, cost: u64) -> Option<N> {
        if cost > self.rule.burst.get() {
            return None;
        }
        let rest = level - self.units.price(cost);
        (rest >= N::ZERO).then_some(rest)
    }

    /// Returns the greatest cost that the bucket can pay.
    #[inline]
    pub(in crate::algorithm) fn tokens(&self, level: N) -> u64 {
        level
            .min(self.units.full)
            .max(N::ZERO)
            .over(self.units.price)
    }

    /// Returns the nanoseconds of filling until the bucket can pay `cost`; `None` is never.
    #[inline]
    pub(in crate::algorithm) fn until(&self, level: N, cost: u64) -> Option<u128> {
        (cost <= self.rule.burst.get()).then(|| self.wait(level, self.units.price(cost)))
    }

    /// Returns the nanoseconds of filling until the bucket is full.
    #[inline]
    pub(in crate::algorithm) fn until_full(&self, level: N) -> u128 {
        self.wait(level, self.units.full)
    }

    /// Returns the nanoseconds of filling from one level to another; 0 if it is reached.
    #[inline]
    fn wait(&self, level: N, target: N) -> u128 {
        self.units.nanos((target - level).max(N::ZERO))
    }

    /// Returns the nanoseconds until a new key gets the same decisions; `None` if it does now.
    #[inline]
    pub(in crate::algorithm) fn until_rest(&self, fill: &Fill<N>) -> Option<u128> {
        let wait = self.until_full(fill.level);
        if self.starts_full {
            return (wait > 0).then_some(wait);
        }
        let kept = |full_for| self.rule.keep.saturating_sub(full_for);
        fill.full_for
            .map(|full_for| wait + u128::from(kept(full_for)))
    }

    /// Returns the span of a full bucket, in parts of a tick.
    pub(in crate::algorithm) fn full_in_parts(&self) -> i128 {
        self.units.span(self.units.full).parts()
    }
}
