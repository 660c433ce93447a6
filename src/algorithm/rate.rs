//! The rate and the capacity of a rule.
//!
//! A rule counts levels in the [`Units`] of its [`Rate`], in numbers of a [`Width`]; a script
//! counts them in those of a [`ScriptRate`].
//!
//! Every rule that fitted an earlier release must still fit, so three kinds of rules count in other
//! numbers than whole ticks of 64 bits:
//!
//! - Above 3·10⁷ tokens a second the price of a token has up to 14 bits below the tick: 100 MiB/s
//!   counted by the byte is exact to 10⁻⁴.
//! - A bucket that takes more than 35 days to fill must fit a script's 2⁵³. Unless its interval has
//!   a factor in common with a microsecond, the interval is rounded down to a multiple of as few
//!   ticks as needed.
//! - A bucket that takes more than 24 years, or counts parts of a tick, uses 128 bits instead of
//!   64.
//!
//! The width is a type parameter, because products of 128 bits would cost more than the rest of a
//! decision. Each step is written once in these units: the price of a token, the level of a full
//! bucket, and the levels to compare with. Packed states, cascades and markers call the same
//! functions.

use std::ops::{Add, Mul, Sub};

use super::{
    packed::PackedState,
    ticks::{CUT, PART_BITS, PARTS_PER_NANO, PER_MICRO, PER_NANO, Ticks},
};
use crate::quota::Quota;

/// The rate and the capacity of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rate {
    units: Units<i128>,
    is_narrow: bool,
    /// The ticks in a unit of a script, or 1 if a tick has parts or the rule does not fit into a
    /// script.
    script_unit: u16,
}

impl Rate {
    /// Returns the rate of a quota for a bucket of `burst` tokens that holds at most `most`, up to
    /// 2⁴⁰.
    pub(super) const fn of(quota: Quota, most: u64, burst: u64) -> Self {
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
    pub(super) const fn is_narrow(&self) -> bool {
        self.is_narrow
    }

    /// Returns `true` if a [`PackedState`] holds the states: a full bucket takes two years at most.
    #[inline]
    pub(super) const fn fits_packed_state(&self) -> bool {
        self.is_narrow && self.units.full <= PackedState::LONGEST as i128
    }

    /// Returns the price of any number of tokens in parts of a tick, cut to 2¹²⁶.
    pub(super) fn price_in_parts(&self, tokens: u64) -> i128 {
        self.units.price_in_parts(tokens)
    }

    /// Returns the price of a token in ticks, if the rate [is narrow](Self::is_narrow).
    #[inline]
    pub(super) const fn price_in_ticks(&self) -> i64 {
        self.units.price as i64
    }
}

/// A quota and a capacity in the unit in which levels are counted.
///
/// A token costs a whole number of ticks: the interval (period / amount) rounded down, so that the
/// whole amount is there after exactly one period. Two kinds of rule differ if the interval is no
/// whole number of ticks:
///
/// - A token of less than 100 ticks (more than 3·10⁷ per second) is counted in 2⁻¹ to 2⁻¹⁴ ticks.
/// - A bucket that takes more than 35 days to fill has an interval that is a multiple of several
///   ticks, so that it fits into the numbers of a script, below 2⁵³.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Units<N> {
    /// The price of a token.
    pub(super) price: N,
    /// The level of a full bucket.
    pub(super) full: N,
    /// A unit is 2^-`bits` ticks.
    pub(super) bits: u8,
}

impl Units<i128> {
    /// A price below this many ticks is counted in parts of them.
    const SHORT: u128 = 100;
    /// The least number of parts of such a price, as far as a tick has as many.
    const PARTS: u128 = 1 << 12;

    /// Returns the numbers of a quota for a bucket of `burst` tokens that holds at most `most`.
    const fn of(quota: Quota, most: u64, burst: u64) -> Self {
        let amount = quota.amount() as u128;
        // At most 2^65.
        let ticks = quota.period_nanos() as u128 * PER_NANO as u128;
        let (mut price, mut bits) = (ticks / amount, 0);
        if !ticks.is_multiple_of(amount) {
            if price < Self::SHORT {
                while (ticks << bits) / amount < Self::PARTS && bits < PART_BITS {
                    bits += 1;
                }
                // At least 44, as at most 2^40 tokens come in a second.
                price = (ticks << bits) / amount;
            } else {
                price = fitting(ticks, amount, most as u128);
            }
        }
        Self {
            price: price as i128,
            // Below 2^106.
            full: price as i128 * burst as i128,
            bits: bits as u8,
        }
    }
}

impl<N: Width> Units<N> {
    /// Returns the price of a number of tokens that the bucket can hold.
    #[inline]
    pub(super) fn price(&self, tokens: u64) -> N {
        N::of(tokens) * self.price
    }

    /// Returns the price of any number of tokens in parts of a tick, cut to 2¹²⁶.
    pub(super) fn price_in_parts(self, tokens: u64) -> i128 {
        let price = N::span(self.price, self.bits).parts();
        let price = price.saturating_mul(tokens.into());
        price.min(1 << 126)
    }

    /// Returns the level of a span after `nanos` nanoseconds, rounded down.
    #[inline]
    pub(super) fn level(&self, span: Ticks, nanos: u64) -> N {
        N::level(span, nanos, self.bits)
    }

    /// Returns the level of a debt, rounded up.
    #[inline]
    pub(super) fn owed(&self, span: Ticks) -> N {
        N::owed(span, self.bits)
    }

    /// Returns the span of a level.
    #[inline]
    pub(super) fn span(&self, level: N) -> Ticks {
        level.span(self.bits)
    }

    /// Returns the span of a level in parts of a tick; a debt is cut to the longest.
    pub(super) fn debt_cut(&self, parts: i128) -> Ticks {
        let longest = i128::from(CUT) << (PART_BITS - u32::from(self.bits));
        Ticks::from_parts(parts.max(-longest))
    }

    /// Returns the time of a number of units that is not below zero, in nanoseconds, rounded up.
    #[inline]
    pub(super) fn nanos(&self, units: N) -> u128 {
        units.nanos(self.bits)
    }
}

/// Evaluates an expression in the narrowest width that a rule needs: in 64 bits if `is_narrow`, and
/// otherwise in 128.
macro_rules! in_width {
    ($is_narrow:expr, $Number:ident => $value:expr) => {
        if $is_narrow {
            type $Number = i64;
            $value
        } else {
            type $Number = i128;
            $value
        }
    };
}

pub(super) use in_width;

/// A number of units: 64 bits for most rules; 128 bits for those that take decades to fill, or
/// count in parts of a tick.
pub(super) trait Width:
    Copy + Ord + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
    const ZERO: Self;
    /// `true` for 64 bits.
    const IS_NARROW: bool;

    fn of(number: u64) -> Self;

    /// Returns the numbers of a rule in this width.
    fn units(rate: &Rate) -> Units<Self>;

    /// Returns a span plus `nanos` nanoseconds, in units of 2^-`bits` ticks, rounded down.
    fn level(span: Ticks, nanos: u64, bits: u8) -> Self;

    /// Returns a span in units of 2^-`bits` ticks, rounded up.
    fn owed(span: Ticks, bits: u8) -> Self;

    /// Returns the span of this number of units.
    fn span(self, bits: u8) -> Ticks;

    /// Returns the quotient, rounded down, of two numbers above zero; it must fit into 64 bits.
    fn over(self, other: Self) -> u64;

    /// Returns the time of this number of units in nanoseconds, rounded up; the number is not below
    /// zero.
    fn nanos(self, bits: u8) -> u128;

    /// Returns the number in 64 bits, for a rule of that width.
    fn narrow(self) -> i64;
}

/// The longest time to fill that is counted in 64 bits, in ticks: 24 years.
const MOST_NARROW: i128 = 1 << 61;

/// Counts in whole ticks.
impl Width for i64 {
    const ZERO: Self = 0;
    const IS_NARROW: bool = true;

    #[inline]
    fn of(number: u64) -> Self {
        number as Self
    }

    #[inline]
    fn units(rate: &Rate) -> Units<Self> {
        Units {
            price: rate.units.price as Self,
            full: rate.units.full as Self,
            bits: 0,
        }
    }

    #[inline]
    fn level(span: Ticks, nanos: u64, _: u8) -> Self {
        let level = span.ticks_cut();
        let level = level.saturating_add_unsigned(nanos.saturating_mul(PER_NANO));
        level.min(CUT)
    }

    #[inline]
    fn owed(span: Ticks, _: u8) -> Self {
        span.ticks_up_cut()
    }

    #[inline]
    fn span(self, _: u8) -> Ticks {
        Ticks::new(self)
    }

    #[inline]
    fn over(self, other: Self) -> u64 {
        self as u64 / other as u64
    }

    #[inline]
    fn nanos(self, _: u8) -> u128 {
        (self as u64).div_ceil(PER_NANO).into()
    }

    #[inline]
    fn narrow(self) -> i64 {
        self
    }
}

impl Width for i128 {
    const ZERO: Self = 0;
    const IS_NARROW: bool = false;

    fn of(number: u64) -> Self {
        number.into()
    }

    fn units(rate: &Rate) -> Units<Self> {
        rate.units
    }

    fn level(span: Ticks, nanos: u64, bits: u8) -> Self {
        let parts = span.parts() + Self::from(nanos) * PARTS_PER_NANO;
        parts >> (PART_BITS - u32::from(bits))
    }

    fn owed(span: Ticks, bits: u8) -> Self {
        -(-span.parts() >> (PART_BITS - u32::from(bits)))
    }

    fn span(self, bits: u8) -> Ticks {
        Ticks::from_parts(self << (PART_BITS - u32::from(bits)))
    }

    fn over(self, other: Self) -> u64 {
        match (u64::try_from(self), u64::try_from(other)) {
            (Ok(units), Ok(price)) => units / price,
            _ => (self / other) as u64,
        }
    }

    fn nanos(self, bits: u8) -> u128 {
        let ticks = (self as u128 + ((1 << bits) - 1)) >> bits;
        // Most fit into 64 bits, of which the division by a constant is a product.
        match u64::try_from(ticks) {
            Ok(ticks) => ticks.div_ceil(PER_NANO).into(),
            Err(_) => ticks.div_ceil(PER_NANO.into()),
        }
    }

    fn narrow(self) -> i64 {
        self as i64
    }
}

/// A rate in the numbers of a script, which counts time in microseconds.
#[derive(Clone, Copy)]
pub(super) struct ScriptRate {
    /// The units that a microsecond brings.
    pub(super) gain: i128,
    /// The price of a token in units.
    pub(super) price: i128,
}

impl ScriptRate {
    /// The greatest gain: the product of two of them, of an old rule and a new one, fits into a
    /// script's numbers.
    const MOST_GAIN: i64 = 1 << 26;
    /// Numbers of a script are below this.
    const LIMIT: i128 = 1 << 53;
    const PARTS_PER_MICRO: i128 = 1000 * PARTS_PER_NANO;

    pub(super) fn of(rate: &Rate) -> Self {
        let Units { price, bits, .. } = rate.units;
        let unit = i128::from(rate.script_unit);
        Self {
            gain: i128::from(PER_MICRO << bits) / unit,
            price: price / unit,
        }
    }

    /// Returns the span of a level, in units of `gain` a microsecond, rounded down; `None` if the
    /// numbers are out of range.
    pub(super) fn span(self, level: i64, gain: i64) -> Option<Ticks> {
        if i128::from(level).abs() >= Self::LIMIT || !(1..=Self::MOST_GAIN).contains(&gain) {
            return None;
        }
        let span = (i128::from(level) * Self::PARTS_PER_MICRO).div_euclid(gain.into());
        if i128::from(gain) == self.gain {
            return Some(Ticks::from_parts(span));
        }
        // As a script does: cut to the numbers that it counts exactly.
        let most = Self::LIMIT * Self::PARTS_PER_MICRO / self.gain;
        Some(Ticks::from_parts(span.clamp(-most, most)))
    }

    /// Returns the level of a span in units, rounded down, and the gain.
    pub(super) fn level(self, span: Ticks) -> [i64; 2] {
        let units = span.parts().saturating_mul(self.gain);
        let level = units.div_euclid(Self::PARTS_PER_MICRO);
        let level = level.clamp(1 - Self::LIMIT, Self::LIMIT - 1);
        [level as i64, self.gain as i64]
    }

    /// Returns the span of a level, rounded up: for debts.
    pub(super) fn span_up(self, level: i64, gain: i64) -> Option<Ticks> {
        let less = self.span(level.checked_neg()?, gain)?;
        Some(Ticks::from_parts(-less.parts()))
    }

    /// Returns the level of a span, rounded up, and the gain: for debts.
    pub(super) fn level_up(self, span: Ticks) -> [i64; 2] {
        let [less, gain] = self.level(Ticks::from_parts(-span.parts()));
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
    use crate::algorithm::{Scripted, TokenBucket, arithmetic::gcd, ticks::PER_NANO};

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
