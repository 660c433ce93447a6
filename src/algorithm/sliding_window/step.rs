//! The counters of a key, and the decisions that follow from them.

use std::{
    borrow::Cow,
    ops::{Deref, DerefMut},
    time::Duration,
};

use super::{
    SlidingWindow,
    slices::{SlicePosition, Slices, empty_in, until_free, until_inside},
};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        packed::{BuiltIn, Form},
    },
    decision::{Charge, Cost, Decision, Numbers, Verdict},
    time::Timestamp,
};

/// The state of a key under a [`SlidingWindow`]: the count of each slice as of the last write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindowState {
    pub(super) written_at: Timestamp,
    /// The window of the rule that wrote the state, in nanoseconds.
    pub(super) window: u64,
    /// One counter more than that rule has slices, because the window usually begins within the
    /// oldest slice.
    pub(super) counters: SliceCounters,
}

/// The counters, newest slice first. A window of one slice needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SliceCounters {
    Two([u64; 2]),
    Many(Box<[u64]>),
}

impl SliceCounters {
    /// Returns the counters of a window with this number of slices, all zero.
    #[inline]
    pub(super) fn zero(slices: u64) -> Self {
        if slices == 1 {
            Self::Two([0; 2])
        } else {
            Self::Many(vec![0; slices as usize + 1].into())
        }
    }
}

impl Deref for SliceCounters {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        match self {
            Self::Two(counters) => counters,
            Self::Many(counters) => counters,
        }
    }
}

impl DerefMut for SliceCounters {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        match self {
            Self::Two(counters) => counters,
            Self::Many(counters) => counters,
        }
    }
}

impl SlidingWindowState {
    /// Returns the state of a key without calls.
    #[inline]
    pub(super) fn empty(slices: &Slices, at: Timestamp) -> Self {
        Self {
            written_at: at,
            window: slices.window(),
            counters: SliceCounters::zero(slices.count()),
        }
    }

    /// Returns the slices that the state counts in.
    fn slices(&self) -> Slices {
        Slices::new(self.window, self.counters.len() as u32 - 1)
    }

    /// Returns `true` if the state counts in these slices.
    #[inline]
    pub(super) fn counts_in(&self, slices: &Slices) -> bool {
        self.window == slices.window() && self.counters.len() as u64 == slices.count() + 1
    }

    /// Returns the number of slices that have begun between the last write and `at`. `position` is
    /// that of `at`, which is not before the last write.
    #[inline]
    fn passed(&self, slices: &Slices, at: Timestamp, position: &SlicePosition) -> u64 {
        if at.nanos_since(self.written_at) <= position.length - position.rest {
            return 0;
        }
        position.slice - slices.position(self.written_at).slice
    }

    /// Returns the counters that still count after `passed` slices have begun since the last write.
    #[inline]
    fn counting(&self, passed: u64) -> &[u64] {
        let left = (self.counters.len() as u64).saturating_sub(passed);
        &self.counters[..left as usize]
    }

    /// Advances to `at`, `passed` slices after the last write.
    #[inline]
    fn advance(&mut self, at: Timestamp, passed: u64) {
        if passed > 0 {
            let left = self.counting(passed).len();
            let new = self.counters.len() - left;
            self.counters.copy_within(..left, new);
            self.counters[..new].fill(0);
        }
        self.written_at = at;
    }

    /// Returns the state with its calls counted in other slices.
    ///
    /// Each call is dated as late as possible: in the last nanosecond of its old slice, but not
    /// after the last write.
    #[cold]
    fn converted(&self, slices: &Slices) -> Self {
        let mut converted = Self::empty(slices, self.written_at);
        let old = self.slices();
        let newest = slices.position(self.written_at).slice;
        let mut latest = self.written_at;
        for count in &*self.counters {
            let age = newest - slices.position(latest).slice;
            let counter = usize::try_from(age)
                .ok()
                .and_then(|age| converted.counters.get_mut(age));
            match counter {
                Some(counter) => *counter = counter.saturating_add(*count),
                // This slice and all before it have left the new window.
                None => break,
            }
            // Continue at the last nanosecond before this slice, unless that lies before the epoch.
            let SlicePosition { rest, length, .. } = old.position(latest);
            match latest.as_nanos().checked_sub(length - rest + 1) {
                Some(earlier) => latest = Timestamp::from_nanos(earlier),
                None => break,
            }
        }
        converted
    }
}

/// The counters at an instant, which is never before the last write.
struct View<'a> {
    at: Timestamp,
    position: SlicePosition,
    /// The number of slices that have begun since the last write.
    passed: u64,
    /// The counters that still count, newest slice first. The last one is that of the oldest slice,
    /// of which only a part lies in the window.
    counting: &'a [u64],
    /// The sum of all but the oldest, at most `u64::MAX`.
    whole: u64,
    remaining: u64,
}

/// Splits counters into those that count in full and the oldest.
#[inline]
fn split(counting: &[u64]) -> (&[u64], u64) {
    match counting.split_last() {
        Some((oldest, whole)) => (whole, *oldest),
        None => (&[], 0),
    }
}

/// Returns the sum of counters, at most `u64::MAX`.
#[inline]
fn sum(counters: &[u64]) -> u64 {
    match counters {
        [one] => *one,
        all => all.iter().fold(0, |sum, one| sum.saturating_add(*one)),
    }
}

impl SlidingWindow {
    /// Returns the counters of a state that counts in the slices of this rule.
    #[inline]
    fn view<'a>(&self, state: Option<&'a SlidingWindowState>, now: Timestamp) -> View<'a> {
        let at = state.map_or(now, |state| now.max(state.written_at));
        let position = self.slices.position(at);
        let passed = state.map_or(0, |state| state.passed(&self.slices, at, &position));
        let counting = state.map_or(&[][..], |state| state.counting(passed));
        let (whole, oldest) = split(counting);
        let whole = sum(whole);
        // Costs are whole numbers, so rounding the estimate up gives the same decision as the exact
        // estimate.
        let estimate = whole.saturating_add(self.slices.inside(oldest, &position));
        View {
            at,
            position,
            passed,
            counting,
            whole,
            remaining: self.limit.get().saturating_sub(estimate),
        }
    }

    /// Returns the nanoseconds until `cost` passes. The cost is more than what remains, and at most
    /// the limit.
    #[inline]
    fn wait(&self, view: &View<'_>, cost: u64) -> u64 {
        let free = self.limit.get() - cost;
        match (free.checked_sub(view.whole), view.counting.last()) {
            (Some(free), Some(oldest)) => {
                until_inside(free, *oldest, view.position.rest, view.position.length)
            }
            // The counters that count in full already leave too little, so another slice must
            // begin.
            _ => self.wait_for_slice(view.position.slice, view.position.rest, view.counting, free),
        }
    }

    // Takes fields instead of the view, which would then have to be written to memory.
    fn wait_for_slice(&self, slice: u64, rest: u64, counting: &[u64], free: u64) -> u64 {
        let after = |slices| self.slices.after(slice, slices);
        until_free(free, counting.iter().copied(), rest, after)
    }

    /// Returns the nanoseconds until all counters are zero; `None` if they are.
    #[inline]
    fn empty_in(&self, position: &SlicePosition, counting: &[u64]) -> Option<u64> {
        let after = |slices| self.slices.after(position.slice, slices);
        empty_in(counting.iter().copied(), position.rest, after)
    }

    /// Returns the decision on `asked` units, of which `cost` are charged.
    #[inline]
    fn answer(
        &self,
        passes: bool,
        now: Timestamp,
        cost: u64,
        asked: u64,
        view: &View<'_>,
    ) -> Decision {
        let stalled = view.at.nanos_since(now);
        let wait = |nanos| match stalled {
            0 => Duration::from_nanos(nanos),
            _ => Duration::from_nanos(nanos) + Duration::from_nanos(stalled),
        };
        let more_after = if view.remaining == self.limit.get() {
            Duration::ZERO
        } else {
            wait(self.wait(view, view.remaining + 1))
        };
        let reset_after = self
            .empty_in(&view.position, view.counting)
            .map_or(Duration::ZERO, wait);
        let verdict = if passes {
            Verdict::Allow
        } else {
            Verdict::Refuse
        };
        let decision = Decision::new(verdict, now, cost)
            .with_limit(self.limit, self.quota)
            .with_numbers(Numbers {
                remaining: view.remaining,
                more_after,
                reset_after,
            });
        if passes {
            return decision;
        }
        decision.with_retry_after(if asked > self.limit.get() {
            None
        } else if asked == view.remaining + 1 {
            Some(more_after)
        } else {
            Some(wait(self.wait(view, asked)))
        })
    }

    /// Returns the state with its calls counted in the slices of this rule.
    #[inline]
    fn own<'a>(&self, state: &'a SlidingWindowState) -> Cow<'a, SlidingWindowState> {
        if state.counts_in(&self.slices) {
            Cow::Borrowed(state)
        } else {
            Cow::Owned(state.converted(&self.slices))
        }
    }

    /// Steps on the state of a rule with other slices.
    #[cold]
    fn step_converted(
        &self,
        state: &mut Option<SlidingWindowState>,
        now: Timestamp,
        cost: Cost,
    ) -> Step {
        let mut converted = state.as_ref().map(|state| state.converted(&self.slices));
        let step = self.step(&mut converted, now, cost);
        if matches!(step, Step::Wrote(_)) {
            *state = converted;
        }
        step
    }
}

impl Algorithm for SlidingWindow {
    type State = SlidingWindowState;

    #[inline]
    fn step(&self, state: &mut Option<SlidingWindowState>, now: Timestamp, cost: Cost) -> Step {
        let own = |state: &SlidingWindowState| state.counts_in(&self.slices);
        if !state.as_ref().is_none_or(own) {
            return self.step_converted(state, now, cost);
        }
        let mut view = self.view(state.as_ref(), now);
        let cost = cost.get();
        let passes = cost <= view.remaining;
        if passes {
            let View {
                at,
                position,
                passed,
                whole,
                remaining,
                ..
            } = view;
            let state = state.get_or_insert_with(|| SlidingWindowState::empty(&self.slices, at));
            state.advance(at, passed);
            // At most the limit, because the sum of all counters that count in full is.
            state.counters[0] += cost;
            view = View {
                at,
                position,
                passed: 0,
                counting: &state.counters,
                whole: whole + cost,
                remaining: remaining - cost,
            };
        }
        let decision = self.answer(passes, now, cost, cost, &view);
        if passes {
            Step::Wrote(decision)
        } else {
            Step::Kept(decision)
        }
    }

    fn look(&self, state: Option<&SlidingWindowState>, now: Timestamp) -> Decision {
        let state = state.map(|state| self.own(state));
        let view = self.view(state.as_deref(), now);
        self.answer(view.remaining > 0, now, 0, 1, &view)
    }

    /// Corrects the counter of the slice that contains the charge's time, while that slice counts.
    ///
    /// The slices are those of the rule that wrote the state.
    fn settle(
        &self,
        state: &mut Option<SlidingWindowState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        if actual == charge.cost || (state.is_none() && actual < charge.cost) {
            return;
        }
        let known = state.as_ref();
        let at = known.map_or(now, |state| now.max(state.written_at));
        let slices = match known {
            Some(state) if !state.counts_in(&self.slices) => state.slices(),
            _ => self.slices,
        };
        let (position, charged) = (slices.position(at), slices.position(charge.at));
        let age = match position.slice.checked_sub(charged.slice) {
            Some(age) if age <= slices.count() => age,
            _ => return,
        };
        let state = state.get_or_insert_with(|| SlidingWindowState::empty(&slices, at));
        state.advance(at, state.passed(&slices, at, &position));
        let counter = &mut state.counters[age as usize];
        *counter = if actual < charge.cost {
            counter.saturating_sub(charge.cost - actual)
        } else {
            counter.saturating_add(actual - charge.cost)
        };
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &SlidingWindowState) -> Timestamp {
        if !state.counts_in(&self.slices) {
            return self.forgettable_at(&state.converted(&self.slices));
        }
        let position = self.slices.position(state.written_at);
        let wait = self.empty_in(&position, &state.counters).unwrap_or(0);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
    }

    #[inline]
    fn built_in(&self) -> BuiltIn<'_, SlidingWindowState> {
        BuiltIn::new(Form::Slices(self), self)
    }
}
