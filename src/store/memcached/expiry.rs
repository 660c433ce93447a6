//! How long the server keeps what it is given.

use std::time::Duration;

/// From here on the server takes a number for a date (memcached `protocol.txt`, "Expiration times"): 30 days.
const LONGEST: u64 = 60 * 60 * 24 * 30;

/// The latest date that every server understands, in Unix seconds: they read 32 bits with a sign.
const LATEST: u64 = i32::MAX as u64;

/// The expiry that the server is told, in its own numbers: no earlier than after `keep`.
///
/// Rounded up to whole seconds, and two more: the server's clock ticks in seconds, of which the present one may be almost
/// over, and the tick may be late. `now` is the server's Unix time in seconds, no less than it is. What must be
/// kept beyond the latest date does not expire: 0.
pub(super) fn of(keep: Duration, now: impl FnOnce() -> u64) -> u64 {
    let up = u64::from(keep.subsec_nanos() != 0);
    let seconds = keep.as_secs().saturating_add(up).saturating_add(2);
    if seconds <= LONGEST {
        return seconds;
    }
    let date = now().saturating_add(seconds);
    if date <= LATEST { date } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const NOW: u64 = 1_800_000_000;

    fn at(keep: Duration) -> u64 {
        of(keep, || NOW)
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
    fn beyond_the_last_date_nothing_expires() {
        let last = Duration::from_secs(LATEST - NOW - 2);
        assert_eq!(at(last), LATEST);
        assert_eq!(at(last + Duration::from_nanos(1)), 0);
        assert_eq!(at(Duration::MAX), 0);
    }
}
