//! The instants at which units passed.

use std::{collections::VecDeque, fmt};

use crate::time::Timestamp;

/// The state of a key under a [`SlidingLog`](super::SlidingLog): the instants at which units passed.
// Never empty between calls. The totals wrap; the log contains at most 2^64 - 1 units, so their differences are exact.
#[derive(Clone)]
pub struct SlidingLogState {
    /// Sorted by their instants, which are distinct; each contains at least one unit.
    entries: VecDeque<Entry>,
    /// Units that ever passed.
    total: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    at: Timestamp,
    /// The total before this entry.
    before: u64,
}

/// The buffer is never shrunk below this number of entries.
const LEAST: usize = 8;

impl SlidingLogState {
    /// Returns an empty log, for units that are added at once.
    #[inline]
    pub(super) const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            total: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns instants and units, the oldest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        let ends = self.entries.iter().skip(1).map(|entry| entry.before);
        self.entries
            .iter()
            .zip(ends.chain([self.total]))
            .map(|(entry, end)| (entry.at, end.wrapping_sub(entry.before)))
    }

    /// Returns the instant of entry `n`, if there is one.
    #[inline]
    pub(super) fn at(&self, n: usize) -> Option<Timestamp> {
        self.entries.get(n).map(|entry| entry.at)
    }

    #[inline]
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.entries.back().map(|entry| entry.at)
    }

    /// Returns the units of entry `n` and all newer ones.
    #[inline]
    pub(super) fn units_from(&self, n: usize) -> u64 {
        self.entries
            .get(n)
            .map_or(0, |entry| self.total.wrapping_sub(entry.before))
    }

    /// Returns the number of entries that are `period` nanoseconds old at `now`.
    #[inline]
    pub(super) fn older(&self, now: Timestamp, period: u64) -> usize {
        self.first(|entry| now.nanos_since(entry.at) >= period)
    }

    /// Returns how many of the oldest entries must go for the others to contain at most `room` units.
    #[inline]
    pub(super) fn above(&self, room: u64) -> usize {
        self.first(|entry| self.total.wrapping_sub(entry.before) > room)
    }

    /// Returns how many of the oldest entries fulfil a condition that no later entry fulfils.
    #[inline]
    fn first(&self, goes: impl Fn(&Entry) -> bool) -> usize {
        // Mostly none or one for a busy key, where a binary search would mispredict every branch.
        for n in 0..2 {
            if !self.entries.get(n).is_some_and(&goes) {
                return n;
            }
        }
        self.entries.partition_point(goes)
    }

    /// Discards the `n` oldest entries.
    ///
    /// Shrinks the buffer only when it is at most a quarter full. After the last move it was half full, so at least as many
    /// entries have gone since as are moved now.
    #[inline]
    pub(super) fn discard(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        if n == 1 {
            self.entries.pop_front();
        } else {
            self.entries.drain(..n);
        }
        let len = self.entries.len();
        if len <= self.entries.capacity() / 4 {
            self.entries.shrink_to(LEAST.max(2 * len));
        }
    }

    /// Adds units at an instant that is not before the newest entry.
    #[inline]
    pub(super) fn push(&mut self, at: Timestamp, units: u64) {
        if self.newest() != Some(at) {
            let before = self.total;
            self.entries.push_back(Entry { at, before });
        }
        self.total = self.total.wrapping_add(units);
    }

    /// Gives back units of an instant, at most those that are there.
    pub(super) fn take_back(&mut self, at: Timestamp, units: u64) {
        if let Ok(n) = self.find(at) {
            let there = self.units_from(n).wrapping_sub(self.units_from(n + 1));
            let taken = units.min(there);
            self.shift(n, taken.wrapping_neg());
            if taken == there {
                self.entries.remove(n);
            }
        }
    }

    /// Adds units at any instant, up to a total of 2⁶⁴ − 1.
    ///
    /// If nothing is left of that instant, they join the next newer entry, which leaves later: a log in a store has no
    /// room between two entries. Only the newest instant gets a new entry, unless the log is full.
    pub(super) fn force(&mut self, at: Timestamp, units: u64, limit: u64) {
        let counted = self.units_from(0);
        let units = units.min(u64::MAX - counted);
        let (Ok(n) | Err(n)) = self.find(at);
        let len = self.entries.len();
        if n < len {
            self.shift(n, units);
        } else if len > 0 && counted >= limit {
            self.entries[len - 1].at = at;
            self.shift(len - 1, units);
        } else {
            self.push(at, units);
        }
    }

    fn find(&self, at: Timestamp) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&at, |entry| entry.at)
    }

    /// Adds units to entry `n`, modulo 2⁶⁴.
    fn shift(&mut self, n: usize, units: u64) {
        for entry in self.entries.range_mut(n + 1..) {
            entry.before = entry.before.wrapping_add(units);
        }
        self.total = self.total.wrapping_add(units);
    }
}

/// Two logs are equal if they contain the same units at the same instants.
impl PartialEq for SlidingLogState {
    fn eq(&self, other: &Self) -> bool {
        self.entries().eq(other.entries())
    }
}

impl Eq for SlidingLogState {}

impl fmt::Debug for SlidingLogState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlidingLogState")?;
        f.debug_map().entries(self.entries()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::{Algorithm, SlidingLog, Step},
        decision::Cost,
    };

    const SECOND: u64 = 1_000_000_000;

    /// A log whose steps count the entries that they move to other room.
    struct Counted {
        rule: SlidingLog,
        state: Option<SlidingLogState>,
        capacity: usize,
        admitted: usize,
        moved: usize,
    }

    impl Counted {
        fn new(limit: u64) -> Self {
            Self {
                rule: SlidingLog::per_second(limit),
                state: None,
                capacity: 0,
                admitted: 0,
                moved: 0,
            }
        }

        fn log(&self) -> &SlidingLogState {
            self.state.as_ref().unwrap()
        }

        fn step(&mut self, nanos: u64) {
            let now = Timestamp::from_nanos(nanos);
            if let Step::Wrote(_) = self.rule.step(&mut self.state, now, Cost::ONE) {
                self.admitted += 1;
            }
            let capacity = self.log().entries.capacity();
            if capacity != self.capacity {
                self.moved += self.log().len();
            }
            self.capacity = capacity;
            assert!(capacity <= (4 * self.log().len()).max(LEAST));
        }
    }

    #[test]
    fn ten_thousand_are_discarded_at_once_and_their_room_given_back() {
        let mut log = Counted::new(10_000);
        for now in 0..10_000 {
            log.step(now);
        }
        assert_eq!(log.log().len(), 10_000);
        assert!(log.capacity >= 10_000);
        // As long as they count, refusals move nothing.
        let moved = log.moved;
        for now in 10_000..20_000 {
            log.step(now);
        }
        assert_eq!((log.admitted, log.moved), (10_000, moved));
        log.step(2 * SECOND);
        assert_eq!((log.log().len(), log.capacity), (1, LEAST));
    }

    #[test]
    fn a_log_moves_three_entries_at_most_for_each_that_it_was_given() {
        // Bursts, pauses, and a trickle at which the length stays around any that the room changes at.
        for (limit, gaps) in [
            (10_000, &[1][..]),
            (10_000, &[SECOND / 20_000]),
            (10_000, &[SECOND / 5_000, SECOND / 20_000]),
            (5_000, &[1, 1, 1, SECOND / 2_000]),
            (64, &[SECOND / 64, SECOND / 15, SECOND / 17]),
            (16, &[1, SECOND / 8, SECOND / 5, 1, SECOND / 3]),
        ] {
            let mut log = Counted::new(limit);
            let mut now = 0;
            for n in 0..60_000 {
                now += gaps[n / 7_000 % gaps.len()];
                if n % 20_000 == 19_999 {
                    now += SECOND;
                }
                log.step(now);
            }
            let (moved, admitted) = (log.moved, log.admitted);
            assert!(admitted > 1_000, "{limit} {gaps:?}: {admitted}");
            assert!(
                moved <= 3 * admitted,
                "{limit} {gaps:?}: {moved} for {admitted}"
            );
        }
    }
}
