//! The decisions that follow from a window's count.

use std::time::Duration;

use super::{Begin, FixedWindow, FixedWindowState};
use crate::{
    algorithm::{Algorithm, Mark, Meter, Moment, Shape, StateKind, Step},
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Told, Verdict},
};

impl FixedWindowState {
    /// From an instant until the end, above zero also for a window that does not end.
    #[inline]
    fn ends_in(&self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.end.nanos_since(now).max(1))
    }
}

impl FixedWindow {
    #[inline]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        window: &FixedWindowState,
    ) -> Decision {
        let limit = self.limit();
        // What was counted comes back all at once.
        let wait = match window.count {
            0 => Duration::ZERO,
            _ => window.ends_in(now),
        };
        Decision::new(verdict, now, cost)
            .with_limit(limit, self.quota)
            .with_told(Told {
                remaining: limit.get().saturating_sub(window.count),
                more_after: wait,
                reset_after: wait,
            })
    }

    /// The answer to a cost that does not pass.
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, window: &FixedWindowState) -> Decision {
        let retry_after = (asked <= self.limit().get()).then(|| window.ends_in(now));
        self.answer(Verdict::Refuse, now, cost, window)
            .with_retry_after(retry_after)
    }

    /// Counts a cost in a window of this rule, if it passes.
    #[inline]
    fn charge(&self, window: &mut FixedWindowState, now: Timestamp, cost: Cost) -> Step {
        if cost.get() > self.limit().get().saturating_sub(window.count) {
            return Step::Kept(self.refuse(now, cost.get(), cost.get(), window));
        }
        window.count += cost.get();
        Step::Wrote(self.answer(Verdict::Allow, now, cost.get(), window))
    }

    /// A step from no window, or out of one that is not the rule's or has ended.
    fn step_to_next(
        &self,
        state: &mut Option<FixedWindowState>,
        now: Timestamp,
        cost: Cost,
    ) -> Step {
        let (mut window, is_carried) = self.next(state.as_ref(), now);
        let step = match self.charge(&mut window, now, cost) {
            // The one refusal that must be remembered: the next would carry the count over into a later window.
            Step::Kept(refusal) if is_carried && cost.get() <= self.limit().get() => {
                Step::Wrote(refusal)
            }
            step => step,
        };
        if matches!(step, Step::Wrote(_)) {
            *state = Some(window);
        }
        step
    }
}

impl Algorithm for FixedWindow {
    type State = FixedWindowState;

    #[inline]
    fn step(&self, state: &mut Option<FixedWindowState>, now: Timestamp, cost: Cost) -> Step {
        match state {
            Some(known) if self.is_in(known, now) => self.charge(known, now, cost),
            _ => self.step_to_next(state, now, cost),
        }
    }

    fn look(&self, state: Option<&FixedWindowState>, now: Timestamp) -> Decision {
        let window = match state {
            Some(known) if self.is_in(known, now) => *known,
            _ => self.next(state, now).0,
        };
        if window.count < self.limit().get() {
            self.answer(Verdict::Allow, now, 0, &window)
        } else {
            self.refuse(now, 0, 1, &window)
        }
    }

    /// Corrects the count of the window that was charged; what was charged in another one stays as it is.
    ///
    /// So does what was charged while the clock had stepped back to before that window; and what was charged in a window
    /// of another rule, before the one began that its count was carried over into. Where nothing is known
    /// of the key, more is taken only from a window of the calendar that goes on: which window a first call
    /// began is known no more.
    fn settle(
        &self,
        state: &mut Option<FixedWindowState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        if let Some(known) = state.as_mut().filter(|known| known.count > 0) {
            // What was charged before the start may not be in the count.
            if charge.at >= known.start && known.goes_on(charge.at) {
                known.count = match charge.cost.checked_sub(actual) {
                    Some(less) => known.count.saturating_sub(less),
                    None => known.count.saturating_add(actual - charge.cost),
                };
                return;
            }
            if known.goes_on(now) {
                return;
            }
        }
        if actual <= charge.cost || self.is_from_first_call() {
            return;
        }
        let at = state.map_or(now, |known| now.max(known.start));
        let window = self.fresh(charge.at);
        if window.goes_on(at) {
            let count = actual - charge.cost;
            *state = Some(FixedWindowState { count, ..window });
        }
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named("fixed-window") }
    }

    #[inline]
    fn forgettable_at(&self, state: &FixedWindowState) -> Timestamp {
        match state.count {
            0 => state.start,
            _ => state.end,
        }
    }

    #[inline]
    fn meter(&self) -> Option<Meter<'_>> {
        self.has_meter().then(|| Meter::of_window(self))
    }

    fn mark_of(&self, state: &FixedWindowState, now: Moment) -> Option<Mark> {
        self.to_mark(state, now)
    }

    fn state_of(&self, mark: Mark, shape: Shape, now: Moment) -> Option<FixedWindowState> {
        self.of_mark(mark, shape, now)
    }

    /// The rule with the key's own offset, where that is [spread](FixedWindow::spread).
    ///
    /// A whole number of microseconds, if the period is one: some stores count in those.
    #[inline]
    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        const MICRO: u64 = 1000;
        self.is_spread().then(|| {
            let period = self.quota.period_nanos();
            let unit = if period.is_multiple_of(MICRO) {
                MICRO
            } else {
                1
            };
            let share = u128::from(digest()) * u128::from(period / unit);
            let begin = Begin::Offset((share >> u64::BITS) as u64 * unit);
            Self { begin, ..*self }
        })
    }
}
