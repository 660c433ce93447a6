//! The rate and the capacity of a rule.
//!
//! A rule counts levels in ticks; a script counts them in the units of a [`ScriptRate`].
//!
//! A token costs a whole number of ticks: the interval (period / amount) rounded down, so that the
//! whole amount is there after exactly one period. A bucket that takes more than 35 days to fill
//! must fit a script's 2⁵³. Unless its interval has a factor in common with a microsecond, the
//! interval is rounded down to a multiple of as few ticks as needed.
//!
//! A rule of more than 3·10⁷ tokens a second, or of more than 24 years to fill, is refused when it
//! is built. So a price is exact to a hundredth, and all levels are ticks of 64 bits: parts of a
//! tick and products of 128 bits took a second copy of every step.

use super::{
    packed::PackedState,
    ticks::{PER_MICRO, PER_NANO, cut},
};
use crate::{error::Error, quota::Quota};

/// The rate and the capacity of a rule, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rate {
    /// The price of a token.
    pub(super) price: i64,
    /// The level of a full bucket.
    pub(super) full: i64,
    /// The ticks in a unit of a script, or 1 if the rule does not fit into a script.
    script_unit: u16,
}

/// The reason that a bucket or a queue cannot be counted.
#[derive(Clone, Copy)]
pub(super) enum Misfit {
    Fast,
    Long,
}

impl Misfit {
    /// Returns the text of the error of a quota.
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::Fast => {
                "the quota of a bucket or queue is above 30000000 units a second: \
                 expected less; count in larger units, such as KiB instead of bytes"
            }
            Self::Long => {
                "a bucket or queue of the quota's amount takes more than 24 years: \
                 expected less; choose a smaller amount or a shorter period"
            }
        }
    }

    /// Returns the error of a setting, a number of units.
    pub(super) fn of(self, quota: Quota, setting: &str, units: u64) -> Error {
        match self {
            Self::Fast => Error::new(self.message()),
            Self::Long => Error::new(format!(
                "a {setting} of {units} at {quota} takes more than 24 years: \
                 expected less; choose a smaller one or a faster rate"
            )),
        }
    }
}

impl Rate {
    /// The least price of a token: 3·10⁷ of them come in a second.
    const LEAST_PRICE: u128 = 100;
    /// The longest time to fill, in ticks: 24 years of 365 days. Two of them and a debt fit into 64
    /// bits.
    const LONGEST: u128 = 24 * 365 * 86_400_000_000_000 * PER_NANO as u128;

    /// Returns the rate of a quota for a bucket of `burst` tokens that holds at most `most`, up to
    /// 2⁴⁰.
    pub(super) const fn of(quota: Quota, most: u64, burst: u64) -> Result<Self, Misfit> {
        let (amount, most) = (quota.amount() as u128, most as u128);
        // At most 2^65.
        let ticks = quota.period_nanos() as u128 * PER_NANO as u128;
        let mut price = ticks / amount;
        if price < Self::LEAST_PRICE {
            return Err(Misfit::Fast);
        }
        if ticks * most / amount > Self::LONGEST {
            return Err(Misfit::Long);
        }
        if !ticks.is_multiple_of(amount) {
            price = fitting(ticks, amount, most);
        }
        Ok(Self {
            price: price as i64,
            full: price as i64 * burst as i64,
            script_unit: match script_unit(price, most) {
                Some(unit) => unit as u16,
                None => 1,
            },
        })
    }

    /// Returns `true` if a [`PackedState`] holds the states: a full bucket takes two years at most.
    #[inline]
    pub(super) const fn fits_packed_state(&self) -> bool {
        self.full <= PackedState::LONGEST as i64
    }

    /// Returns the price of a number of tokens that the bucket can hold.
    #[inline]
    pub(super) const fn price_of(&self, tokens: u64) -> i64 {
        tokens as i64 * self.price
    }

    /// Returns the price of any number of tokens.
    pub(super) fn price_of_any(&self, tokens: u64) -> i128 {
        i128::from(tokens) * i128::from(self.price)
    }
}

/// A rate in the numbers of a script, which counts time in microseconds.
#[derive(Clone, Copy)]
pub(super) struct ScriptRate {
    /// The units that a microsecond brings.
    pub(super) gain: i64,
    /// The price of a token in units.
    pub(super) price: i64,
}

impl ScriptRate {
    /// The greatest gain: the product of two of them, of an old rule and a new one, fits into a
    /// script's numbers.
    const MOST_GAIN: i64 = 1 << 26;
    /// Numbers of a script are below this.
    const LIMIT: i64 = 1 << 53;

    pub(super) fn of(rate: &Rate) -> Self {
        let unit = i64::from(rate.script_unit);
        Self {
            gain: PER_MICRO as i64 / unit,
            price: rate.price / unit,
        }
    }

    /// Returns the span of a level, in units of `gain` a microsecond, rounded down; `None` if the
    /// numbers are out of range.
    pub(super) fn span(self, level: i64, gain: i64) -> Option<i64> {
        if level.unsigned_abs() >= Self::LIMIT as u64 || !(1..=Self::MOST_GAIN).contains(&gain) {
            return None;
        }
        let span = (i128::from(level) * i128::from(PER_MICRO)).div_euclid(gain.into());
        // As a script does: cut to the numbers that it counts exactly.
        let most = i128::from(Self::LIMIT) * i128::from(PER_MICRO) / i128::from(self.gain);
        Some(cut(span.clamp(-most, most)))
    }

    /// Returns the level of a span in units, rounded down, and the gain.
    pub(super) fn level(self, span: i64) -> [i64; 2] {
        let units = i128::from(span) * i128::from(self.gain);
        let level = units.div_euclid(PER_MICRO.into());
        let most = i128::from(Self::LIMIT) - 1;
        [level.clamp(-most, most) as i64, self.gain]
    }

    /// Returns the span of a level, rounded up: for debts.
    pub(super) fn span_up(self, level: i64, gain: i64) -> Option<i64> {
        Some(-self.span(level.checked_neg()?, gain)?)
    }

    /// Returns the level of a span, rounded up, and the gain: for debts.
    pub(super) fn level_up(self, span: i64) -> [i64; 2] {
        let [less, gain] = self.level(-span);
        [-less, gain]
    }
}

/// Returns `ticks / amount` rounded down, and further if a script can count `most` tokens only of a
/// shorter interval.
const fn fitting(ticks: u128, amount: u128, most: u128) -> u128 {
    let interval = ticks / amount;
    if script_unit(interval, most).is_some() || !fits_longest_unit(interval, most) {
        return interval;
    }
    let mut unit = 1;
    while unit <= PER_MICRO as u128 {
        let rounded = ticks / (amount * unit) * unit;
        if rounded > 0 && fits_script(rounded, unit, most) {
            return rounded;
        }
        unit += 1;
    }
    interval
}

/// Returns the smallest number of ticks in which a script can count `most` tokens of `interval`
/// ticks; `None` if they do not fit.
///
/// It is the smallest, so that most rules are counted in ticks, and read each other's levels
/// without rounding.
const fn script_unit(interval: u128, most: u128) -> Option<u128> {
    if !fits_longest_unit(interval, most) {
        return None;
    }
    let mut unit = 1;
    while unit <= PER_MICRO as u128 {
        if interval.is_multiple_of(unit) && fits_script(interval, unit, most) {
            return Some(unit);
        }
        unit += 1;
    }
    None
}

/// Returns `true` if a script can count `most` tokens of `interval` ticks in some unit: in the
/// longest, if in any.
const fn fits_longest_unit(interval: u128, most: u128) -> bool {
    // The numbers are smallest in the longest unit, a microsecond. Rounding the interval down to a
    // multiple of a unit does not change `interval / unit`.
    fits_script(interval, PER_MICRO as u128, most)
}

/// Returns `true` if a script can count `most` tokens of `interval` ticks, and the gain of a
/// microsecond, in units of `unit` ticks.
const fn fits_script(interval: u128, unit: u128, most: u128) -> bool {
    let gain = PER_MICRO as u128;
    gain.is_multiple_of(unit) && interval / unit * most + gain / unit < ScriptRate::LIMIT as u128
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::{Scripted, TokenBucket, arithmetic::gcd};

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

    /// Returns `true` if a rule fitted into a script of the former release, which counted in the
    /// smallest units that made the gain and the price exact.
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
            let Ok(rule) = TokenBucket::try_new(quota).and_then(|rule| rule.try_burst(burst)) else { return Ok(()) };
            let fits = rule.rule_parts(&mut Vec::new()).is_ok();
            prop_assert!(fits || !fitted_before(quota, burst), "{rule}");
        }

        /// As documented at the token bucket.
        #[test]
        fn rates_are_rounded_up_by_no_more_than_documented(quota in quotas(), burst in 1..=1_u64 << 32) {
            let Ok(rule) = TokenBucket::try_new(quota).and_then(|rule| rule.try_burst(burst)) else { return Ok(()) };
            // The rate over the quota, times 10^9.
            let exact = u128::from(quota.period_nanos()) * u128::from(PER_NANO) * 1_000_000_000;
            let ratio = exact / (u128::from(quota.amount()) * rule.rate.price as u128);
            let per_second = u128::from(quota.amount()) * 1_000_000_000 / u128::from(quota.period_nanos());
            let more = match per_second {
                ..3_000 => 1_000,
                3_000..1_000_000 => 333_334,
                _ => 10_101_010,
            };
            prop_assert!((1_000_000_000..=1_000_000_000 + more).contains(&ratio), "{rule}: {ratio}");
        }
    }
}
