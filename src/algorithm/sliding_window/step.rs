//! What counts at an instant, and the decisions that follow from it.

use std::{borrow::Cow, time::Duration};

use super::{
    SlidingWindow, SlidingWindowState,
    slices::{Place, until_inside},
};
use crate::{
    algorithm::{Algorithm, StateKind, Step},
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Told, Verdict},
};

/// What counts at an instant, which is never before the last write.
struct View<'a> {
    at: Timestamp,
    place: Place,
    /// How many slices have begun since the last write.
    passed: u64,
    /// The counters that still count, the newest first; the last one is that of the oldest slice.
    counting: &'a [u64],
    /// What all but the oldest come to, cut to a word.
    whole: u64,
    remaining: u64,
}

/// The counters of the slices that count in full, and that of the oldest.
#[inline]
fn split(counting: &[u64]) -> (&[u64], u64) {
    match counting.split_last() {
        Some((oldest, whole)) => (whole, *oldest),
        None => (&[], 0),
    }
}

/// What counters come to, cut to a word.
#[inline]
fn sum(counters: &[u64]) -> u64 {
    match counters {
        [one] => *one,
        all => all.iter().fold(0, |sum, one| sum.saturating_add(*one)),
    }
}

impl SlidingWindow {
    /// What counts of a state whose slices are those of this rule.
    #[inline]
    fn view<'a>(&self, state: Option<&'a SlidingWindowState>, now: Timestamp) -> View<'a> {
        let at = state.map_or(now, |state| now.max(state.written_at));
        let place = self.slices.place(at);
        let passed = state.map_or(0, |state| state.passed(&self.slices, at, &place));
        let counting = state.map_or(&[][..], |state| state.counting(passed));
        let (whole, oldest) = split(counting);
        let whole = sum(whole);
        // Costs are whole: they pass beside the exact estimate just if they do beside it rounded up.
        let estimate = whole.saturating_add(self.slices.inside(oldest, &place));
        View {
            at,
            place,
            passed,
            counting,
            whole,
            remaining: self.limit.get().saturating_sub(estimate),
        }
    }

    /// Nanoseconds until `cost` passes, which is above what remains and at most the limit.
    #[inline]
    fn wait(&self, view: &View<'_>, cost: u64) -> u64 {
        let free = self.limit.get() - cost;
        match (free.checked_sub(view.whole), view.counting.last()) {
            (Some(free), Some(oldest)) => {
                until_inside(free, *oldest, view.place.rest, view.place.length)
            }
            _ => self.wait_for_slice(view.place.slice, view.place.rest, view.counting, free),
        }
    }

    /// The same where the counters that count in full leave less than the cost: another slice must begin.
    // Not a view, which would then have to lie in memory.
    fn wait_for_slice(&self, slice: u64, rest: u64, counting: &[u64], mut free: u64) -> u64 {
        let (whole, _) = split(counting);
        for (index, count) in whole.iter().enumerate() {
            // In the slice in which this one is the oldest, the newer ones fit beside the cost, and it does in part.
            let Some(left) = free.checked_sub(*count) else {
                let slices = (whole.len() - index) as u64;
                let (between, length) = self.slices.after(slice, slices);
                return until_inside(free, *count, rest + between, length);
            };
            free = left;
        }
        0
    }

    /// Nanoseconds until no counter counts; `None` where none does.
    #[inline]
    fn empty_in(&self, place: &Place, counting: &[u64]) -> Option<u64> {
        let newest = counting.iter().position(|count| *count > 0)?;
        let slices = (counting.len() - 1 - newest) as u64;
        Some(place.rest + self.slices.after(place.slice, slices).0)
    }

    /// The answer to whether `asked` units pass, and to what was charged for it.
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
            .empty_in(&view.place, view.counting)
            .map_or(Duration::ZERO, wait);
        let verdict = if passes {
            Verdict::Allow
        } else {
            Verdict::Refuse
        };
        let decision = Decision::new(verdict, now, cost)
            .with_limit(self.limit, self.quota)
            .with_told(Told {
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

    /// The state, its calls counted in this rule's slices.
    #[inline]
    fn own<'a>(&self, state: &'a SlidingWindowState) -> Cow<'a, SlidingWindowState> {
        if state.counts_in(&self.slices) {
            Cow::Borrowed(state)
        } else {
            Cow::Owned(state.converted(&self.slices))
        }
    }

    /// Steps on what a rule with other slices has written.
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
                place,
                passed,
                whole,
                remaining,
                ..
            } = view;
            let state = state.get_or_insert_with(|| SlidingWindowState::empty(&self.slices, at));
            state.advance(at, passed);
            // At most the limit, as all that counts in full.
            state.counters[0] += cost;
            view = View {
                at,
                place,
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

    /// Corrects the counter of the slice in which the clock showed the call, as long as any of it counts.
    ///
    /// The slices are those of the rule that wrote last.
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
        let (place, charged) = (slices.place(at), slices.place(charge.at));
        let age = match place.slice.checked_sub(charged.slice) {
            Some(age) if age <= slices.count() => age,
            _ => return,
        };
        let state = state.get_or_insert_with(|| SlidingWindowState::empty(&slices, at));
        state.advance(at, state.passed(&slices, at, &place));
        let counter = &mut state.counters[age as usize];
        *counter = if actual < charge.cost {
            counter.saturating_sub(charge.cost - actual)
        } else {
            counter.saturating_add(actual - charge.cost)
        };
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named("sliding-window") }
    }

    #[inline]
    fn forgettable_at(&self, state: &SlidingWindowState) -> Timestamp {
        if !state.counts_in(&self.slices) {
            return self.forgettable_at(&state.converted(&self.slices));
        }
        let place = self.slices.place(state.written_at);
        let wait = self.empty_in(&place, &state.counters).unwrap_or(0);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
    }
}
