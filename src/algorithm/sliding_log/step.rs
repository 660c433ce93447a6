//! The instants at which units passed, and the step of a sliding log.

use std::{collections::VecDeque, fmt, time::Duration};

use super::SlidingLog;
use crate::{
    algorithm::{Algorithm, StateKind, Step},
    decision::{Charge, Cost, Decision, Numbers, Verdict},
    time::Timestamp,
};

/// The state of a key under a [`SlidingLog`]: the instants at which units passed.
// Never empty between calls. The totals wrap; the log contains at most 2^64 - 1 units, so their
// differences are exact.
#[derive(Clone)]
pub struct SlidingLogState {
    /// Sorted by their instants, which are distinct; each contains at least one unit.
    entries: VecDeque<LogEntry>,
    /// Units that ever passed.
    total: u64,
}

#[derive(Clone, Copy)]
struct LogEntry {
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
    fn older(&self, now: Timestamp, period: u64) -> usize {
        self.first(|entry| now.nanos_since(entry.at) >= period)
    }

    /// Returns how many of the oldest entries must go for the others to contain at most `room`
    /// units.
    #[inline]
    fn above(&self, room: u64) -> usize {
        self.first(|entry| self.total.wrapping_sub(entry.before) > room)
    }

    /// Returns how many of the oldest entries fulfil a condition that no later entry fulfils.
    #[inline]
    fn first(&self, goes: impl Fn(&LogEntry) -> bool) -> usize {
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
    /// Shrinks the buffer only when it is at most a quarter full. After the last move it was half
    /// full, so at least as many entries have gone since as are moved now.
    #[inline]
    fn discard(&mut self, n: usize) {
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
            self.entries.push_back(LogEntry { at, before });
        }
        self.total = self.total.wrapping_add(units);
    }

    /// Refunds units of an instant, at most those that are there.
    fn take_back(&mut self, at: Timestamp, units: u64) {
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
    /// If nothing is left of that instant, they join the next newer entry, which leaves later: a
    /// log in a store has no room between two entries. Only the newest instant gets a new entry,
    /// unless the log is full.
    fn force(&mut self, at: Timestamp, units: u64, limit: u64) {
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

/// The entries that count: those from `first` on, and their units.
#[derive(Default)]
struct Counting {
    first: usize,
    units: u64,
}

impl SlidingLog {
    #[inline]
    fn counted(&self, log: Option<&SlidingLogState>, at: Timestamp) -> Counting {
        let Some(log) = log else {
            return Counting::default();
        };
        let first = log.older(at, self.quota.period_nanos());
        let units = log.units_from(first);
        Counting { first, units }
    }

    /// Returns the time from `now` until an entry no longer counts.
    #[inline]
    fn gone_after(&self, at: Timestamp, now: Timestamp) -> Duration {
        let left = self
            .quota
            .period_nanos()
            .saturating_sub(now.nanos_since(at));
        // The entry lies ahead of a clock that has stepped back.
        Duration::from_nanos(left.saturating_add(at.nanos_since(now)))
    }

    /// Returns the time from `now` until the log counts at most `room` units, which is fewer than
    /// it counts now.
    #[inline]
    fn room_after(&self, log: &SlidingLogState, room: u64, now: Timestamp) -> Duration {
        let last = log.at(log.above(room).saturating_sub(1));
        last.map_or(Duration::ZERO, |at| self.gone_after(at, now))
    }

    #[inline]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        log: Option<&SlidingLogState>,
        counted: &Counting,
    ) -> Decision {
        let limit = self.limit();
        let (mut more_after, mut reset_after) = (Duration::ZERO, Duration::ZERO);
        if let Some(log) = log.filter(|_| counted.units > 0) {
            more_after = if counted.units <= limit.get() {
                log.at(counted.first)
                    .map_or(Duration::ZERO, |at| self.gone_after(at, now))
            } else {
                self.room_after(log, limit.get() - 1, now)
            };
            reset_after = log
                .newest()
                .map_or(Duration::ZERO, |at| self.gone_after(at, now));
        }
        Decision::new(verdict, now, cost)
            .with_limit(limit, self.quota)
            .with_numbers(Numbers {
                remaining: limit.get().saturating_sub(counted.units),
                more_after,
                reset_after,
            })
    }

    /// Returns the decision on a cost that does not pass.
    fn refuse(
        &self,
        now: Timestamp,
        cost: u64,
        asked: u64,
        log: Option<&SlidingLogState>,
        counted: &Counting,
    ) -> Decision {
        let room = self.limit().get().checked_sub(asked);
        let retry_after = room.and_then(|room| Some(self.room_after(log?, room, now)));
        self.answer(Verdict::Refuse, now, cost, log, counted)
            .with_retry_after(retry_after)
    }
}

/// Returns the instant that a log is evaluated at: `now`, or its newest entry if that is later.
#[inline]
fn instant(log: Option<&SlidingLogState>, now: Timestamp) -> Timestamp {
    log.and_then(SlidingLogState::newest)
        .map_or(now, |newest| now.max(newest))
}

impl Algorithm for SlidingLog {
    type State = SlidingLogState;

    #[inline]
    fn step(&self, state: &mut Option<SlidingLogState>, now: Timestamp, cost: Cost) -> Step {
        let at = instant(state.as_ref(), now);
        let counted = self.counted(state.as_ref(), at);
        if cost.get() > self.limit().get().saturating_sub(counted.units) {
            let decision = self.refuse(now, cost.get(), cost.get(), state.as_ref(), &counted);
            return Step::Kept(decision);
        }
        let log = state.get_or_insert_with(SlidingLogState::new);
        log.discard(counted.first);
        log.push(at, cost.get());
        let counted = Counting {
            first: 0,
            units: counted.units + cost.get(),
        };
        Step::Wrote(self.answer(Verdict::Allow, now, cost.get(), Some(log), &counted))
    }

    fn look(&self, state: Option<&SlidingLogState>, now: Timestamp) -> Decision {
        let counted = self.counted(state, instant(state, now));
        if counted.units < self.limit().get() {
            self.answer(Verdict::Allow, now, 0, state, &counted)
        } else {
            self.refuse(now, 0, 1, state, &counted)
        }
    }

    /// Corrects the entry of the charged instant while that counts.
    ///
    /// Takes time in proportion to the entries. If the entry is gone, because it was refunded or
    /// the key was forgotten, additional units are added all the same: to the next newer entry, and
    /// if there is none, at that instant, or to the newest entry if the log counts as many units as
    /// the limit. Nothing comes back of a call that was charged while the clock had stepped back:
    /// its entry lies at a later instant.
    fn settle(
        &self,
        state: &mut Option<SlidingLogState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let (at, period) = (instant(state.as_ref(), now), self.quota.period_nanos());
        if actual == charge.cost || at.nanos_since(charge.at) >= period {
            return;
        }
        let mut log = state.take().unwrap_or_else(SlidingLogState::new);
        log.discard(log.older(at, period));
        match charge.cost.checked_sub(actual) {
            Some(less) => log.take_back(charge.at, less),
            None => log.force(charge.at, actual - charge.cost, self.limit().get()),
        }
        *state = (!log.is_empty()).then_some(log);
    }

    /// Returns the instant of the newest entry, which leaves last.
    fn grant_at(&self, look: &Decision) -> Option<Timestamp> {
        let newest_leaves = look.at().saturating_add(look.reset_after()).as_nanos();
        let newest = newest_leaves.checked_sub(self.quota.period_nanos())?;
        (!look.reset_after().is_zero()).then_some(Timestamp::from_nanos(newest))
    }

    /// Each unit can have an entry: its units, and the time since the entry before, for which equal
    /// times take the most bytes.
    fn most_bytes(&self) -> u64 {
        let (entries, period) = (self.limit().get(), self.quota.period_nanos());
        let bits = u64::from(u64::BITS - (period / entries).leading_zeros());
        entries.saturating_mul(bits + 14) / 7
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, log: &SlidingLogState) -> Timestamp {
        let newest = log.newest().map_or(0, Timestamp::as_nanos);
        Timestamp::from_nanos(newest.saturating_add(self.quota.period_nanos()))
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
        // Bursts, pauses, and a trickle at which the length stays around any that the room changes
        // at.
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
