//! Counters as the binary digits of one number.

use std::time::Duration;

use super::slices::{Slices, empty_in, until_free};
use crate::{
    algorithm::{
        packed::{PackedSlices, PackedState},
        ticks::PER_NANO,
    },
    decision::{Compute, Deferred},
};

/// The binary digits of the number of slices in a deferred state; the length of a slice is above them.
const COUNT_BITS: u32 = PackedSlices::MAX_COUNT.count_ones();

/// The counters of a packed state.
#[derive(Clone, Copy)]
pub(super) struct PackedCounters {
    pub(super) slices: PackedSlices,
    /// The number of binary digits of each.
    pub(super) bits: u32,
    pub(super) digits: u64,
}

/// Returns the number of binary digits of each counter.
#[inline]
const fn bits(slices: PackedSlices) -> u32 {
    slices.length.ilog2() / (slices.count as u32 + 1)
}

/// Returns the number of binary digits of each counter; 0 if a packed state does not hold the counters of these slices.
pub(super) const fn bits_of(slices: &Slices) -> u32 {
    if !slices.are_even() || slices.count() > PackedSlices::MAX_COUNT {
        return 0;
    }
    const LONGEST: u64 = PackedState::LONGEST / PER_NANO;
    // Neither overflows: a window is at most 2⁶³ − 1 nanoseconds.
    if slices.window() + slices.length() > LONGEST {
        return 0;
    }
    bits(packed_slices(slices))
}

/// Returns slices as a packed kind has them.
#[inline]
pub(super) const fn packed_slices(slices: &Slices) -> PackedSlices {
    PackedSlices {
        count: slices.count(),
        length: slices.length() * PER_NANO,
    }
}

impl PackedCounters {
    #[inline]
    pub(super) fn new(slices: PackedSlices, digits: u64) -> Self {
        let bits = bits(slices);
        Self {
            slices,
            bits,
            digits,
        }
    }

    /// Returns the counters, the one of the newest slice first.
    #[inline]
    pub(super) fn iter(self) -> impl ExactSizeIterator<Item = u64> {
        let Self { bits, digits, .. } = self;
        let places = (0..self.slices.count as u32 + 1).rev();
        places.map(move |place| digits >> (place * bits) & most(bits))
    }

    /// Returns the total length of a number of slices, and that of each, in nanoseconds.
    #[inline]
    pub(super) fn after(self, slices: u64) -> (u64, u64) {
        let length = self.slices.length / PER_NANO;
        (slices * length, length)
    }

    /// Returns the counters in a deferred state.
    #[inline]
    fn deferred(digits: u64, slices: u64) -> Self {
        let slices = PackedSlices {
            count: slices & PackedSlices::MAX_COUNT,
            length: slices >> COUNT_BITS,
        };
        Self::new(slices, digits)
    }

    /// Returns the counters of a decision that leaves `remaining` units of a limit.
    #[inline]
    pub(super) fn defer(self, limit: u64, remaining: u64, rest: u64, stalled: u64) -> Deferred {
        let PackedSlices { count, length } = self.slices;
        Deferred {
            state: [
                limit,
                self.digits,
                rest,
                stalled,
                length << COUNT_BITS | count,
                remaining,
            ],
            compute: &DEFERRED,
        }
    }
}

/// Returns the largest number of so many binary digits.
#[inline]
pub(super) const fn most(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Computes the numbers from the limit, the counters, the nanoseconds until the slice ends and until it begins, the length of slices above
/// their number, and the remaining units.
const DEFERRED: Compute = Compute {
    remaining: |&[.., remaining]| remaining,
    reset_after: |&[_, digits, rest, stalled, slices, _]| {
        let counters = PackedCounters::deferred(digits, slices);
        let wait = empty_in(counters.iter(), rest, |slices| counters.after(slices));
        wait.map_or(Duration::ZERO, |wait| Duration::from_nanos(stalled + wait))
    },
    more_after: |&[limit, digits, rest, stalled, slices, _], remaining| {
        let counters = PackedCounters::deferred(digits, slices);
        let Some(free) = limit.checked_sub(remaining + 1) else {
            return Duration::ZERO;
        };
        let wait = until_free(free, counters.iter(), rest, |slices| counters.after(slices));
        Duration::from_nanos(stalled + wait)
    },
    position: |_, _| None,
};
