//! The unit of time of buckets and queues: a tick, a third of a nanosecond.
//!
//! States consist of [`Ticks`], signed spans of time, which have a form in bytes. Waits of
//! decisions are computed from them.
//!
//! Thirds of a nanosecond, because 3/s, 30/s, 60/s and 300/s are common. The tick is also the unit
//! of packed states, so every ordinary quota can be packed. A clock that is slewed by up to 500
//! parts per million errs a thousand times more than a tick.
//!
//! Intervals are rounded down to a tick, so the whole amount is available after exactly one period.
//! The long-run rate is above the quota by at most 10⁻⁶ up to 3,000 tokens a second; the page of
//! `TokenBucket` has the table. Headers and texts show the quota as written. Windows count units,
//! and nothing in them is rounded.

use std::{fmt, time::Duration};

use super::codec::{damaged, put_number, take_number};
use crate::error::Error;

/// Ticks in a nanosecond. A tick is a third of a nanosecond, because 3/s, 30/s, 60/s, and 300/s are
/// common.
pub(super) const PER_NANO: u64 = 3;
/// Ticks in a microsecond, the unit of time of scripts.
pub(super) const PER_MICRO: u64 = 1000 * PER_NANO;

/// A tick has 2¹⁴ parts, in which the fastest rates are counted.
pub(super) const PART_BITS: u32 = 14;
/// Parts of a tick in a nanosecond.
pub(super) const PARTS_PER_NANO: i128 = (PER_NANO as i128) << PART_BITS;

/// A signed span of time in 96 bits.
///
/// Up to ±2⁹⁴ parts of a tick (13 million years). From there up to 2⁹⁵ ns in whole nanoseconds,
/// rounded down.
// `packed(4)`, because states consist of these.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct Ticks {
    /// The upper 63 bits of a number of parts in two's complement; or `LONG` and the upper 63 bits
    /// of a number of nanoseconds.
    upper: u64,
    lower: u32,
}

const LONG: u64 = 1 << 63;
/// The shortest long span, in parts of a tick: from here on, spans are counted in nanoseconds.
const LONG_PARTS: i128 = 1 << 94;
/// The longest span, in nanoseconds.
pub(super) const MOST_NANOS: i128 = (1 << 95) - 1;
/// The longest debt in units, which is 48 years for most rules. A level of another rule is cut to
/// it, too.
pub(super) const CUT: i64 = 1 << 62;

impl Ticks {
    pub(super) const NONE: Self = Self::of(0, 0);

    /// Creates a span of its two words.
    const fn of(upper: u64, lower: u32) -> Self {
        Self { upper, lower }
    }

    #[inline]
    pub(super) const fn new(ticks: i64) -> Self {
        // Below 2^77.
        let parts = (ticks as i128) << PART_BITS;
        Self::of((parts >> u32::BITS) as u64 & !LONG, parts as u32)
    }

    /// Creates a span of parts of a tick; cut to the shortest and the longest.
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

    /// Returns the span in ticks, if it is a whole number of them in 64 bits.
    #[inline]
    pub(super) fn whole(self) -> Option<i64> {
        let parts = self.parts();
        let is_whole = parts & ((1 << PART_BITS) - 1) == 0;
        i64::try_from(parts >> PART_BITS).ok().filter(|_| is_whole)
    }

    /// Returns the span in ticks, rounded down and cut to ±[`CUT`].
    // In 64 bits, which takes a third of the instructions.
    #[inline]
    pub(super) fn ticks_cut(self) -> i64 {
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

    /// Returns the span in ticks, rounded up and cut to [`CUT`]. The span is not below zero.
    #[inline]
    pub(super) fn ticks_up_cut(self) -> i64 {
        let is_whole = self.lower & ((1 << PART_BITS) - 1) == 0;
        (self.ticks_cut() + i64::from(!is_whole)).min(CUT)
    }

    /// Returns the span in nanoseconds, rounded up.
    #[inline]
    pub(super) fn nanos_up(self) -> i128 {
        let parts = self.parts();
        // A division of 128 bits takes longer than the rest of a decision.
        match u64::try_from(-(-parts >> PART_BITS)) {
            Ok(ticks) => ticks.div_ceil(PER_NANO).into(),
            Err(_) => -(-parts).div_euclid(PARTS_PER_NANO),
        }
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
    /// Appends the span in nanoseconds: whole ones as 63 bits in two's complement, and the fraction
    /// in 2⁻³² ns, rounded up.
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

    /// Takes a span, rounded down to a part of a tick; this is exact if it was
    /// [encoded](Self::encode).
    pub(super) fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        let (whole, fraction) = take_nanos(bytes)?;
        let part = (i128::from(fraction) * PARTS_PER_NANO) >> FRACTION_BITS;
        Ok(Self::from_parts(whole * PARTS_PER_NANO + part))
    }

    /// Takes a span, rounded up to a part of a tick: former releases wrote other fractions.
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

/// Returns a duration of nanoseconds, cut to [`Duration::MAX`].
#[inline]
pub(super) fn duration(nanos: u128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    match u64::try_from(nanos) {
        Ok(nanos) => Duration::from_nanos(nanos),
        Err(_) => u64::try_from(nanos / SECOND).map_or(Duration::MAX, |seconds| {
            Duration::new(seconds, (nanos % SECOND) as u32)
        }),
    }
}

/// Returns a wait that begins when the clock has caught up with the last write, cut to
/// [`Duration::MAX`].
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(take: fn(&mut &[u8]) -> Result<Ticks, Error>, upper: u64, lower: u32) -> i128 {
        let mut bytes = Vec::new();
        put_number(&mut bytes, upper);
        put_number(&mut bytes, lower.into());
        take(&mut &bytes[..]).unwrap().parts()
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

        #[test]
        fn spans_are_rounded_up(parts in (0..=108_u32).prop_flat_map(|bits| 0..1_i128 << bits), exact: bool) {
            // Whole nanoseconds are ticks and nothing else.
            let parts = if exact { parts / PARTS_PER_NANO * PARTS_PER_NANO } else { parts };
            let span = Ticks::from_parts(parts);
            let up = |unit: i128| (span.parts() + unit - 1) / unit;
            prop_assert_eq!(span.nanos_up(), up(PARTS_PER_NANO));
            let ticks = up(1 << PART_BITS).min(CUT.into());
            prop_assert_eq!(i128::from(span.ticks_up_cut()), ticks);
            let below = Ticks::from_parts(-span.parts());
            prop_assert_eq!(below.nanos_up(), -(-below.parts() / PARTS_PER_NANO));
        }

        /// The former release wrote any fraction of a nanosecond, rounded up to 2^-32.
        #[test]
        fn what_the_former_release_wrote_is_rounded(nanos in 0..1_u64 << 61, part in 0..1_u64 << 32, of in 1..=1_u64 << 32) {
            let part = part % of;
            let lower = (part << 32).div_ceil(of) as u32;
            let exact = |parts: i128| parts * i128::from(of);
            let written = (i128::from(nanos) * i128::from(of) + i128::from(part)) * PARTS_PER_NANO;
            // Never less than half a part of a tick is lost, and what is owed is never less than it
            // was.
            let held = decoded(Ticks::decode, nanos, lower);
            prop_assert!(exact(held) <= written + i128::from(of) && written < exact(held + 1));
            let owed = decoded(Ticks::decode_up, nanos, lower);
            prop_assert!(exact(owed + 1) > written && exact(owed - 1) < written + i128::from(of));
        }
    }
}
