//! The meter of a token bucket.

use tollgate::{Quota, Timestamp};

use super::Meter;

/// In any span of time, at most the burst and what is refilled may be admitted.
///
/// The most that any span that ends now has above what was refilled is the level of a bucket that
/// leaks at the rate.
pub(super) struct BucketMeter {
    quota: Quota,
    burst: u128,
    /// In units times the period of the quota in nanoseconds.
    level: u128,
    at: Timestamp,
}

impl BucketMeter {
    pub(super) fn new(quota: Quota, burst: u64) -> Self {
        Self {
            quota,
            burst: burst.into(),
            level: 0,
            at: Timestamp::default(),
        }
    }

    fn period(&self) -> u128 {
        self.quota.period_nanos().into()
    }

    fn level_at(&self, at: Timestamp) -> u128 {
        let elapsed = at.saturating_since(self.at).as_nanos();
        self.level
            .saturating_sub(elapsed * u128::from(self.quota.amount()))
    }
}

impl Meter for BucketMeter {
    fn excess(&self, at: Timestamp, units: u64) -> u64 {
        let level = self.level_at(at) + u128::from(units) * self.period();
        let over = level.saturating_sub(self.burst * self.period());
        over.div_ceil(self.period()) as u64
    }

    fn add(&mut self, at: Timestamp, units: u64) {
        self.level = self.level_at(at) + u128::from(units) * self.period();
        self.at = at;
    }
}
