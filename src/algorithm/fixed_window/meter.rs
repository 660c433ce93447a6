//! Windows of the calendar, counted in words of 64 bits.
//!
//! Decides as `step.rs` does, in a fraction of its time. The mark of a window is its beginning, and a third of a
//! nanosecond for each unit that was counted: so marks grow from window to window.

use std::time::Duration;

use super::{Begin, FixedWindow, FixedWindowState};
use crate::{
    algorithm::{
        mark::{Mark, Moment},
        shape::{Says, Shape},
    },
    clock::Timestamp,
    decision::{Cost, Decision, Verdict},
    quota::Quota,
};

/// 2⁶⁴ / period, rounded down, which makes a product of a division by it; 0 for windows that are not counted in
/// words: longer than two years, or with a limit that reaches into the next window's marks.
pub(super) const fn reciprocal(quota: Quota) -> u64 {
    let period = quota.period_nanos();
    match period.checked_mul(Mark::PER_NANO) {
        Some(thirds) if thirds <= Mark::LONGEST && quota.amount() < thirds => {
            let reciprocal = (1_u128 << u64::BITS) / period as u128;
            if reciprocal > u64::MAX as u128 {
                u64::MAX
            } else {
                reciprocal as u64
            }
        }
        _ => 0,
    }
}

impl FixedWindow {
    #[inline]
    pub(super) const fn has_meter(&self) -> bool {
        matches!(self.begin, Begin::Offset(0)) && self.reciprocal > 0
    }

    /// The length of a window in thirds of a nanosecond, where it has a meter.
    #[inline]
    const fn thirds(&self) -> u64 {
        self.quota.period_nanos() * Mark::PER_NANO
    }

    #[inline]
    pub(in crate::algorithm) const fn shape(&self) -> Shape {
        Shape::window(self.thirds())
    }

    /// Nanoseconds since the window began that holds an instant.
    #[inline]
    fn since_start(&self, at: Timestamp) -> u64 {
        let (at, period) = (at.as_nanos(), self.quota.period_nanos());
        // Windows that have ended: rounded down twice, that is at most one too few.
        let windows = (u128::from(at) * u128::from(self.reciprocal)) >> u64::BITS;
        let since = at - windows as u64 * period;
        if since >= period {
            since - period
        } else {
            since
        }
    }

    /// The beginning of the window that holds a moment.
    pub(in crate::algorithm) fn floor(&self, now: Moment) -> Mark {
        let since = self.since_start(now.at());
        now.mark().before((since * Mark::PER_NANO) as i64)
    }

    #[inline]
    pub(in crate::algorithm) fn step_mark(
        &self,
        mark: Option<Mark>,
        now: Moment,
        cost: Cost,
    ) -> (Option<Mark>, Decision) {
        let (limit, since) = (self.limit(), self.since_start(now.at()));
        let start = now.mark().before((since * Mark::PER_NANO) as i64);
        let count = mark.map_or(0, |mark| mark.since(start).max(0) as u64);
        let left = self.quota.period_nanos() - since;
        let answer = |verdict, count: u64, more_after, reset_after| {
            Decision::new(verdict, now.at(), cost.get())
                .with_limit(limit, self.quota)
                .with_remaining(limit.get().saturating_sub(count))
                .with_more_after(Duration::from_nanos(more_after))
                .with_reset_after(Duration::from_nanos(reset_after))
        };
        if cost.get() <= limit.get().saturating_sub(count) {
            let count = count + cost.get();
            let mark = start.after(count);
            return (Some(mark), answer(Verdict::Allow, count, left, left));
        }
        let [retry_after, more_after, reset_after] = if count == 0 {
            // More than the limit.
            [0; 3]
        } else if count < self.thirds() {
            [left; 3]
        } else {
            self.waits(count, left, cost)
        };
        let retry_after = (cost <= Cost::from(limit)).then(|| Duration::from_nanos(retry_after));
        let refused = answer(Verdict::Refuse, count, more_after, reset_after);
        (None, refused.with_retry_after(retry_after))
    }

    /// The waits until `cost` passes, until one unit does and until all is back, for who inherited a debt that
    /// reaches beyond this window: it counts in full now, and what reaches into a later window there.
    #[cold]
    fn waits(&self, debt: u64, left: u64, cost: Cost) -> [u64; 3] {
        let (windows, rest) = (debt / self.thirds(), debt % self.thirds());
        let until = |passes| left + (windows - u64::from(passes)) * self.quota.period_nanos();
        let room = self.limit().get().saturating_sub(rest);
        [until(cost.get() <= room), until(room > 0), until(rest == 0)]
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
