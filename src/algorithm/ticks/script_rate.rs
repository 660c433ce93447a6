//! A rate in the numbers of a script.

use super::{
    rate::Rate,
    signed_span::{PARTS_PER_NANO, PER_MICRO, Ticks},
    units::Units,
};

/// A rate in the numbers of a script, which counts time in microseconds.
#[derive(Clone, Copy)]
pub(in crate::algorithm) struct ScriptRate {
    /// The units that a microsecond brings.
    pub(in crate::algorithm) gain: i128,
    /// The price of a token in units.
    pub(in crate::algorithm) price: i128,
}

impl ScriptRate {
    /// The greatest gain: the product of two of them, of an old rule and a new one, fits into a script's numbers.
    const MOST_GAIN: i64 = 1 << 26;
    /// Numbers of a script are below this.
    const LIMIT: i128 = 1 << 53;
    const PARTS_PER_MICRO: i128 = 1000 * PARTS_PER_NANO;

    pub(in crate::algorithm) fn of(rate: &Rate) -> Self {
        let Units { price, bits, .. } = rate.units;
        let unit = i128::from(rate.script_unit);
        Self {
            gain: i128::from(PER_MICRO << bits) / unit,
            price: price / unit,
        }
    }

    /// Returns the span of a level, in units of `gain` a microsecond, rounded down; `None` if the numbers are out of range.
    pub(in crate::algorithm) fn span(self, level: i64, gain: i64) -> Option<Ticks> {
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
    pub(in crate::algorithm) fn level(self, span: Ticks) -> [i64; 2] {
        let units = span.parts().saturating_mul(self.gain);
        let level = units.div_euclid(Self::PARTS_PER_MICRO);
        let level = level.clamp(1 - Self::LIMIT, Self::LIMIT - 1);
        [level as i64, self.gain as i64]
    }

    /// Returns the span of a level, rounded up: for debts.
    pub(in crate::algorithm) fn span_up(self, level: i64, gain: i64) -> Option<Ticks> {
        let less = self.span(level.checked_neg()?, gain)?;
        Some(Ticks::from_parts(-less.parts()))
    }

    /// Returns the level of a span, rounded up, and the gain: for debts.
    pub(in crate::algorithm) fn level_up(self, span: Ticks) -> [i64; 2] {
        let [less, gain] = self.level(Ticks::from_parts(-span.parts()));
        [-less, gain]
    }
}

/// Returns `ticks / amount` rounded down, and further if a script can count `most` tokens only of a shorter interval.
pub(super) const fn fitting(ticks: u128, amount: u128, most: u128) -> u128 {
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

/// Returns the smallest number of ticks in which a script can count `most` tokens of `interval` ticks; `None` if they do not fit.
///
/// It is the smallest, so that most rules are counted in ticks, and read each other's levels without rounding.
pub(super) const fn script_unit(interval: u128, most: u128) -> Option<u128> {
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

/// Returns `false` if `most` tokens of `interval` ticks fit into a script in no unit.
const fn fits_longest_unit(interval: u128, most: u128) -> bool {
    // The numbers are smallest in the longest unit, a microsecond. Rounding the interval down to a multiple of a unit
    // does not change `interval / unit`.
    fits_script(interval, PER_MICRO as u128, most)
}

/// Returns `true` if a script can count `most` tokens of `interval` ticks, and the gain of a microsecond, in units of `unit` ticks.
const fn fits_script(interval: u128, unit: u128, most: u128) -> bool {
    let gain = PER_MICRO as u128;
    gain.is_multiple_of(unit) && interval / unit * most + gain / unit < ScriptRate::LIMIT as u128
}
