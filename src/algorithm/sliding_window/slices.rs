//! The calendar of slices: when each slice begins and ends, and which part of it lies in the
//! window. Counters are in [`step`](super::step).

use crate::{
    algorithm::arithmetic::{div_ceil, div_floor},
    time::Timestamp,
};

/// The slices of a window: slice `k` begins `⌈k · window / count⌉` nanoseconds after the Unix
/// epoch.
///
/// So slice `k + count` begins exactly one window after slice `k`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slices {
    /// In nanoseconds: 1 to 2⁶³ − 1.
    window: u64,
    /// The length of a slice in nanoseconds, rounded down.
    length: u64,
    /// `2^(63 + shift) / length`, rounded up, where `2^shift` is the smallest power of two that is
    /// at least `length`.
    reciprocal: u64,
    shift: u32,
    /// The number of slices in a window: at least 1, at most `window` and
    /// [`MAX_SLICES`](super::SlidingWindow::MAX_SLICES).
    count: u32,
    /// The number of slices that are one nanosecond longer than `length`.
    longer: u32,
}

/// The position of an instant in its slice.
#[derive(Clone, Copy)]
pub(super) struct SlicePosition {
    /// The number of its slice.
    pub(super) slice: u64,
    /// The nanoseconds until the slice ends: 1 to `length`.
    pub(super) rest: u64,
    /// The length of the slice, and of the one a window before it, in nanoseconds.
    pub(super) length: u64,
}

impl Slices {
    /// Cuts a `window` into `count` slices: at least one, and at most one per nanosecond.
    pub(super) const fn new(window: u64, count: u32) -> Self {
        let length = window / count as u64;
        let shift = u64::BITS - (length - 1).leading_zeros();
        // `length` is more than half of `2^shift`, so the quotient fits into a word.
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

    /// Returns the length of a slice in nanoseconds, rounded down.
    #[inline]
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns `true` if all slices have the same length.
    #[inline]
    pub(super) const fn are_even(&self) -> bool {
        self.longer == 0
    }

    #[inline]
    pub(super) const fn count(&self) -> u64 {
        self.count as u64
    }

    /// Returns `number / length`, rounded down.
    ///
    /// Multiplies by the reciprocal if `number` is below 2⁶³. The reciprocal is too large by less
    /// than 1, which adds less than `1 / length` to the quotient (Granlund and Montgomery,
    /// "Division by Invariant Integers using Multiplication", 1994).
    #[inline]
    fn per_length(&self, number: u64) -> u64 {
        if number >> 63 == 0 {
            let product = u128::from(number) * u128::from(self.reciprocal);
            (product >> 63) as u64 >> self.shift
        } else {
            number / self.length
        }
    }

    /// Returns the position of an instant.
    #[inline]
    pub(super) fn position(&self, at: Timestamp) -> SlicePosition {
        let at = at.as_nanos();
        let (slice, into) = if self.longer == 0 {
            let slice = self.per_length(at);
            (slice, at - slice * self.length)
        } else {
            self.find(at)
        };
        let (_, length) = self.after(slice, 0);
        SlicePosition {
            slice,
            rest: length - into,
            length,
        }
    }

    /// Returns the slice of a nanosecond and the offset in it, if slices differ in length.
    fn find(&self, at: u64) -> (u64, u64) {
        let (windows, into) = (at / self.window, at % self.window);
        let nth = div_floor(u128::from(into) * u128::from(self.count), self.window) as u64;
        (windows * self.count() + nth, into - self.begin(nth))
    }

    /// Returns the nanoseconds from the beginning of a window to that of its `nth` slice, counted
    /// from 0, up to twice the number of slices.
    #[inline]
    fn begin(&self, nth: u64) -> u64 {
        nth * self.length + (nth * u64::from(self.longer)).div_ceil(self.count())
    }

    /// Returns the total length of the next `slices` slices after `slice`, and the length of the
    /// last of them.
    ///
    /// `slices` is at most a window of them. If it is 0, the second length is that of `slice`
    /// itself.
    #[inline]
    pub(super) fn after(&self, slice: u64, slices: u64) -> (u64, u64) {
        if self.longer == 0 {
            return (slices * self.length, self.length);
        }
        let next = slice % self.count() + 1;
        let end = self.begin(next + slices);
        (end - self.begin(next), end - self.begin(next + slices - 1))
    }

    /// Returns how many of the `count` calls of its oldest slice lie in the window that ends at
    /// `position`: `count · rest / length`, rounded up.
    #[inline]
    pub(super) fn inside(&self, count: u64, position: &SlicePosition) -> u64 {
        let product = u128::from(count) * u128::from(position.rest);
        match u64::try_from(product) {
            Ok(0) => 0,
            Ok(product) if self.longer == 0 => self.per_length(product - 1) + 1,
            // At most `count`.
            _ => div_ceil(product, position.length) as u64,
        }
    }
}

/// Returns the nanoseconds until the counters, the newest first, count `free` units or fewer. The
/// current slice ends in `rest`.
///
/// `after` returns the total length of a number of slices after the current one, and the length of
/// the last one, as [`Slices::after`] does.
#[inline]
pub(super) fn until_free(
    mut free: u64,
    counters: impl ExactSizeIterator<Item = u64>,
    rest: u64,
    after: impl Fn(u64) -> (u64, u64),
) -> u64 {
    let mut slices = counters.len() as u64;
    for count in counters {
        slices -= 1;
        // Once this slice is the oldest, the cost fits beside the newer ones and a part of this
        // one.
        let Some(left) = free.checked_sub(count) else {
            let (between, length) = after(slices);
            return until_inside(free, count, rest + between, length);
        };
        free = left;
    }
    0
}

/// Returns the nanoseconds until all counters, the newest first, are zero; `None` if they are. See
/// [`until_free`].
#[inline]
pub(super) fn empty_in(
    mut counters: impl ExactSizeIterator<Item = u64>,
    rest: u64,
    after: impl Fn(u64) -> (u64, u64),
) -> Option<u64> {
    let count = counters.len();
    let newest = counters.position(|count| count > 0)?;
    Some(rest + after((count - 1 - newest) as u64).0)
}

/// Returns the nanoseconds until at most `free` of the `count` calls of a slice lie in the window.
///
/// The slice has this length, and has left the window in `end` nanoseconds.
#[inline]
pub(super) fn until_inside(free: u64, count: u64, end: u64, length: u64) -> u64 {
    if count == 0 {
        return 0;
    }
    let rest = div_floor(u128::from(free) * u128::from(length), count);
    end.saturating_sub(u64::try_from(rest).unwrap_or(u64::MAX))
}
