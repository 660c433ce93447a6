//! Levels in 64 or in 128 bits.

use std::ops::{Add, Mul, Sub};

use super::{
    rate::Rate,
    signed_span::{CUT, PART_BITS, PARTS_PER_NANO, PER_NANO, Ticks},
    units::Units,
};

/// A number of units: 64 bits for most rules; 128 bits for those that take decades to fill, or count in parts of a tick.
pub(in crate::algorithm) trait Width:
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

    /// Returns the time of this number of units in nanoseconds, rounded up; the number is not below zero.
    fn nanos(self, bits: u8) -> u128;

    /// Returns the number in 64 bits, for a rule of that width.
    fn narrow(self) -> i64;
}

/// The longest time to fill that is counted in 64 bits, in ticks: 24 years.
pub(super) const MOST_NARROW: i128 = 1 << 61;

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
