//! The window of a call, and the units that the window still admits.
//!
//! # Windows of the calendar in one word
//!
//! The packed state of a window is its beginning, plus a tick for each counted unit: so packed
//! states grow from window to window.
//!
//! A state is the start of a window, its end and its count, without the instant of the last write,
//! for which a word of 64 bits has no room. The first call under a rule with other windows carries
//! the count over, also if it is refused; otherwise an exhausted client would be carried from
//! window to window.
//!
//! With `offset=spread` each key has windows of its own. The store binds such a rule to a key
//! (`Algorithm::for_key`), from a digest that is the same on every node.

use std::time::Duration;

use super::{Begin, FixedWindow};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        packed::{BuiltIn, Form, InWords, Meaning, PackedKind, PackedState, StepPacked, StoreTime},
        ticks::PER_NANO,
    },
    decision::{Charge, Compute, Cost, Decision, Deferred, Verdict},
    time::Timestamp,
};

/// The state of a key under a [`FixedWindow`]: the count of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowState {
    /// The instant from which on all that passed is counted: the start of the window, or of an
    /// earlier rule's window, within this one, whose count was carried over.
    pub(super) start: Timestamp,
    /// The end of the window; [`Timestamp::MAX`] for one that does not end.
    pub(super) end: Timestamp,
    pub(super) count: u64,
}

impl FixedWindow {
    /// Adds `cost` to a count if it passes, in a window that ends in `left` nanoseconds; returns
    /// the new count, and the decision.
    #[inline(always)]
    fn decide(&self, count: u64, left: u64, now: Timestamp, cost: Cost) -> (Option<u64>, Decision) {
        let cost = cost.get();
        if cost > self.limit().get().saturating_sub(count) {
            return (None, self.refuse(now, cost, cost, count, left));
        }
        let count = count + cost;
        let decision = self.answer(Verdict::Allow, now, cost, count, left);
        (Some(count), decision)
    }

    #[inline(always)]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        count: u64,
        left: u64,
    ) -> Decision {
        // The whole count ends at once.
        let wait = if count > 0 { left } else { 0 };
        let remaining = self.limit().get().saturating_sub(count);
        Decision::new(verdict, now, cost)
            .with_limit(self.limit(), self.quota)
            .with_deferred(Deferred {
                state: [remaining, wait, 0, 0, 0, 0],
                compute: &DEFERRED,
            })
    }

    /// Returns a refusal whose `retry_after` ends when `asked` passes.
    #[inline(always)]
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, count: u64, left: u64) -> Decision {
        let retry_after = (asked <= self.limit().get()).then(|| Duration::from_nanos(left));
        self.answer(Verdict::Refuse, now, cost, count, left)
            .with_retry_after(retry_after)
    }

    /// Steps in a window of this rule.
    #[inline]
    fn charge(&self, window: &mut FixedWindowState, now: Timestamp, cost: Cost) -> Step {
        match self.decide(window.count, window.ends_in(now), now, cost) {
            (None, refused) => Step::Kept(refused),
            (Some(count), decision) => {
                window.count = count;
                Step::Wrote(decision)
            }
        }
    }

    /// Steps without a window, or from one that is not of this rule or has ended.
    fn step_to_next(
        &self,
        state: &mut Option<FixedWindowState>,
        now: Timestamp,
        cost: Cost,
    ) -> Step {
        let (mut window, is_carried) = self.next(state.as_ref(), now);
        let step = match self.charge(&mut window, now, cost) {
            // The one refusal that must be remembered: the next would carry the count over into a
            // later window.
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

/// Computes the numbers of a window, whose waits are equal.
const DEFERRED: Compute = Compute {
    remaining: |&[remaining, ..]| remaining,
    reset_after: |&[_, wait, ..]| Duration::from_nanos(wait),
    more_after: |&[_, wait, ..], _| Duration::from_nanos(wait),
    position: |_, _| None,
};

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
            self.answer(Verdict::Allow, now, 0, window.count, window.ends_in(now))
        } else {
            self.refuse(now, 0, 1, window.count, window.ends_in(now))
        }
    }

    /// Corrects the count of the current window, if the charge was made in it.
    ///
    /// A charge in another window stays as it is. So does a charge that was made while the clock
    /// had stepped back to before this window, or in a window of another rule before the beginning
    /// of the one whose count was carried over. For a key without a state, a higher cost is only
    /// taken from a window of the calendar that has not ended: the window of a first call is no
    /// longer known.
    fn settle(
        &self,
        state: &mut Option<FixedWindowState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        if let Some(known) = state.as_mut().filter(|known| known.count > 0) {
            // Charges before the start may not be in the count.
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
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &FixedWindowState) -> Timestamp {
        match state.count {
            0 => state.start,
            _ => state.end,
        }
    }

    #[inline]
    fn built_in(&self) -> BuiltIn<'_, FixedWindowState> {
        BuiltIn::new(Form::Window(self), self)
    }

    /// Returns the rule with the key's own offset, if windows are [spread](FixedWindow::spread).
    ///
    /// The offset is a whole number of microseconds if the period is one, because some stores count
    /// in microseconds.
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

impl FixedWindowState {
    /// Returns the nanoseconds until the end, above zero also for a window that does not end.
    #[inline]
    fn ends_in(&self, now: Timestamp) -> u64 {
        self.end.nanos_since(now).max(1)
    }

    /// Returns `true` if the window has not ended at this instant; it may not have begun either.
    #[inline]
    fn goes_on(&self, at: Timestamp) -> bool {
        at < self.end || self.end == Timestamp::MAX
    }
}

impl FixedWindow {
    /// Returns the empty window that contains an instant, if one begins at `anchor`.
    #[inline]
    fn holding(&self, at: Timestamp, anchor: u64) -> FixedWindowState {
        let (at, period) = (at.as_nanos(), self.quota.period_nanos());
        let since = match at.checked_sub(anchor) {
            Some(since) => since % period,
            // The window at the epoch began before it, because of the offset.
            None => period - (anchor - at),
        };
        FixedWindowState {
            start: Timestamp::from_nanos(at.saturating_sub(since)),
            end: Timestamp::from_nanos(at.saturating_add(period - since)),
            count: 0,
        }
    }

    /// Returns the empty window that contains an instant; it begins there if windows begin with the
    /// first call.
    #[inline]
    fn fresh(&self, at: Timestamp) -> FixedWindowState {
        self.holding(at, self.anchor(at))
    }

    /// Returns what is left of a window of the calendar; `None` if windows begin from the first
    /// call.
    pub(crate) fn left_in_calendar(&self, at: Timestamp) -> Option<Duration> {
        let is_of_calendar = !self.is_from_first_call();
        is_of_calendar.then(|| Duration::from_nanos(self.fresh(at).ends_in(at)))
    }

    /// Returns an instant at which a window of this rule begins; `start` is the beginning of the
    /// known one.
    #[inline]
    fn anchor(&self, start: Timestamp) -> u64 {
        match self.begin {
            Begin::Offset(offset) => offset,
            Begin::Spread => 0,
            Begin::FirstCall => start.as_nanos(),
        }
    }

    /// Returns `true` if a call at `now` counts in this window.
    #[inline]
    fn is_in(&self, known: &FixedWindowState, now: Timestamp) -> bool {
        known.count > 0 && known.goes_on(now) && self.owns(known)
    }

    /// Returns the window of a call that is not [in](Self::is_in) the known one, and `true` if it
    /// contains the count of the known one, which is another rule's.
    fn next(&self, known: Option<&FixedWindowState>, now: Timestamp) -> (FixedWindowState, bool) {
        let Some(known) = known else {
            return (self.fresh(now), false);
        };
        // No earlier window is counted again.
        let at = now.max(known.start);
        if known.count == 0 || !known.goes_on(now) {
            return (self.fresh(at), false);
        }
        let window = self.holding(at, self.anchor(known.start));
        let carried = FixedWindowState {
            start: window.start.max(known.start),
            count: known.count,
            ..window
        };
        (carried, true)
    }

    /// Returns `true` if it is one of this rule's windows: the window of its start ends where it
    /// does.
    #[inline]
    fn owns(&self, window: &FixedWindowState) -> bool {
        let (end, period) = (window.end, self.quota.period_nanos());
        let length = end.nanos_since(window.start);
        if length > period {
            return false;
        }
        if end == Timestamp::MAX {
            return self.holding(window.start, self.anchor(window.start)).end == end;
        }
        match self.begin {
            Begin::FirstCall => length == period,
            Begin::Offset(offset) => {
                let since = end.as_nanos().checked_sub(offset);
                since.is_some_and(|since| self.divides(since))
            }
            Begin::Spread => self.divides(end.as_nanos()),
        }
    }

    /// Returns `true` if a number of nanoseconds is a number of whole windows.
    ///
    /// A division that leaves no rest is a product, which is many times as fast. The product back
    /// reveals a rest.
    #[inline]
    fn divides(&self, nanos: u64) -> bool {
        let period = self.quota.period_nanos();
        let windows = (nanos >> period.trailing_zeros()).wrapping_mul(self.inverse);
        windows.checked_mul(period) == Some(nanos)
    }
}

impl StepPacked for FixedWindow {
    const AHEAD: u64 = PackedState::LONGEST;

    #[inline]
    fn packed_kind(&self) -> PackedKind {
        PackedKind::window(self.ticks())
    }

    // Always inlined: most callers read only a part of the decision, and the compiler drops the
    // rest.
    #[inline(always)]
    fn step_packed(
        &self,
        packed: PackedState,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        // The packed state alone gives the count. The time, which is read meanwhile, is only
        // compared with the end of the window.
        let count = self.rest(now.since_epoch(packed));
        let since = (now.packed().since(packed) as u64).wrapping_add(count);
        if since < self.ticks() && now.at() < LATE {
            self.step_window(packed.before(count as i64), count, now, cost)
        } else {
            let start = self.floor(now);
            // Another thread may have read a later time: then its window goes on, although it has
            // not begun. No count of this kind is as long as a window.
            let since = packed.since(start).max(0) as u64;
            let count = since % self.ticks();
            self.step_window(start.after(since - count), count, now, cost)
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

    /// Returns the beginning of the window that contains a store time.
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
        // Below zero before the window.
        let since = now.packed().since(start) as u64;
        let mut left = self.ticks().wrapping_sub(since) / PER_NANO;
        if count >= self.ticks() {
            left = self.until_past(count, left, cost);
        }
        let (count, decision) = self.decide(count, left, now.at(), cost);
        (count.map(|count| start.after(count)), decision)
    }

    /// Returns the nanoseconds until a cost passes for a key with an inherited debt that reaches
    /// beyond this window. The debt counts in full until its last window, and there the rest of it.
    #[cold]
    fn until_past(&self, debt: u64, left: u64, cost: Cost) -> u64 {
        let (windows, rest) = (debt / self.ticks(), debt % self.ticks());
        let passes = cost.get() <= self.limit().get().saturating_sub(rest);
        left + (windows - u64::from(passes)) * self.quota.period_nanos()
    }

    #[inline]
    pub(in crate::algorithm) const fn is_packed(&self) -> bool {
        matches!(self.begin, Begin::Offset(0)) && self.reciprocal > 0
    }

    /// Returns the length of a window in ticks, if it [is packed](Self::is_packed).
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
}

impl InWords<FixedWindowState> for FixedWindow {
    /// Returns the packed state of a window, if there is an exact one.
    fn write_word(&self, state: &FixedWindowState, now: StoreTime) -> Option<PackedState> {
        // A count that was carried over begins within its window.
        let FixedWindowState { start, end, .. } = self.fresh(state.start);
        let is_whole = self.is_packed() && (start, end) == (state.start, state.end);
        if !is_whole || state.count >= self.ticks() {
            return None;
        }
        now.packed_after(state.start, state.count as i64)
    }

    /// Returns the window of a packed state: of the rule that made it, or, for a debt, the current
    /// window of the calendar.
    fn read_word(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
        now: StoreTime,
    ) -> Option<FixedWindowState> {
        match packed_kind.meaning() {
            Meaning::Window(ticks) => FixedWindowState::unpack(packed, ticks, now),
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
    fn unpack(packed: PackedState, ticks: u64, now: StoreTime) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::quota::Quota;

    proptest! {
        #[test]
        fn whole_windows_are_told_from_others(
            period in prop_oneof![1..100_u64, (0..63_u32).prop_map(|bits| 1 << bits), 1..=i64::MAX as u64],
            windows: u64,
            more in prop_oneof![Just(0), 1..3_u64, any::<u64>()],
        ) {
            let rule = FixedWindow::new(Quota::new(1, Duration::from_nanos(period)));
            let whole = windows % (u64::MAX / period) * period;
            for nanos in [whole, whole.wrapping_add(more), whole.wrapping_sub(more)] {
                prop_assert_eq!(rule.divides(nanos), nanos % period == 0, "{} of {}", nanos, period);
            }
        }
    }
}
