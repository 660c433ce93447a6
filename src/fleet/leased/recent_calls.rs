//! The keys without leases that were called a short while ago.
//!
//! A key gets leases with its second call within a lease duration. The first one leaves 16 bytes:
//! its fingerprint and its time. An entry for each key would slow rarely used keys by a quarter,
//! and an attacker with many keys would fill the room of others. Calls that come while the first is
//! under way wait for its answer, as later ones do: with two requests for each key at a start, a
//! slow store did not recover in the simulation.

use std::time::Duration;

use crate::time::Timestamp;

/// The last call of keys without leases, so that a key takes memory for leases with its second call
/// only.
///
/// Each key has one place, which others may take from it. A key that was forgotten is answered once
/// more as if there were no leases.
pub(super) struct RecentCalls {
    calls: Box<[RecentCall]>,
}

#[derive(Clone, Copy, Default)]
struct RecentCall {
    /// No key has the fingerprint 0.
    fingerprint: u64,
    /// In milliseconds, of which the upper bits are left out.
    at: u32,
    is_under_way: bool,
}

/// The former call of a key, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Former {
    /// There was none within the hold.
    None,
    Answered,
    UnderWay,
}

impl RecentCalls {
    /// Makes places for at least so many keys.
    pub(super) fn new(keys: usize) -> Self {
        Self {
            calls: vec![RecentCall::default(); keys.max(1).next_power_of_two()].into(),
        }
    }

    /// Notes a call, and returns what is known about the former one. The first one within the hold
    /// is under way from now on.
    pub(super) fn note(&mut self, fingerprint: u64, now: Timestamp, hold: Duration) -> Former {
        let now = Duration::from_nanos(now.as_nanos()).as_millis() as u32;
        let call = self.place(fingerprint);
        let is_known = call.fingerprint == fingerprint
            && (call.is_under_way || u128::from(now.wrapping_sub(call.at)) <= hold.as_millis());
        if is_known {
            call.at = now;
            return match call.is_under_way {
                true => Former::UnderWay,
                false => Former::Answered,
            };
        }
        *call = RecentCall {
            fingerprint,
            at: now,
            is_under_way: true,
        };
        Former::None
    }

    /// Notes that the first call of a key has its answer, or will have none.
    pub(super) fn ended(&mut self, fingerprint: u64) {
        let call = self.place(fingerprint);
        call.is_under_way &= call.fingerprint != fingerprint;
    }

    fn place(&mut self, fingerprint: u64) -> &mut RecentCall {
        let last = self.calls.len() - 1;
        &mut self.calls[fingerprint as usize & last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_second_call_within_a_hold_is_recognized() {
        let mut calls = RecentCalls::new(100);
        assert_eq!(calls.note(5, at(1000), HOLD), Former::None);
        calls.ended(5);
        assert_eq!(calls.note(5, at(1100), HOLD), Former::Answered);
        assert_eq!(calls.note(5, at(1201), HOLD), Former::None);
        calls.ended(5);
        assert_eq!(calls.note(5, at(1201), HOLD), Former::Answered);
    }

    #[test]
    fn a_call_without_an_answer_is_under_way_for_long() {
        let mut calls = RecentCalls::new(100);
        assert_eq!(calls.note(5, at(1000), HOLD), Former::None);
        assert_eq!(calls.note(5, at(9000), HOLD), Former::UnderWay);
        calls.ended(5);
        assert_eq!(calls.note(5, at(9100), HOLD), Former::Answered);
    }

    #[test]
    fn keys_of_one_place_are_told_apart() {
        let mut calls = RecentCalls::new(100);
        let other = 5 + 128;
        assert_eq!(calls.note(5, at(1000), HOLD), Former::None);
        assert_eq!(calls.note(other, at(1000), HOLD), Former::None);
        calls.ended(5);
        assert_eq!(calls.note(other, at(1000), HOLD), Former::UnderWay);
        assert_eq!(calls.note(5, at(1000), HOLD), Former::None, "forgotten");
    }

    #[test]
    fn the_count_of_milliseconds_may_overflow() {
        let (mut calls, last) = (RecentCalls::new(100), u64::from(u32::MAX));
        assert_eq!(calls.note(5, at(last), HOLD), Former::None);
        calls.ended(5);
        assert_eq!(calls.note(5, at(last + 2), HOLD), Former::Answered);
    }
}
