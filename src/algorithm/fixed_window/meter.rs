//! Windows of the calendar, counted in words of 64 bits.
//!
//! Decides as `step.rs` does, in a fraction of its time. The mark of a window is its beginning, and a third of a
//! nanosecond for each unit that was counted: so marks grow from window to window.

use std::time::Duration;

use super::{Begin, FixedWindow, FixedWindowState};
use crate::{
    algorithm::{
        mark::{Mark, Moment},
        meter::Metering,
        shape::{Says, Shape},
    },
    clock::Timestamp,
    decision::{Cost, Decision, Filling, Verdict},
    quota::Quota,
};

/// What makes a product of a division by the length of a window in thirds of a nanosecond: 2⁶⁴ over it, rounded
/// down. 0 for windows that are not counted in words: longer than two years, or with a limit that reaches into the next window's marks.
pub(super) const fn reciprocal(quota: Quota) -> u64 {
    let period = quota.period_nanos();
    match period.checked_mul(Mark::PER_NANO) {
        Some(thirds) if thirds <= Mark::LONGEST && quota.amount() < thirds => {
            // At least three.
            ((1_u128 << u64::BITS) / thirds as u128) as u64
        }
        _ => 0,
    }
}

impl Metering for FixedWindow {
    const AHEAD: u64 = Mark::LONGEST;

    #[inline]
    fn shape(&self) -> Shape {
        Shape::window(self.thirds())
    }

    // Always: most callers look at a part of the decision.
    #[inline(always)]
    fn step_mark(&self, mark: Mark, now: Moment, cost: Cost) -> (Option<Mark>, Decision) {
        // Told by the mark alone, while the clock is read: that only tells whether its window goes on.
        let count = self.rest(now.since_epoch(mark));
        let since = (now.mark().since(mark) as u64).wrapping_add(count);
        if since < self.thirds() && now.at() < LATE {
            self.decide(mark.before(count as i64), count, now, cost)
        } else {
            let start = self.floor(now);
            self.decide(start, mark.since(start).max(0) as u64, now, cost)
        }
    }

    fn step_debt(&self, debt: Option<Mark>, now: Moment, cost: Cost) -> (Option<Mark>, Decision) {
        let start = self.floor(now);
        let count = debt.map_or(0, |debt| debt.since(start).max(0) as u64);
        self.decide(start, count, now, cost)
    }

    /// The beginning of the window that holds a moment.
    // Never: the first call of each window.
    #[inline(never)]
    fn floor(&self, now: Moment) -> Mark {
        let (at, period) = (now.at().as_nanos(), self.quota.period_nanos());
        now.mark().before((at % period * Mark::PER_NANO) as i64)
    }
}

/// From here on, thirds of a nanosecond since the Unix epoch are no number of 64 bits, two years ahead: the year 2116.
const LATE: Timestamp = Timestamp::from_nanos(1 << 62);

impl FixedWindow {
    /// Spends of the window that began with a mark.
    #[inline(always)]
    fn decide(&self, start: Mark, count: u64, now: Moment, cost: Cost) -> (Option<Mark>, Decision) {
        let limit = self.limit();
        let since = now.mark().since(start) as u64;
        let mut left = (self.thirds() - since) / Mark::PER_NANO;
        let answer = |verdict, count: u64, left: u64| {
            let remaining = limit.get().saturating_sub(count);
            // A bucket that gains all that it lacks at once: a unit in a third of a nanosecond, which rounds the wait up.
            let filling = Filling {
                level: remaining as i64,
                interval: 1,
                full: remaining + u64::from(count > 0),
                stalled: left - 1,
                given_back: Filling::NO_POSITION,
            };
            Decision::new(verdict, now.at(), cost.get())
                .with_limit(limit, self.quota)
                .with_filling(filling)
        };
        if cost.get() <= limit.get().saturating_sub(count) {
            let count = count + cost.get();
            return (
                Some(start.after(count)),
                answer(Verdict::Allow, count, left),
            );
        }
        if count >= self.thirds() {
            left = self.until_past(count, left, cost);
        }
        let retry_after = (cost.get() <= limit.get()).then(|| Duration::from_nanos(left));
        let refused = answer(Verdict::Refuse, count, left);
        (None, refused.with_retry_after(retry_after))
    }

    /// How long who inherited a debt that reaches beyond this window waits until a cost passes: the debt counts in
    /// full until then, and what reaches into a later window there.
    #[cold]
    fn until_past(&self, debt: u64, left: u64, cost: Cost) -> u64 {
        let (windows, rest) = (debt / self.thirds(), debt % self.thirds());
        let passes = cost.get() <= self.limit().get().saturating_sub(rest);
        left + (windows - u64::from(passes)) * self.quota.period_nanos()
    }

    #[inline]
    pub(super) const fn has_meter(&self) -> bool {
        matches!(self.begin, Begin::Offset(0)) && self.reciprocal > 0
    }

    /// The length of a window in thirds of a nanosecond, where it has a meter.
    #[inline]
    const fn thirds(&self) -> u64 {
        self.quota.period_nanos() * Mark::PER_NANO
    }

    /// What a number of thirds of a nanosecond leaves when whole windows are taken off.
    #[inline(always)]
    fn rest(&self, thirds: u64) -> u64 {
        // Rounded down twice: at most one too few.
        let windows = (u128::from(thirds) * u128::from(self.reciprocal)) >> u64::BITS;
        let rest = thirds - windows as u64 * self.thirds();
        rest.checked_sub(self.thirds()).unwrap_or(rest)
    }

    /// A window as a mark, exactly.
    pub(super) fn to_mark(self, state: &FixedWindowState, now: Moment) -> Option<Mark> {
        // What was carried over is counted from within its window.
        let FixedWindowState { start, end, .. } = self.fresh(state.start);
        let is_whole = self.has_meter() && (start, end) == (state.start, state.end);
        if !is_whole || state.count >= self.thirds() {
            return None;
        }
        now.mark_after(state.start, state.count as i64)
    }

    /// A mark as a window: of the rule that made it, or as a debt of the calendar's window that goes on.
    pub(super) fn of_mark(
        &self,
        mark: Mark,
        shape: Shape,
        now: Moment,
    ) -> Option<FixedWindowState> {
        match shape.says() {
            Says::Window(thirds) => FixedWindowState::of_mark(mark, thirds, now),
            _ => {
                let period = self.quota.period_nanos();
                let since = now.at().as_nanos() % period;
                let begin =
                    i128::from(now.mark().get()) - i128::from(since) * i128::from(Mark::PER_NANO);
                let count = u64::try_from(i128::from(mark.get()) - begin).ok()?;
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

    /// A mark of windows of so many thirds of a nanosecond.
    pub(in crate::algorithm) fn of_mark(mark: Mark, thirds: u64, now: Moment) -> Option<Self> {
        let ahead = i128::from(mark.since(now.mark()));
        let at = ahead + i128::from(now.at().as_nanos()) * i128::from(Mark::PER_NANO);
        let at = u128::try_from(at).ok()?;
        let window = at.checked_div(thirds.into())?;
        let period = thirds / Mark::PER_NANO;
        let start = u64::try_from(window * u128::from(period)).ok()?;
        let count = (at % u128::from(thirds)) as u64;
        Some(Self::counting(start, period, count))
    }
}
