//! The numbers of a rule in the unit in which its levels are counted.

use super::{
    script_rate::fitting,
    signed_span::{CUT, PART_BITS, PER_NANO, Ticks},
    width::Width,
};
use crate::quota::Quota;

/// A quota and a capacity in the unit in which levels are counted.
///
/// A token costs a whole number of ticks: the interval (period / amount) rounded down, so that the whole amount is there after
/// exactly one period. Two kinds of rule differ if the interval is no whole number of ticks:
///
/// - A token of less than 100 ticks (more than 3·10⁷ per second) is counted in 2⁻¹ to 2⁻¹⁴ ticks.
/// - A bucket that takes more than 35 days to fill has an interval that is a multiple of several ticks, so that it fits into the
///   numbers of a script, below 2⁵³.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::algorithm) struct Units<N> {
    /// The price of a token.
    pub(in crate::algorithm) price: N,
    /// The level of a full bucket.
    pub(in crate::algorithm) full: N,
    /// A unit is 2^-`bits` ticks.
    pub(in crate::algorithm) bits: u8,
}

impl Units<i128> {
    /// A price below this many ticks is counted in parts of them.
    const SHORT: u128 = 100;
    /// Then it is at least this many parts, if there are as many.
    const PARTS: u128 = 1 << 12;

    /// Returns the numbers of a quota for a bucket of `burst` tokens that holds at most `most`.
    pub(super) const fn of(quota: Quota, most: u64, burst: u64) -> Self {
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
    pub(in crate::algorithm) fn price(&self, tokens: u64) -> N {
        N::of(tokens) * self.price
    }

    /// Returns the price of any number of tokens in parts of a tick, cut to 2¹²⁶.
    pub(in crate::algorithm) fn price_in_parts(self, tokens: u64) -> i128 {
        let price = N::span(self.price, self.bits).parts();
        let price = price.saturating_mul(tokens.into());
        price.min(1 << 126)
    }

    /// Returns the level of a span after `nanos` nanoseconds, rounded down.
    #[inline]
    pub(in crate::algorithm) fn level(&self, span: Ticks, nanos: u64) -> N {
        N::level(span, nanos, self.bits)
    }

    /// Returns the level of a debt, rounded up.
    #[inline]
    pub(in crate::algorithm) fn owed(&self, span: Ticks) -> N {
        N::owed(span, self.bits)
    }

    /// Returns the span of a level.
    #[inline]
    pub(in crate::algorithm) fn span(&self, level: N) -> Ticks {
        level.span(self.bits)
    }

    /// Returns the span of a level in parts of a tick; a debt is cut to the longest.
    pub(in crate::algorithm) fn debt_cut(&self, parts: i128) -> Ticks {
        let longest = i128::from(CUT) << (PART_BITS - u32::from(self.bits));
        Ticks::from_parts(parts.max(-longest))
    }

    /// Returns the time of a number of units that is not below zero, in nanoseconds, rounded up.
    #[inline]
    pub(in crate::algorithm) fn nanos(&self, units: N) -> u128 {
        units.nanos(self.bits)
    }
}
