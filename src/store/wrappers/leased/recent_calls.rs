//! The keys that were called a short while ago.

use crate::time::Timestamp;

/// The most places: the bits of a fingerprint that are not compared.
const MOST: usize = 1 << 31;

/// The last call of keys without leases, so that a key takes memory for leases with its second call only.
///
/// A key that is forgotten too early is answered once more as if there were no leases, and one that is taken for another gets its leases a call too early.
pub(super) struct RecentCalls {
    /// Of each key a part of its fingerprint, and the millisecond of its call: 32 bits each. A new key takes the place of another.
    calls: Box<[u64]>,
}

impl RecentCalls {
    /// Makes places for at least so many keys.
    pub(super) fn new(keys: usize) -> Self {
        // The system provides the memory when it is used.
        Self {
            calls: vec![0; keys.clamp(1, MOST).next_power_of_two()].into(),
        }
    }

    /// Notes a call. Returns `true` if the key had another one within the last `hold`, in nanoseconds.
    pub(super) fn note(&mut self, fingerprint: u64, now: Timestamp, hold: u64) -> bool {
        // The shard was chosen by other bits.
        let place = fingerprint as usize & (self.calls.len() - 1);
        let now = now.as_nanos() / NANOS_PER_MILLI;
        let (key, at) = (fingerprint & !u64::from(u32::MAX), now as u32);
        let last = std::mem::replace(&mut self.calls[place], key | u64::from(at));
        let elapsed = u64::from(at.wrapping_sub(last as u32));
        last & !u64::from(u32::MAX) == key && elapsed <= hold / NANOS_PER_MILLI
    }
}

const NANOS_PER_MILLI: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: u64 = 100 * NANOS_PER_MILLI;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * NANOS_PER_MILLI)
    }

    #[test]
    fn the_second_call_within_a_hold_is_recognized() {
        let mut calls = RecentCalls::new(1000);
        let key = 7 << 32 | 5;
        assert!(!calls.note(key, at(1000), HOLD));
        assert!(calls.note(key, at(1100), HOLD));
        assert!(!calls.note(key, at(1201), HOLD));
        assert!(calls.note(key, at(1201), HOLD));
    }

    #[test]
    fn keys_of_one_place_are_told_apart() {
        let mut calls = RecentCalls::new(1000);
        let (one, other) = (7 << 32 | 5, 8 << 32 | 5);
        assert!(!calls.note(one, at(1000), HOLD));
        assert!(!calls.note(other, at(1000), HOLD));
        assert!(!calls.note(one, at(1000), HOLD), "its place was taken");
        assert!(calls.note(one, at(1000), HOLD));
    }

    #[test]
    fn the_count_of_milliseconds_may_overflow() {
        let mut calls = RecentCalls::new(1000);
        let (key, last) = (7 << 32 | 5, u64::from(u32::MAX));
        assert!(!calls.note(key, at(last), HOLD));
        assert!(calls.note(key, at(last + 2), HOLD));
    }
}
