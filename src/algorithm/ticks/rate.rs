//! The rate and the capacity of a rule.

use super::{script_rate::script_unit, units::Units, width::MOST_NARROW};
use crate::{algorithm::packed_state::PackedState, quota::Quota};

/// The rate and the capacity of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::algorithm) struct Rate {
    pub(super) units: Units<i128>,
    is_narrow: bool,
    /// The ticks in a unit of a script, or 1 if a tick has parts or the rule does not fit into a script.
    pub(super) script_unit: u16,
}

impl Rate {
    /// Returns the rate of a quota for a bucket of `burst` tokens that holds at most `most`, up to 2⁴⁰.
    pub(in crate::algorithm) const fn of(quota: Quota, most: u64, burst: u64) -> Self {
        let units = Units::of(quota, most, burst);
        Self {
            units,
            is_narrow: units.bits == 0 && units.price * most as i128 <= MOST_NARROW,
            script_unit: match script_unit(units.price as u128, most as u128) {
                Some(unit) if units.bits == 0 => unit as u16,
                _ => 1,
            },
        }
    }

    /// Returns `true` if levels fit into 64 bits, in whole ticks.
    #[inline]
    pub(in crate::algorithm) const fn is_narrow(&self) -> bool {
        self.is_narrow
    }

    /// Returns `true` if a [`PackedState`] holds the states: a full bucket takes two years at most.
    #[inline]
    pub(in crate::algorithm) const fn fits_packed_state(&self) -> bool {
        self.is_narrow && self.units.full <= PackedState::LONGEST as i128
    }

    /// Returns the price of any number of tokens in parts of a tick, cut to 2¹²⁶.
    pub(in crate::algorithm) fn price_in_parts(&self, tokens: u64) -> i128 {
        self.units.price_in_parts(tokens)
    }

    /// Returns the price of a token in ticks, if the rate [is narrow](Self::is_narrow).
    #[inline]
    pub(in crate::algorithm) const fn price_in_ticks(&self) -> i64 {
        self.units.price as i64
    }
}

#[cfg(test)]
mod tests {
    use super::{super::signed_span::PER_NANO, *};
    use crate::algorithm::{Scripted, TokenBucket, arithmetic::gcd};
    use proptest::prelude::*;
    use std::time::Duration;

    fn quotas() -> impl Strategy<Value = Quota> {
        let amounts = prop_oneof![1..2_000_u64, 1..=Quota::MAX_AMOUNT];
        let periods = prop_oneof![
            prop::sample::select(vec![1, 60, 3_600, 86_400])
                .prop_map(|seconds| seconds * 1_000_000_000),
            (0..63_u32, 1..1_000_u64).prop_map(|(bits, more)| (1 << bits | more) & i64::MAX as u64),
        ];
        (amounts, periods).prop_filter_map("a quota that can be", |(amount, period)| {
            Quota::try_new(amount, Duration::from_nanos(period)).ok()
        })
    }

    /// Returns `true` if a rule fitted into a script of the former release, which counted in the smallest units that made the
    /// gain and the price exact.
    fn fitted_before(quota: Quota, tokens: u64) -> bool {
        let (amount, period) = (u128::from(quota.amount()), u128::from(quota.period_nanos()));
        let divisor = gcd(amount, period);
        let (mut per_nano, mut per_token) = (amount / divisor, period / divisor);
        if per_nano > 1 << 32 {
            (per_nano, per_token) = (1 << 32, (per_token << 32).div_ceil(per_nano));
        }
        let own = gcd(per_token, per_nano * 1000);
        let (gain, price) = (per_nano * 1000 / own, per_token / own);
        gain <= 1 << 26 && u128::from(tokens) * price + gain < 1 << 53
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn no_rule_that_fitted_into_a_script_stops_fitting(quota in quotas(), burst in prop_oneof![
            1..100_u64, (0..=40_u32).prop_map(|bits| 1 << bits), 1..=Quota::MAX_AMOUNT,
        ]) {
            let Ok(rule) = TokenBucket::new(quota).try_burst(burst) else { return Ok(()) };
            let fits = rule.rule_parts(&mut Vec::new()).is_ok();
            prop_assert!(fits || !fitted_before(quota, burst), "{rule}");
        }

        /// As documented at the token bucket.
        #[test]
        fn rates_are_rounded_up_by_no_more_than_documented(quota in quotas(), burst in 1..=1_u64 << 32) {
            let Ok(rule) = TokenBucket::new(quota).try_burst(burst) else { return Ok(()) };
            let Units { price, bits, .. } = rule.rate.units;
            // The rate over the quota, times 10^9.
            let exact = u128::from(quota.period_nanos()) * u128::from(PER_NANO << bits) * 1_000_000_000;
            let ratio = exact / (u128::from(quota.amount()) * price as u128);
            let per_second = u128::from(quota.amount()) * 1_000_000_000 / u128::from(quota.period_nanos());
            let more = match per_second {
                ..3_000 => 1_000,
                3_000..1_000_000 => 333_334,
                1_000_000..30_000_000 => 10_101_010,
                30_000_000..10_000_000_000 => 250_000,
                _ => 23_000_000,
            };
            prop_assert!((1_000_000_000..=1_000_000_000 + more).contains(&ratio), "{rule}: {ratio}");
        }
    }
}
