//! Windows of the calendar in one word.
//!
//! The packed state of a window is its beginning, plus a tick for each counted unit: so packed states grow from window to window.

use super::{
    rule::{Begin, FixedWindow},
    step::FixedWindowState,
};
use crate::{
    algorithm::{
        packed::{Meaning, Metering, PackedKind, PackedState, StoreTime},
        ticks::PER_NANO,
    },
    decision::{Cost, Decision},
    time::Timestamp,
};

impl Metering for FixedWindow {
    const AHEAD: u64 = PackedState::LONGEST;

    #[inline]
    fn packed_kind(&self) -> PackedKind {
        PackedKind::window(self.ticks())
    }

    // Always inlined: most callers read a part of the decision.
    #[inline(always)]
    fn step_packed(
        &self,
        packed: PackedState,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        // The packed state alone gives the count. The time, which is read meanwhile, is only compared with the end of the window.
        let count = self.rest(now.since_epoch(packed));
        let since = (now.packed().since(packed) as u64).wrapping_add(count);
        if since < self.ticks() && now.at() < LATE {
            self.step_window(packed.before(count as i64), count, now, cost)
        } else {
            let start = self.floor(now);
            self.step_window(start, packed.since(start).max(0) as u64, now, cost)
        }
    }

    fn step_debt(
        &self,
        debt: Option<PackedState>,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        let start = self.floor(now);
        let count = debt.map_or(0, |debt| debt.since(start).max(0) as u64);
        self.step_window(start, count, now, cost)
    }

    /// Returns the beginning of the window that contains a moment.
    // Not inlined: only for the first call of each window.
    #[inline(never)]
    fn floor(&self, now: StoreTime) -> PackedState {
        let (at, period) = (now.at().as_nanos(), self.quota.period_nanos());
        now.packed().before((at % period * PER_NANO) as i64)
    }
}

/// Beyond it, ticks since the Unix epoch, two years ahead, exceed 64 bits: the year 2116.
const LATE: Timestamp = Timestamp::from_nanos(1 << 62);

impl FixedWindow {
    /// Steps in the window that began with a packed state.
    #[inline(always)]
    fn step_window(
        &self,
        start: PackedState,
        count: u64,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        let since = now.packed().since(start) as u64;
        let mut left = (self.ticks() - since) / PER_NANO;
        if count >= self.ticks() {
            left = self.until_past(count, left, cost);
        }
        let (count, decision) = self.decide(count, left, now.at(), cost);
        (count.map(|count| start.after(count)), decision)
    }

    /// Returns the nanoseconds until a cost passes for a key with an inherited debt that reaches beyond this window. The debt counts
    /// in full until its last window, and there the rest of it.
    #[cold]
    fn until_past(&self, debt: u64, left: u64, cost: Cost) -> u64 {
        let (windows, rest) = (debt / self.ticks(), debt % self.ticks());
        let passes = cost.get() <= self.limit().get().saturating_sub(rest);
        left + (windows - u64::from(passes)) * self.quota.period_nanos()
    }

    #[inline]
    pub(super) const fn has_meter(&self) -> bool {
        matches!(self.begin, Begin::Offset(0)) && self.reciprocal > 0
    }

    /// Returns the length of a window in ticks, if it has a meter.
    #[inline]
    const fn ticks(&self) -> u64 {
        self.quota.period_nanos() * PER_NANO
    }

    /// Returns the rest of a number of ticks divided by the length of a window.
    #[inline(always)]
    fn rest(&self, ticks: u64) -> u64 {
        // Rounded down twice: at most one too few.
        let windows = (u128::from(ticks) * u128::from(self.reciprocal)) >> u64::BITS;
        let rest = ticks - windows as u64 * self.ticks();
        rest.checked_sub(self.ticks()).unwrap_or(rest)
    }

    /// Returns the packed state of a window, if there is an exact one.
    pub(super) fn pack_window(
        self,
        state: &FixedWindowState,
        now: StoreTime,
    ) -> Option<PackedState> {
        // A count that was carried over begins within its window.
        let FixedWindowState { start, end, .. } = self.fresh(state.start);
        let is_whole = self.has_meter() && (start, end) == (state.start, state.end);
        if !is_whole || state.count >= self.ticks() {
            return None;
        }
        now.packed_after(state.start, state.count as i64)
    }

    /// Returns the window of a packed state: of the rule that made it, or, for a debt, the current window of the calendar.
    pub(super) fn unpack_window(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
        now: StoreTime,
    ) -> Option<FixedWindowState> {
        match packed_kind.meaning() {
            Meaning::Window(ticks) => FixedWindowState::unpack_window(packed, ticks, now),
            _ => {
                let period = self.quota.period_nanos();
                let since = now.at().as_nanos() % period;
                let begin =
                    i128::from(now.packed().get()) - i128::from(since) * i128::from(PER_NANO);
                let count = u64::try_from(i128::from(packed.get()) - begin).ok()?;
                let start = now.at().as_nanos() - since;
                Some(FixedWindowState::counting(start, period, count))
            }
        }
    }
}

impl FixedWindowState {
    fn counting(start: u64, period: u64, count: u64) -> Self {
        Self {
            start: Timestamp::from_nanos(start),
            end: Timestamp::from_nanos(start.saturating_add(period)),
            count,
        }
    }

    /// Returns the window of a packed state, for windows of a length in ticks.
    fn unpack_window(packed: PackedState, ticks: u64, now: StoreTime) -> Option<Self> {
        let ahead = i128::from(packed.since(now.packed()));
        let at = ahead + i128::from(now.at().as_nanos()) * i128::from(PER_NANO);
        let at = u128::try_from(at).ok()?;
        let window = at.checked_div(ticks.into())?;
        let period = ticks / PER_NANO;
        let start = u64::try_from(window * u128::from(period)).ok()?;
        let count = (at % u128::from(ticks)) as u64;
        Some(Self::counting(start, period, count))
    }
}
