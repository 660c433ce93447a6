//! The clock of the store, as this node knows it.
//!
//! Each key has its own estimate, from its own answers: an instant that is never later than the
//! truth, so that no bucket is refilled early, beside the latest that it may be. The second one
//! decides whether a bucket may have been full, so that a delta must begin. With the first alone,
//! one of 160,000 schedules exceeded the limit by a unit.

use std::time::Duration;

use crate::{algorithm::Syncable, decision::Charge, time::Timestamp};

/// Two bounds of the clock of the store: an estimate that is behind it by the way of an answer at
/// most, and the latest that it may show.
///
/// A node that were ahead would refill buckets early. Behind, it refuses for a moment what the
/// store would admit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoreClock {
    /// An instant by the clock of this node; the first one while nothing is known.
    here: Timestamp,
    /// The earliest time that the clock of the store can have shown then.
    earliest: Timestamp,
    /// The latest time that it can have shown then.
    latest: Timestamp,
}

impl StoreClock {
    /// Clocks differ by less than one part in so many.
    const DRIFT: u32 = 1000;
    /// The next power of two, because this is computed for each call.
    const DRIFT_SHIFT: u32 = 9;

    /// Returns the instant by the clock of the store. It is not earlier than this.
    #[inline]
    pub(super) fn at(&self, now: Timestamp) -> Timestamp {
        match now >= self.here {
            true => self
                .earliest
                .saturating_add(now.saturating_since(self.here)),
            false => self
                .earliest
                .saturating_sub(self.here.saturating_since(now)),
        }
    }

    /// Returns the latest instant that the clock of the store may show.
    pub(super) fn latest(&self, now: Timestamp) -> Timestamp {
        let since = now.nanos_since(self.here);
        let since = since.saturating_add(since >> Self::DRIFT_SHIFT);
        self.latest.saturating_add(Duration::from_nanos(since))
    }

    /// Takes in an answer, which has the clock of the store at some instant between the request and
    /// the answer.
    ///
    /// Of two answers the one that was faster is right. What is known from earlier ones counts less
    /// with time, because clocks drift, and never more than this answer allows, because the clock
    /// of the store may have been set.
    pub(super) fn note(&mut self, sent: Timestamp, store: Timestamp, now: Timestamp) {
        let latest = store.saturating_add(now.saturating_since(sent));
        let is_first = self.here == Timestamp::default();
        let since = now.saturating_since(self.here);
        let (known, known_latest) = match is_first {
            true => (store, latest),
            false => (
                self.at(now).saturating_sub(since / Self::DRIFT),
                self.latest(now),
            ),
        };
        *self = Self {
            here: now,
            earliest: known.clamp(store, latest),
            latest: known_latest.clamp(store, latest),
        };
    }
}

/// The units that this node and all others admitted lately, as far as the answers of the store show
/// them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Those since an instant: its own, and those of the others.
    late: [u64; 2],
    since: Timestamp,
    /// Those of the periods before it, of which each counts three quarters of the next one.
    earlier: [u64; 2],
}

impl Traffic {
    /// Below so many units a period, a share says little: others push theirs in batches.
    const LEAST: u64 = 50;

    /// Takes in what was admitted between two answers; `None` if that is not known.
    pub(super) fn note(&mut self, now: Timestamp, units: Option<[u64; 2]>, period: Duration) {
        if now.saturating_since(self.since) >= period {
            for (sum, late) in self.earlier.iter_mut().zip(self.late) {
                *sum = (*sum - sum.div_ceil(4)).saturating_add(late);
            }
            (self.since, self.late) = (now, [0; 2]);
        }
        for (sum, more) in self.late.iter_mut().zip(units.unwrap_or_default()) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Returns the part of this node in thousandths; `None` if it admits too little to tell.
    pub(super) fn share_permille(&self) -> Option<u64> {
        let [own, others] = self.earlier;
        if own < 4 * Self::LEAST {
            return None;
        }
        let all = u128::from(own) + u128::from(others);
        u64::try_from(u128::from(own) * 1000 / all).ok()
    }
}

/// Returns what remains of a key. It is negative if more than the limit is spent.
pub(super) fn remaining<Rule: Syncable>(
    rule: &Rule,
    state: Option<&Rule::State>,
    at: Timestamp,
) -> i128 {
    let look = rule.look(state, at);
    let remaining = i128::from(look.remaining().unwrap_or(0));
    let (0, Some(limit)) = (remaining, look.limit()) else {
        return remaining;
    };
    // A whole limit that is refunded fills all but what is owed.
    let mut filled = state.cloned();
    rule.settle(&mut filled, &Charge::new(at, limit), at, 0);
    let filled = rule.look(filled.as_ref(), at).remaining().unwrap_or(0);
    i128::from(filled) - i128::from(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_fast_answer_is_kept_until_clocks_may_have_drifted() {
        let mut clock = StoreClock::default();
        clock.note(at(1), at(5_000), at(3));
        assert_eq!(
            (clock.at(at(3)), clock.latest(at(3))),
            (at(5_000), at(5_002))
        );
        assert_eq!(clock.at(at(11)), at(5_008));
        assert_eq!(clock.at(at(2)), at(4_999));
        // This answer took 20 ms for its way back.
        clock.note(at(11), at(5_010), at(33));
        let drift = at(30).saturating_since(at(0)) / 1000;
        assert_eq!(clock.at(at(33)), at(5_030).saturating_sub(drift));
        assert_eq!(clock.latest(at(33)), at(5_032));
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        let mut clock = StoreClock::default();
        clock.note(at(1), at(50_000), at(3));
        clock.note(at(11), at(20_000), at(13));
        assert_eq!(
            (clock.at(at(13)), clock.latest(at(13))),
            (at(20_002), at(20_002))
        );
        clock.note(at(21), at(70_000), at(23));
        assert_eq!(
            (clock.at(at(23)), clock.latest(at(23))),
            (at(70_000), at(70_000))
        );
    }
}
