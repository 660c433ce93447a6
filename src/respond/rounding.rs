//! Rounds and clamps the whole numbers of header fields.

use std::time::Duration;

use crate::quota::Quota;

/// The largest Integer of a structured field: 15 digits (RFC 9651 §3.3.1).
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

const NANOS: u128 = 1_000_000_000;

/// Returns a number, at most [`MAX_INTEGER`].
fn clamp(number: u128) -> u64 {
    u64::try_from(number).map_or(MAX_INTEGER, |number| number.min(MAX_INTEGER))
}

/// Returns a wait in whole seconds, rounded up.
pub(super) fn seconds(wait: Duration) -> u64 {
    let fraction = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(fraction).min(MAX_INTEGER)
}

/// Returns the end of a wait that begins `nanos` nanoseconds after the Unix epoch, in Unix seconds, rounded up.
pub(super) fn unix_seconds_after(nanos: u64, wait: Duration) -> u64 {
    clamp((u128::from(nanos) + wait.as_nanos()).div_ceil(NANOS))
}

/// Returns the seconds in which `quota` grants `units`, rounded up.
pub(super) fn seconds_for(units: u64, quota: &Quota) -> u64 {
    // Below 2^64 · 2^63.
    let product = u128::from(units) * u128::from(quota.period_nanos());
    clamp(product.div_ceil(u128::from(quota.amount()) * NANOS))
}

/// Returns the units that `quota` grants within `seconds`, rounded down.
pub(super) fn units_within(seconds: u64, quota: &Quota) -> u64 {
    // Below 2^64 · 2^41 · 2^30, and in fact below 2^121: seconds are clamped.
    let product = u128::from(seconds.min(MAX_INTEGER)) * u128::from(quota.amount()) * NANOS;
    clamp(product / u128::from(quota.period_nanos()))
}

/// Returns the window in which `quota` grants `units`, in seconds rounded up; `None` below a second.
pub(super) fn window(units: u64, quota: &Quota) -> Option<u64> {
    let sub_second =
        u128::from(units) * u128::from(quota.period_nanos()) < u128::from(quota.amount()) * NANOS;
    (!sub_second).then(|| seconds_for(units, quota))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_clamped() {
        assert_eq!(seconds(Duration::ZERO), 0);
        assert_eq!(seconds(Duration::from_nanos(1)), 1);
        assert_eq!(seconds(Duration::from_secs(2)), 2);
        assert_eq!(seconds(Duration::MAX), MAX_INTEGER);
        assert_eq!(unix_seconds_after(u64::MAX, Duration::MAX), MAX_INTEGER);
        assert_eq!(
            unix_seconds_after(1_500_000_000, Duration::from_millis(500)),
            2
        );
    }

    #[test]
    fn products_do_not_overflow() {
        let slowest = Quota::new(1, Quota::MAX_PERIOD);
        let fastest = Quota::per_second(Quota::MAX_AMOUNT);
        assert_eq!(seconds_for(u64::MAX, &slowest), MAX_INTEGER);
        assert_eq!(units_within(u64::MAX, &fastest), MAX_INTEGER);
        assert_eq!(units_within(MAX_INTEGER, &slowest), 108_420);
        assert_eq!(window(Quota::MAX_AMOUNT, &fastest), Some(1));
        assert_eq!(window(Quota::MAX_AMOUNT - 1, &fastest), None);
    }
}
