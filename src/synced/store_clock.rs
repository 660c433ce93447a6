//! The clock of the store, as this node knows it.

use crate::time::Timestamp;

/// An estimate of the clock of the store, that is behind it by the way of an answer at most, and never ahead.
///
/// A node that were ahead would refill buckets early. Behind, it refuses for a moment what the store would admit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoreClock {
    /// An instant by the clock of this node.
    here: Timestamp,
    /// What the clock of the store showed then, or shortly after.
    store: Timestamp,
}

impl StoreClock {
    /// Clocks differ by less than one part in so many.
    const DRIFT: u32 = 1000;

    /// Returns the instant by the clock of the store.
    #[inline]
    pub(super) fn at(&self, now: Timestamp) -> Timestamp {
        match now >= self.here {
            true => self.store.saturating_add(now.saturating_since(self.here)),
            false => self.store.saturating_sub(self.here.saturating_since(now)),
        }
    }

    /// Takes in an answer, which has the clock of the store at some instant between the request and the answer.
    ///
    /// Of two answers the one that was faster is right. What is known from earlier ones counts less with time, because clocks drift, and
    /// never more than this answer allows, because the clock of the store may have been set back.
    pub(super) fn note(&mut self, sent: Timestamp, store: Timestamp, now: Timestamp) {
        let since = now.saturating_since(self.here);
        let known = self.at(now).saturating_sub(since / Self::DRIFT);
        let latest = store.saturating_add(now.saturating_since(sent));
        *self = Self {
            here: now,
            store: store.max(known.min(latest)),
        };
    }
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
        clock.note(at(0), at(5_000), at(2));
        assert_eq!(clock.at(at(10)), at(5_008));
        assert_eq!(clock.at(at(1)), at(4_999));
        // This answer took 20 ms for its way back.
        clock.note(at(10), at(5_010), at(32));
        assert_eq!(
            clock.at(at(32)),
            at(5_030).saturating_sub(at(30).saturating_since(at(0)) / 1000)
        );
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed() {
        let mut clock = StoreClock::default();
        clock.note(at(0), at(50_000), at(2));
        clock.note(at(10), at(20_000), at(12));
        assert_eq!(clock.at(at(12)), at(20_002));
    }
}
