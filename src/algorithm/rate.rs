//! A quota as whole numbers: what a token costs, and what a nanosecond brings.

use std::num::NonZeroU64;

use super::{credit::div_ceil, mark::Mark};
use crate::quota::Quota;

/// A token costs [`per_token`](Self::per_token) units and a nanosecond brings [`per_nano`](Self::per_nano):
/// the smallest unit that makes both whole.
///
/// An amount that stays above 2³² after reducing it by the period makes a token slightly dearer, by at most
/// 3·10⁻⁷, so that a [`Credit`](super::credit::Credit) can hold every fraction.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Rate {
    /// Below 2⁶³ and above zero.
    pub(super) per_token: u64,
    /// At most 2³² and above zero.
    pub(super) per_nano: u64,
}

impl Rate {
    pub(super) const fn of(quota: Quota) -> Self {
        let (amount, period) = (quota.amount(), quota.period_nanos());
        let divisor = gcd(amount, period);
        let (mut per_nano, mut per_token) = (amount / divisor, period / divisor);
        const MOST: u64 = 1 << 32;
        if per_nano > MOST {
            let dearer = (per_token as u128 * MOST as u128).div_ceil(per_nano as u128);
            (per_nano, per_token) = (MOST, dearer as u64);
        }
        Self {
            per_token,
            per_nano,
        }
    }

    /// What `tokens`, at most 2⁴⁰, cost in units.
    #[inline]
    pub(super) const fn price(self, tokens: u64) -> i128 {
        // At most 2^103.
        tokens as i128 * self.per_token as i128
    }

    /// What a token takes to come, and what so many take, in thirds of a nanosecond: where both are whole numbers above
    /// zero, of two years at most.
    pub(super) const fn in_thirds(self, tokens: NonZeroU64) -> Option<(NonZeroU64, u64)> {
        if !Mark::PER_NANO.is_multiple_of(self.per_nano) {
            return None;
        }
        let Some(thirds) = self.per_token.checked_mul(Mark::PER_NANO / self.per_nano) else {
            return None;
        };
        match (NonZeroU64::new(thirds), tokens.get().checked_mul(thirds)) {
            (Some(each), Some(all)) if all <= Mark::LONGEST => Some((each, all)),
            _ => None,
        }
    }

    /// Nanoseconds until `lacking` units have come; none if it is not above zero.
    #[inline]
    pub(super) fn wait(self, lacking: i128) -> u128 {
        div_ceil(u128::try_from(lacking).unwrap_or(0), self.per_nano)
    }
}

pub(super) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
