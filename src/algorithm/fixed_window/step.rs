//! Which window it is, and the decisions that follow from its count.

use std::time::Duration;

use super::{Begin, FixedWindow, FixedWindowState};
use crate::{
    algorithm::{Algorithm, Step},
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Verdict},
};

/// The window of a key, at an instant that is never before its last write.
struct Window {
    start: Timestamp,
    at: Timestamp,
    count: u64,
    /// Nanoseconds from `now` until its end, above zero.
    ends_in: u64,
}

impl FixedWindow {
    /// An instant at which a window of this rule begins, where `start` began the one that is known.
    #[inline]
    fn anchor(&self, start: Timestamp) -> u64 {
        match self.begin {
            Begin::Offset(offset) => offset,
            Begin::Spread => 0,
            Begin::FirstCall => start.as_nanos(),
        }
    }

    /// Nanoseconds from `at` until the end of its window: 1 to the period.
    #[inline]
    fn left(&self, anchor: u64, at: Timestamp) -> u64 {
        let period = self.quota.period_nanos();
        match at.as_nanos().checked_sub(anchor) {
            Some(since) => period - since % period,
            // Only an offset lies behind: the window at the epoch has begun before it.
            None => anchor - at.as_nanos(),
        }
    }

    /// The start of the window that has so much left at `at`, or the epoch.
    #[inline]
    fn start(&self, at: Timestamp, left: u64) -> Timestamp {
        let since = self.quota.period_nanos() - left;
        Timestamp::from_nanos(at.as_nanos().saturating_sub(since))
    }

    #[inline]
    fn window(&self, state: Option<&FixedWindowState>, now: Timestamp) -> Window {
        let at = state.map_or(now, |state| now.max(state.at));
        let stalled = at.nanos_since(now);
        if let Some(state) = state.filter(|state| state.count > 0) {
            let left = self.left(self.anchor(state.start), state.at);
            let since = at.nanos_since(state.at);
            if since < left {
                return Window {
                    start: state.start,
                    at,
                    count: state.count,
                    ends_in: (left - since).saturating_add(stalled),
                };
            }
        }
        let left = self.left(self.anchor(at), at);
        Window {
            start: self.start(at, left),
            at,
            count: 0,
            ends_in: left.saturating_add(stalled),
        }
    }

    #[inline]
    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, window: &Window) -> Decision {
        let limit = self.limit();
        // What was counted comes back all at once.
        let wait = match window.count {
            0 => Duration::ZERO,
            _ => Duration::from_nanos(window.ends_in),
        };
        Decision::new(verdict, now, cost)
            .with_limit(limit, self.quota)
            .with_remaining(limit.get().saturating_sub(window.count))
            .with_more_after(wait)
            .with_reset_after(wait)
    }

    /// The answer to a cost that does not pass.
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, window: &Window) -> Decision {
        let retry_after =
            (asked <= self.limit().get()).then(|| Duration::from_nanos(window.ends_in));
        self.answer(Verdict::Refuse, now, cost, window)
            .with_retry_after(retry_after)
    }
}

impl Algorithm for FixedWindow {
    type State = FixedWindowState;

    #[inline]
    fn step(&self, state: &mut Option<FixedWindowState>, now: Timestamp, cost: Cost) -> Step {
        let mut window = self.window(state.as_ref(), now);
        if cost.get() > self.limit().get().saturating_sub(window.count) {
            return Step::Kept(self.refuse(now, cost.get(), cost.get(), &window));
        }
        window.count += cost.get();
        *state = Some(FixedWindowState {
            start: window.start,
            at: window.at,
            count: window.count,
        });
        Step::Wrote(self.answer(Verdict::Allow, now, cost.get(), &window))
    }

    fn look(&self, state: Option<&FixedWindowState>, now: Timestamp) -> Decision {
        let window = self.window(state, now);
        if window.count < self.limit().get() {
            self.answer(Verdict::Allow, now, 0, &window)
        } else {
            self.refuse(now, 0, 1, &window)
        }
    }

    /// Corrects the count of the window that was charged; what was charged in another one stays as it is.
    ///
    /// So does what was charged while the clock had stepped back to before that window. Where nothing is known
    /// of the key, more is taken only from a window of the calendar that goes on: which window a first call
    /// began is known no more.
    fn settle(
        &self,
        state: &mut Option<FixedWindowState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let at = state.map_or(now, |known| now.max(known.at));
        if let Some(known) = state.as_mut().filter(|known| known.count > 0) {
            let left = self.left(self.anchor(known.start), known.at);
            // What was charged before the start is not in the count.
            if charge.at >= known.start && charge.at.nanos_since(known.at) < left {
                known.count = match charge.cost.checked_sub(actual) {
                    Some(less) => known.count.saturating_sub(less),
                    None => known.count.saturating_add(actual - charge.cost),
                };
                return;
            }
            if at.nanos_since(known.at) < left {
                return;
            }
        }
        if actual <= charge.cost || self.is_from_first_call() {
            return;
        }
        let left = self.left(self.anchor(charge.at), charge.at);
        if at.nanos_since(charge.at) < left {
            *state = Some(FixedWindowState {
                start: self.start(charge.at, left),
                at: at.max(charge.at),
                count: actual - charge.cost,
            });
        }
    }

    #[inline]
    fn forgettable_at(&self, state: &FixedWindowState) -> Timestamp {
        if state.count == 0 {
            return state.at;
        }
        let left = self.left(self.anchor(state.start), state.at);
        Timestamp::from_nanos(state.at.as_nanos().saturating_add(left))
    }

    /// The rule with the key's own offset, where that is [spread](FixedWindow::spread).
    ///
    /// A whole number of microseconds, if the period is one: some stores count in those.
    #[inline]
    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        const MICRO: u64 = 1000;
        self.is_spread().then(|| {
            let period = self.quota.period_nanos();
            let unit = if period % MICRO == 0 { MICRO } else { 1 };
            let share = u128::from(digest()) * u128::from(period / unit);
            let begin = Begin::Offset((share >> u64::BITS) as u64 * unit);
            Self { begin, ..*self }
        })
    }
}
