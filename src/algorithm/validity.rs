//! The time for which the units of a grant may be spent.

use std::time::Duration;

use crate::quota::Quota;
#[cfg(feature = "tokio")]
use crate::time::Timestamp;

/// The time for which the units of a grant may be spent, from the instant of the grant on.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Quota, algorithm::Validity};
///
/// // Ten units a second, the last of which is valid for a second: after half a second, five are
/// // left.
/// let validity = Validity::one_by_one(Duration::from_secs(1), Quota::per_second(10));
/// assert_eq!(validity.units_at(Duration::from_millis(500)), 5);
///
/// let validity = Validity::together(Duration::from_secs(1));
/// assert_eq!(validity.units_at(Duration::from_millis(500)), u64::MAX);
/// assert_eq!(validity.units_at(Duration::from_secs(1)), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// No unit is valid longer, in nanoseconds.
    until: u64,
    /// Units end one after the other at this rate, the last one at `until`.
    rate: Option<Quota>,
    /// All units end then, whatever their rate, in nanoseconds.
    cut: u64,
}

impl Validity {
    /// All units are valid for the same time.
    pub fn together(time: Duration) -> Self {
        let time = nanos(time);
        Self {
            until: time,
            rate: None,
            cut: time,
        }
    }

    /// The units end one after the other at a rate, the last interval of which is over after
    /// `last`.
    pub fn one_by_one(last: Duration, rate: Quota) -> Self {
        Self {
            until: nanos(last),
            rate: Some(rate),
            cut: u64::MAX,
        }
    }

    /// Returns the validity of units that two rules have granted: each ends as soon as under
    /// either.
    ///
    /// If both end one by one, both must count from the instant of the grant.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        let cut = self.cut.min(other.cut);
        let sooner = match (self.rate, other.rate) {
            (Some(_), None) => self,
            (None, Some(_)) => other,
            // If the last units end together, those before end sooner at the lower rate.
            (Some(own), Some(others)) if self.until == other.until => Self {
                rate: Some(own.slower(others)),
                ..self
            },
            _ if self.until <= other.until => self,
            _ => other,
        };
        Self { cut, ..sooner }
    }

    /// Returns the same validity, shorter by a thousandth for a clock that is slow.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub(crate) fn shortened(self) -> Self {
        let shorter = |nanos: u64| nanos.saturating_sub(nanos / 1000 + 1);
        Self {
            until: shorter(self.until),
            cut: shorter(self.cut),
            ..self
        }
    }

    /// Returns how many of the last units are valid after some time: [`u64::MAX`] for all.
    pub fn units_at(&self, after: Duration) -> u64 {
        let after = nanos(after);
        if after >= self.cut {
            return 0;
        }
        let left = self.until.saturating_sub(after);
        match self.rate {
            None if left == 0 => 0,
            None => u64::MAX,
            Some(rate) => {
                let units =
                    u128::from(left) * u128::from(rate.amount()) / u128::from(rate.period_nanos());
                u64::try_from(units).unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns the end of all units that were granted at an instant.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn ends_at(&self, granted: Timestamp) -> Timestamp {
        let end = granted.as_nanos().saturating_add(self.until.min(self.cut));
        Timestamp::from_nanos(end)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn rate(&self) -> Option<Quota> {
        self.rate
    }

    /// Returns the validity without the last units, which take so many nanoseconds to end.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub(crate) fn without_last(self, nanos: u64) -> Self {
        Self {
            until: self.until.saturating_sub(nanos),
            ..self
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
