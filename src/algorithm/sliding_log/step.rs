//! The step of a sliding log.

use std::time::Duration;

use super::{SlidingLog, log::SlidingLogState};
use crate::{
    algorithm::{Algorithm, StateKind, Step},
    decision::{Charge, Cost, Decision, Numbers, Verdict},
    time::Timestamp,
};

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

    /// Returns the time from `now` until the log counts at most `room` units, which is fewer than it counts now.
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
    /// Takes time in proportion to the entries. If the entry is gone, because it was given back or the key was forgotten,
    /// additional units are added all the same: to the next newer entry, and if there is none, at that instant, or to the
    /// newest entry if the log counts as many units as the limit. Nothing comes back of a call that was charged while the
    /// clock had stepped back: its entry lies at a later instant.
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
    fn grant_at(&self, look: &Decision) -> Timestamp {
        let newest_leaves = look.at().saturating_add(look.reset_after()).as_nanos();
        match newest_leaves.checked_sub(self.quota.period_nanos()) {
            Some(newest) if !look.reset_after().is_zero() => Timestamp::from_nanos(newest),
            _ => look.at(),
        }
    }

    /// Each unit can have an entry: its units, and the time since the entry before, for which equal times take the most bytes.
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
