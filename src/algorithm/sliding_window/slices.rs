//! The calendar of slices: where each begins and ends, and what a window still holds of it.

use crate::{
    algorithm::credit::{div_ceil, div_floor},
    clock::Timestamp,
};

/// The slices of a window: slice `k` begins `⌈k · window / count⌉` nanoseconds after the Unix epoch.
///
/// So slice `k + count` begins a window after slice `k`, to the nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slices {
    /// In nanoseconds: 1 to 2⁶³ − 1.
    window: u64,
    /// The nanoseconds of a slice, rounded down.
    length: u64,
    /// `2^(63 + shift) / length`, rounded up, where `2^shift` is the first power of two from `length` on.
    reciprocal: u64,
    shift: u32,
    /// How many slices a window has: at least 1, at most 1000 and `window`.
    count: u32,
    /// How many of them are a nanosecond longer than `length`.
    longer: u32,
}

/// Where an instant lies.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The number of its slice.
    pub(super) slice: u64,
    /// Nanoseconds until that ends: 1 to `length`.
    pub(super) rest: u64,
    /// The nanoseconds of that slice, and of the one a window before it.
    pub(super) length: u64,
}

impl Slices {
    /// `count` slices, at least one, in a `window` of as many nanoseconds or more.
    pub(super) const fn new(window: u64, count: u32) -> Self {
        let length = window / count as u64;
        let shift = u64::BITS - (length - 1).leading_zeros();
        // The length is above half that power of two, so that the quotient is a word.
        let reciprocal = (1_u128 << (63 + shift)).div_ceil(length as u128) as u64;
        Self {
            window,
            length,
            reciprocal,
            shift,
            count,
            longer: (window % count as u64) as u32,
        }
    }

    #[inline]
    pub(super) const fn window(&self) -> u64 {
        self.window
    }

    #[inline]
    pub(super) const fn count(&self) -> u64 {
        self.count as u64
    }

    /// `number / length`, rounded down.
    ///
    /// Below 2⁶³ by a multiplication: the reciprocal is less than 1 too great, which adds less than
    /// `1 / length` to the quotient (Granlund and Montgomery, "Division by Invariant Integers using
    /// Multiplication", 1994).
    #[inline]
    fn per_length(&self, number: u64) -> u64 {
        if number >> 63 == 0 {
            let product = u128::from(number) * u128::from(self.reciprocal);
            (product >> 63) as u64 >> self.shift
        } else {
            number / self.length
        }
    }

    /// Where an instant lies.
    #[inline]
    pub(super) fn place(&self, at: Timestamp) -> Place {
        let at = at.as_nanos();
        let (slice, into) = if self.longer == 0 {
            let slice = self.per_length(at);
            (slice, at - slice * self.length)
        } else {
            self.find(at)
        };
        let length = self.length_of(slice);
        Place {
            slice,
            rest: length - into,
            length,
        }
    }

    /// The slice that a nanosecond lies in, and how far in, where slices differ in length.
    fn find(&self, at: u64) -> (u64, u64) {
        let (windows, into) = (at / self.window, at % self.window);
        let nth = div_floor(u128::from(into) * u128::from(self.count), self.window) as u64;
        let begin = nth * self.length + self.longer_before(nth);
        (windows * self.count() + nth, into - begin)
    }

    /// How many slices before the `nth` of a window are longer; beyond its end those of the next window count too.
    #[inline]
    fn longer_before(&self, nth: u64) -> u64 {
        (nth * u64::from(self.longer)).div_ceil(self.count())
    }

    /// The nanoseconds of a slice.
    #[inline]
    fn length_of(&self, slice: u64) -> u64 {
        if self.longer == 0 {
            return self.length;
        }
        let nth = slice % self.count();
        self.length + self.longer_before(nth + 1) - self.longer_before(nth)
    }

    /// The nanoseconds of the `slices` that come after `slice`, at most a window of them, and those of the last one.
    #[inline]
    pub(super) fn after(&self, slice: u64, slices: u64) -> (u64, u64) {
        let all = slices * self.length;
        if self.longer == 0 {
            return (all, self.length);
        }
        let next = slice % self.count() + 1;
        let end = self.longer_before(next + slices);
        (
            all + end - self.longer_before(next),
            self.length + end - self.longer_before(next + slices - 1),
        )
    }

    /// What a window that ends at `place` holds of the `count` calls of its oldest slice: `count · rest / length`,
    /// rounded up.
    #[inline]
    pub(super) fn inside(&self, count: u64, place: &Place) -> u64 {
        let product = u128::from(count) * u128::from(place.rest);
        match u64::try_from(product) {
            Ok(0) => 0,
            Ok(product) if self.longer == 0 => self.per_length(product - 1) + 1,
            // At most `count`.
            _ => div_ceil(product, place.length) as u64,
        }
    }
}

/// Nanoseconds until a window holds at most `free` of the `count` calls of a slice of this length, which it will have
/// left in `end` nanoseconds.
#[inline]
pub(super) fn until_inside(free: u64, count: u64, end: u64, length: u64) -> u64 {
    if count == 0 {
        return 0;
    }
    let rest = div_floor(u128::from(free) * u128::from(length), count);
    end.saturating_sub(u64::try_from(rest).unwrap_or(u64::MAX))
}
