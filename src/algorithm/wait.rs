//! Waits of decisions.

use std::time::Duration;

use super::ticks::PER_NANO;

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
