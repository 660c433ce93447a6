//! Expiry times of values.

use std::time::Duration;

/// The longest relative expiry in seconds, 30 days; above it the server reads a date (memcached `protocol.txt`, "Expiration
/// times").
const MAX_RELATIVE: u64 = 60 * 60 * 24 * 30;

/// The latest date in Unix seconds: servers read 32 bits with a sign.
const MAX_DATE: u64 = i32::MAX as u64;

/// Returns the expiry of a value that must be kept for `keep`, in the server's format; 0 means never.
///
/// The time is rounded up to whole seconds, plus two: the server's clock ticks in seconds, the current second may be almost
/// over, and the tick may be late. `now` returns the server's Unix time in seconds, not less than the true one. A value that
/// must be kept beyond the latest date does not expire.
pub(super) fn expiry(keep: Duration, now: impl FnOnce() -> u64) -> u64 {
    let up = u64::from(keep.subsec_nanos() != 0);
    let seconds = keep.as_secs().saturating_add(up).saturating_add(2);
    if seconds <= MAX_RELATIVE {
        return seconds;
    }
    let date = now().saturating_add(seconds);
    if date <= MAX_DATE { date } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const NOW: u64 = 1_800_000_000;

    fn at(keep: Duration) -> u64 {
        expiry(keep, || NOW)
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(at(Duration::from_nanos(1)), 3);
        assert_eq!(at(Duration::from_secs(1)), 3);
        assert_eq!(at(Duration::from_millis(1001)), 4);
        assert_eq!(at(DAY), 86_402);
    }

    #[test]
    fn beyond_thirty_days_it_is_a_date() {
        assert_eq!(at(30 * DAY - Duration::from_secs(2)), 2_592_000);
        assert_eq!(at(30 * DAY - Duration::from_secs(1)), NOW + 2_592_001);
        assert_eq!(at(365 * DAY), NOW + 365 * 86_400 + 2);
    }

    #[test]
    fn beyond_the_latest_date_values_do_not_expire() {
        let last = Duration::from_secs(MAX_DATE - NOW - 2);
        assert_eq!(at(last), MAX_DATE);
        assert_eq!(at(last + Duration::from_nanos(1)), 0);
        assert_eq!(at(Duration::MAX), 0);
    }
}
