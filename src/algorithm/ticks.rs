//! The unit of time of buckets and queues: a tick, a third of a nanosecond.
//!
//! States contain signed spans of ticks, which have a form in bytes. Waits of decisions are
//! computed from them.
//!
//! Thirds of a nanosecond, because 3/s, 30/s, 60/s and 300/s are common. The tick is also the unit
//! of packed states, so every ordinary quota can be packed. A clock that is slewed by up to 500
//! parts per million errs a thousand times more than a tick.
//!
//! Intervals are rounded down to a tick, so the whole amount is available after exactly one period.
//! The long-run rate is above the quota by at most 10⁻⁶ up to 3,000 tokens a second; the page of
//! `TokenBucket` has the table. Headers and texts show the quota as written. Windows count units,
//! and nothing in them is rounded.

use std::time::Duration;

use super::codec::{damaged, put_number, take_number};
use crate::error::Error;

/// Ticks in a nanosecond. A tick is a third of a nanosecond, because 3/s, 30/s, 60/s, and 300/s are
/// common.
pub(super) const PER_NANO: u64 = 3;
/// Ticks in a microsecond, the unit of time of scripts.
pub(super) const PER_MICRO: u64 = 1000 * PER_NANO;

/// The longest debt, which is 48 years. A level of another rule is cut to it, too.
pub(super) const CUT: i64 = 1 << 62;

/// Returns a span in ticks, cut to ±[`CUT`].
pub(super) fn cut(ticks: i128) -> i64 {
    ticks.clamp(-i128::from(CUT), CUT.into()) as i64
}

/// Returns a span that is longer by `nanos` nanoseconds.
#[inline]
pub(super) fn longer(span: i64, nanos: u64) -> i64 {
    span.saturating_add_unsigned(nanos.saturating_mul(PER_NANO))
}

/// Returns a span that is not below zero in nanoseconds, rounded up.
#[inline]
pub(super) fn nanos_up(span: i64) -> u64 {
    (span as u64).div_ceil(PER_NANO)
}

/// The bit of a span in bytes that a former release set for spans of more than 146 years.
const LONG: u64 = 1 << 63;

/// Appends a span in nanoseconds: whole ones as 63 bits in two's complement, and the fraction in
/// 2⁻³² ns, rounded up.
pub(super) fn put_span(bytes: &mut Vec<u8>, span: i64) {
    let whole = span.div_euclid(PER_NANO as i64);
    let part = span.rem_euclid(PER_NANO as i64) as u64;
    put_number(bytes, whole as u64 & !LONG);
    put_number(bytes, (part << u32::BITS).div_ceil(PER_NANO));
}

/// Takes a span, rounded down to a tick; this is exact for what [`put_span`] wrote.
pub(super) fn take_span(bytes: &mut &[u8]) -> Result<i64, Error> {
    take_rounded(bytes, |fraction| (fraction * PER_NANO) >> u32::BITS)
}

/// Takes a span, rounded up to a tick: former releases wrote other fractions.
pub(super) fn take_span_up(bytes: &mut &[u8]) -> Result<i64, Error> {
    // The fraction itself was rounded up.
    take_rounded(bytes, |fraction| match fraction.checked_sub(1) {
        Some(less) => ((less * PER_NANO) >> u32::BITS) + 1,
        None => 0,
    })
}

/// Takes whole nanoseconds, and a fraction in 2⁻³² ns, which `ticks_of` converts to ticks.
///
/// A span of more than 48 years is one of a rule that this release does not have.
fn take_rounded(bytes: &mut &[u8], ticks_of: fn(u64) -> u64) -> Result<i64, Error> {
    let (whole, fraction) = (take_number(bytes)?, take_number(bytes)?);
    if whole & LONG != 0 || u32::try_from(fraction).is_err() {
        return Err(damaged());
    }
    let whole = (whole << 1) as i64 >> 1;
    let span = whole.checked_mul(PER_NANO as i64);
    span.and_then(|span| span.checked_add_unsigned(ticks_of(fraction)))
        .filter(|span| (-CUT..=CUT).contains(span))
        .ok_or_else(damaged)
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

/// Returns a wait that begins when the clock has caught up with the last write.
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

    fn taken(
        take: fn(&mut &[u8]) -> Result<i64, Error>,
        whole: u64,
        fraction: u64,
    ) -> Option<i128> {
        let mut bytes = Vec::new();
        put_number(&mut bytes, whole);
        put_number(&mut bytes, fraction);
        take(&mut &bytes[..]).ok().map(i128::from)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn spans_come_back(span in (0..=62_u32).prop_flat_map(|bits| -(1_i64 << bits)..=1 << bits)) {
            let mut bytes = Vec::new();
            put_span(&mut bytes, span);
            prop_assert_eq!(take_span(&mut &bytes[..]).unwrap(), span);
            prop_assert_eq!(take_span_up(&mut &bytes[..]).unwrap(), span);
        }

        /// The former release wrote any fraction of a nanosecond, rounded up to 2^-32.
        #[test]
        fn what_the_former_release_wrote_is_rounded(nanos in 0..1_u64 << 60, part in 0..1_u64 << 32, of in 1..=1_u64 << 32) {
            let part = part % of;
            let fraction = (part << 32).div_ceil(of);
            if fraction >> 32 > 0 {
                return Ok(());
            }
            let exact = |ticks: i128| ticks * i128::from(of);
            let written = (i128::from(nanos) * i128::from(of) + i128::from(part)) * i128::from(PER_NANO);
            // Less than a tick is lost, and what was taken is never less than it was.
            let held = taken(take_span, nanos, fraction).unwrap();
            prop_assert!(exact(held) <= written + i128::from(of) && written < exact(held + 1));
            let ticks = taken(take_span_up, nanos, fraction).unwrap();
            prop_assert!(exact(ticks + 1) > written && exact(ticks - 1) < written + i128::from(of));
        }

        #[test]
        fn spans_of_any_number_are_taken_or_refused(whole: u64, fraction: u64) {
            for take in [take_span, take_span_up] {
                let span = taken(take, whole, fraction);
                prop_assert!(span.is_none_or(|span| span.abs() <= CUT.into()));
            }
        }
    }

    /// A bucket or a queue of centuries, which former releases had.
    #[test]
    fn spans_of_more_than_48_years_are_refused() {
        let year = 365 * 86_400_000_000_000;
        for (whole, fraction) in [(49 * year, 0), (LONG | ((200 * year) >> 32), 7), (LONG, 0)] {
            assert_eq!(taken(take_span, whole, fraction), None);
            assert_eq!(taken(take_span_up, whole, fraction), None);
        }
        assert!(taken(take_span, 48 * year, 0).is_some());
    }
}
