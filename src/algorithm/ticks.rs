//! The unit of time of buckets and queues.

use std::{
    fmt,
    ops::{Add, Mul, Sub},
    time::Duration,
};

use super::{
    codec::{damaged, put_number, take_number},
    packed_state::PackedState,
    span::duration,
};
use crate::{error::Error, quota::Quota};

/// Ticks in a nanosecond. A tick is a third of a nanosecond, because 3/s, 30/s, 60/s, and 300/s are common.
pub(super) const PER_NANO: u64 = 3;
/// Ticks in a microsecond, the unit of time of scripts.
const PER_MICRO: u64 = 1000 * PER_NANO;

/// A tick has 2¹⁴ parts, in which the fastest rates are counted.
const PART_BITS: u32 = 14;
/// Parts of a tick in a nanosecond.
pub(super) const PARTS_PER_NANO: i128 = (PER_NANO as i128) << PART_BITS;

/// A signed span of time in 96 bits.
///
/// Up to ±2⁹⁴ parts of a tick (13 million years). From there up to 2⁹⁵ ns in whole nanoseconds, rounded down.
// Packed, because states consist of these.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct Ticks {
    /// The upper 63 bits of a number of parts in two's complement; or `LONG` and the upper 63 bits of a number of nanoseconds.
    upper: u64,
    lower: u32,
}

const LONG: u64 = 1 << 63;
/// From here on a span is long, in parts.
const LONG_PARTS: i128 = 1 << 94;
/// The longest span, in nanoseconds.
pub(super) const MOST_NANOS: i128 = (1 << 95) - 1;

impl Ticks {
    pub(super) const NONE: Self = Self::of(0, 0);

    /// The span of two words.
    const fn of(upper: u64, lower: u32) -> Self {
        Self { upper, lower }
    }

    #[inline]
    pub(super) const fn new(ticks: i64) -> Self {
        // Below 2^77.
        let parts = (ticks as i128) << PART_BITS;
        Self::of((parts >> u32::BITS) as u64 & !LONG, parts as u32)
    }

    /// The span of so many parts of a tick; cut to the shortest and the longest.
    pub(super) const fn from_parts(parts: i128) -> Self {
        if parts >= LONG_PARTS {
            let nanos = parts / PARTS_PER_NANO;
            let nanos = if nanos > MOST_NANOS {
                MOST_NANOS
            } else {
                nanos
            };
            return Self::of((nanos >> u32::BITS) as u64 | LONG, nanos as u32);
        }
        let parts = if parts < -LONG_PARTS {
            -LONG_PARTS
        } else {
            parts
        };
        Self::of((parts >> u32::BITS) as u64 & !LONG, parts as u32)
    }

    #[inline]
    pub(super) const fn parts(self) -> i128 {
        let (upper, lower) = (self.upper, self.lower as i128);
        if upper & LONG == 0 {
            ((upper << 1) as i64 >> 1) as i128 * (1 << u32::BITS) + lower
        } else {
            (((upper & !LONG) as i128) << u32::BITS | lower) * PARTS_PER_NANO
        }
    }

    /// The span in ticks, if it is a whole number of them in 64 bits.
    #[inline]
    pub(super) fn whole(self) -> Option<i64> {
        let parts = self.parts();
        let is_whole = parts & ((1 << PART_BITS) - 1) == 0;
        i64::try_from(parts >> PART_BITS).ok().filter(|_| is_whole)
    }

    /// The span in ticks, rounded down and cut to ±[`CUT`].
    // In 64 bits, which takes a third of the instructions.
    #[inline]
    fn ticks_cut(self) -> i64 {
        const MOST: i64 = CUT >> (u32::BITS - PART_BITS);
        let upper = (self.upper << 1) as i64 >> 1;
        if self.upper & LONG != 0 || upper >= MOST {
            CUT
        } else if upper < -MOST {
            -CUT
        } else {
            upper << (u32::BITS - PART_BITS) | i64::from(self.lower >> PART_BITS)
        }
    }

    /// The span in nanoseconds, rounded up.
    #[inline]
    pub(super) const fn nanos_up(self) -> i128 {
        -(-self.parts()).div_euclid(PARTS_PER_NANO)
    }
}

impl fmt::Debug for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/2^{PART_BITS} ticks", self.parts())
    }
}

/// The form in bytes has 32 bits for the fraction of a nanosecond.
const FRACTION_BITS: u32 = u32::BITS;
/// From here on, about 146 years, the form in bytes has whole nanoseconds.
const LONG_NANOS: i128 = 1 << 62;

impl Ticks {
    /// Appends the span in nanoseconds: whole ones as 63 bits in two's complement, and the fraction in 2⁻³² ns, rounded up.
    ///
    /// From 2⁶² ns on: bit 63, and the whole nanoseconds in 95 bits.
    pub(super) fn encode(self, bytes: &mut Vec<u8>) {
        let parts = self.parts();
        let whole = parts.div_euclid(PARTS_PER_NANO).max(-LONG_NANOS);
        let (upper, lower) = if whole < LONG_NANOS {
            let part = parts.rem_euclid(PARTS_PER_NANO) as u64;
            let fraction = (part << FRACTION_BITS).div_ceil(PARTS_PER_NANO as u64);
            (whole as u64 & !LONG, fraction as u32)
        } else {
            ((whole >> FRACTION_BITS) as u64 | LONG, whole as u32)
        };
        put_number(bytes, upper);
        put_number(bytes, u64::from(lower));
    }

    /// Takes a span, rounded down to a part of a tick; this is exact if it was [encoded](Self::encode).
    pub(super) fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        let (whole, fraction) = take_nanos(bytes)?;
        let part = (i128::from(fraction) * PARTS_PER_NANO) >> FRACTION_BITS;
        Ok(Self::from_parts(whole * PARTS_PER_NANO + part))
    }

    /// As [`decode`](Self::decode), but rounds up: former releases wrote other fractions.
    pub(super) fn decode_up(bytes: &mut &[u8]) -> Result<Self, Error> {
        let (whole, fraction) = take_nanos(bytes)?;
        // The fraction itself was rounded up.
        let part = match fraction.checked_sub(1) {
            Some(less) => ((i128::from(less) * PARTS_PER_NANO) >> FRACTION_BITS) + 1,
            None => 0,
        };
        Ok(Self::from_parts(whole * PARTS_PER_NANO + part))
    }
}

/// Takes whole nanoseconds and a fraction in 2⁻³² ns.
fn take_nanos(bytes: &mut &[u8]) -> Result<(i128, u32), Error> {
    let (upper, lower) = (take_number(bytes)?, take_number(bytes)?);
    let lower = u32::try_from(lower).map_err(|_| damaged())?;
    Ok(if upper & LONG == 0 {
        (i128::from((upper << 1) as i64 >> 1), lower)
    } else {
        let whole = i128::from(upper & !LONG) << FRACTION_BITS | i128::from(lower);
        (whole, 0)
    })
}

/// A number of units: 64 bits for most rules; 128 bits for those that take decades to fill, or count in parts of a tick.
pub(super) trait Width:
    Copy + Ord + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
    const ZERO: Self;
    /// Whether these are 64 bits.
    const IS_NARROW: bool;

    fn of(number: u64) -> Self;

    /// The numbers of a rule in this width.
    fn units(rate: &Rate) -> Units<Self>;

    /// The level of a span that `nanos` have been added to, in units of 2^-`bits` ticks, rounded down.
    fn level(span: Ticks, nanos: u64, bits: u8) -> Self;

    /// As [`level`](Self::level), but rounds up.
    fn owed(span: Ticks, bits: u8) -> Self;

    /// The span of so many units.
    fn span(self, bits: u8) -> Ticks;

    /// The quotient, rounded down; both are above zero, and it fits.
    fn over(self, other: Self) -> u64;

    /// The time of so many units in nanoseconds, rounded up; the number is not below zero.
    fn nanos(self, bits: u8) -> u128;

    /// The same number in 64 bits, for a rule of that width.
    fn narrow(self) -> i64;
}

/// The longest time to fill that is counted in 64 bits, in ticks: 24 years.
const MOST_NARROW: i128 = 1 << 61;
/// The longest debt in units, 48 years for most rules; and what a level of another rule is cut to.
const CUT: i64 = 1 << 62;

/// In ticks: these rules count in no parts of them.
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
        // Beyond that, both are cut to the same.
        -Ticks::from_parts(-span.parts()).ticks_cut()
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
        match u64::try_from(self) {
            Ok(units) => units.div_ceil(PER_NANO << bits).into(),
            Err(_) => (self as u128).div_ceil((PER_NANO << bits).into()),
        }
    }

    fn narrow(self) -> i64 {
        self as i64
    }
}

/// A quota and a capacity in the unit in which levels are counted.
///
/// A token costs a whole number of ticks: the interval (period / amount) rounded down, so that the whole amount is there after
/// exactly one period. Two kinds of rule differ if the interval is no whole number of ticks:
///
/// - A token of less than 100 ticks (more than 3·10⁷ per second) is counted in 2⁻¹ to 2⁻¹⁴ ticks.
/// - A bucket that takes more than 35 days to fill has an interval that is a multiple of several ticks, so that it fits into the
///   numbers of a script, below 2⁵³.
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
    /// Then it is at least this many parts, if there are as many.
    const PARTS: u128 = 1 << 12;

    /// The numbers of a quota for a bucket of `burst` tokens that holds at most `most`.
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
    /// The price of a number of tokens that the bucket can hold.
    #[inline]
    pub(super) fn price(&self, tokens: u64) -> N {
        N::of(tokens) * self.price
    }

    /// The price of any number of tokens in parts of a tick, cut to 2¹²⁶.
    pub(super) fn price_in_parts(self, tokens: u64) -> i128 {
        let price = N::span(self.price, self.bits).parts();
        let price = price.saturating_mul(tokens.into());
        price.min(1 << 126)
    }

    /// The level of a span that `nanos` have been added to, rounded down.
    #[inline]
    pub(super) fn level(&self, span: Ticks, nanos: u64) -> N {
        N::level(span, nanos, self.bits)
    }

    /// The level of a span that is owed, rounded up.
    #[inline]
    pub(super) fn owed(&self, span: Ticks) -> N {
        N::owed(span, self.bits)
    }

    /// The span of a level.
    #[inline]
    pub(super) fn span(&self, level: N) -> Ticks {
        level.span(self.bits)
    }

    /// The span of a level in parts of a tick, whose debt is cut to the longest.
    pub(super) fn debt_cut(&self, parts: i128) -> Ticks {
        let longest = i128::from(CUT) << (PART_BITS - u32::from(self.bits));
        Ticks::from_parts(parts.max(-longest))
    }

    /// The time of a number of units that is not below zero, in nanoseconds, rounded up.
    #[inline]
    pub(super) fn nanos(&self, units: N) -> u128 {
        units.nanos(self.bits)
    }
}

/// `ticks / amount`, rounded down, and further if `most` of it do not fit into a script otherwise.
const fn fitting(ticks: u128, amount: u128, most: u128) -> u128 {
    let interval = ticks / amount;
    if script_unit(interval, most).is_some() {
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

/// The smallest number of ticks in which a script can count `most` tokens of `interval` ticks; `None` if they do not fit.
///
/// The smallest, so that most rules are counted in ticks, and read each other's levels without rounding.
const fn script_unit(interval: u128, most: u128) -> Option<u128> {
    let mut unit = 1;
    while unit <= PER_MICRO as u128 {
        if interval.is_multiple_of(unit) && fits_script(interval, unit, most) {
            return Some(unit);
        }
        unit += 1;
    }
    None
}

/// Whether a script can count `most` tokens of `interval` ticks, and the gain of a microsecond, in units of `unit` ticks.
const fn fits_script(interval: u128, unit: u128, most: u128) -> bool {
    let gain = PER_MICRO as u128;
    gain.is_multiple_of(unit) && interval / unit * most + gain / unit < ScriptRate::LIMIT as u128
}

/// The rate and the capacity of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rate {
    units: Units<i128>,
    is_narrow: bool,
    /// The ticks in a unit of a script, or 1 if a tick has parts or the rule does not fit into a script.
    script_unit: u16,
}

impl Rate {
    /// The rate of a quota for a bucket of `burst` tokens that holds at most `most`, up to 2⁴⁰.
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

    /// Whether 64 bits are enough, and the unit is a tick.
    #[inline]
    pub(super) const fn is_narrow(&self) -> bool {
        self.is_narrow
    }

    /// Whether a [`PackedState`] holds the states: a full bucket takes two years at most.
    #[inline]
    pub(super) const fn fits_mark(&self) -> bool {
        self.is_narrow && self.units.full <= PackedState::LONGEST as i128
    }

    /// The price of a token in ticks, if the rate [is narrow](Self::is_narrow).
    #[inline]
    pub(super) const fn price_in_ticks(&self) -> i64 {
        self.units.price as i64
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
    /// The greatest gain: the product of two of them, of an old rule and a new one, fits into a script's numbers.
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

    /// The span of a level, in units of `gain` a microsecond, rounded down; `None` if these are no level and gain.
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

    /// The level of a span in units, rounded down, and the gain.
    pub(super) fn level(self, span: Ticks) -> [i64; 2] {
        let units = span.parts().saturating_mul(self.gain);
        let level = units.div_euclid(Self::PARTS_PER_MICRO);
        let level = level.clamp(1 - Self::LIMIT, Self::LIMIT - 1);
        [level as i64, self.gain as i64]
    }

    /// As [`span`](Self::span), but rounds up: for what is owed.
    pub(super) fn span_up(self, level: i64, gain: i64) -> Option<Ticks> {
        let less = self.span(level.checked_neg()?, gain)?;
        Some(Ticks::from_parts(-less.parts()))
    }

    /// As [`level`](Self::level), but rounds up: for what is owed.
    pub(super) fn level_up(self, span: Ticks) -> [i64; 2] {
        let [less, gain] = self.level(Ticks::from_parts(-span.parts()));
        [-less, gain]
    }
}

/// Returns a wait that begins when the clock has caught up with the last write, cut to [`Duration::MAX`].
#[inline]
pub(super) fn after(stalled: u64, wait: u128) -> Duration {
    duration(u128::from(stalled) + wait)
}

/// Returns a wait for ticks to pass, as [`after`] does; zero if there are none.
#[inline]
pub(super) fn after_ticks(stalled: u64, ticks: u64) -> Duration {
    match ticks {
        0 => Duration::ZERO,
        _ => Duration::from_nanos(stalled.saturating_add(ticks.div_ceil(PER_NANO))),
    }
}

/// The greatest common divisor.
pub(super) const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Scripted, TokenBucket};
    use proptest::prelude::*;

    fn decoded(take: fn(&mut &[u8]) -> Result<Ticks, Error>, upper: u64, lower: u32) -> i128 {
        let mut bytes = Vec::new();
        put_number(&mut bytes, upper);
        put_number(&mut bytes, lower.into());
        take(&mut &bytes[..]).unwrap().parts()
    }

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

    /// The former release counted in the smallest units that made both exact, and this is whether those fitted into a script.
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
        fn spans_come_back(parts in -(1_i128 << 77)..1 << 77, nanos in (1_i128 << 79)..1 << 95) {
            for parts in [parts, nanos * PARTS_PER_NANO] {
                let span = Ticks::from_parts(parts);
                prop_assert_eq!(span.parts(), parts);
                let mut bytes = Vec::new();
                span.encode(&mut bytes);
                prop_assert_eq!(Ticks::decode(&mut &bytes[..]).unwrap(), span);
                prop_assert_eq!(Ticks::decode_up(&mut &bytes[..]).unwrap(), span);
            }
        }

        /// The former release wrote any fraction of a nanosecond, rounded up to 2^-32.
        #[test]
        fn what_the_former_release_wrote_is_rounded(nanos in 0..1_u64 << 61, part in 0..1_u64 << 32, of in 1..=1_u64 << 32) {
            let part = part % of;
            let lower = (part << 32).div_ceil(of) as u32;
            let exact = |parts: i128| parts * i128::from(of);
            let written = (i128::from(nanos) * i128::from(of) + i128::from(part)) * PARTS_PER_NANO;
            // Never less than half a part of a tick is lost, and what is owed is never less than it was.
            let held = decoded(Ticks::decode, nanos, lower);
            prop_assert!(exact(held) <= written + i128::from(of) && written < exact(held + 1));
            let owed = decoded(Ticks::decode_up, nanos, lower);
            prop_assert!(exact(owed + 1) > written && exact(owed - 1) < written + i128::from(of));
        }

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
            // How many times 10^9 the quota is the rate.
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
