//! The backlog of a queue and the decisions that follow from it; slots that were refunded, and the
//! correction of charges.
//!
//! A queue refunds slots, not time. A cancelled call frees its slot, but later calls have their
//! delays already, so the slot is granted again only from the end of the queue.

use std::{collections::VecDeque, num::NonZeroU64, time::Duration};

use super::LeakyBucket;
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        packed::{BuiltIn, Form, InWords, PackedKind, PackedState, StepPacked, StoreTime},
        rate::{Units, Width, in_width},
        ticks::{PARTS_PER_NANO, Ticks, after, after_ticks},
    },
    decision::{Charge, Compute, Cost, Decision, Deferred, Numbers, Verdict},
    time::Timestamp,
};

/// The state of a key under a [`LeakyBucket`]: when the next departure is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucketState {
    pub(super) written_at: Timestamp,
    /// Slots before the last one that were refunded. Boxed, because there are seldom any.
    pub(super) refunded: Option<Box<RefundedSlots>>,
    /// From the last write to the next free departure, never below zero.
    pub(super) backlog: Ticks,
    /// `true` if the last write was the only call at its instant.
    pub(super) sole: bool,
}

/// The time until the next departure is free, in units of the rate, at an instant that is never
/// before the last write.
#[derive(Clone, Copy)]
struct Backlog<N> {
    units: N,
    at: Timestamp,
}

/// A rule, with its numbers in one width.
#[derive(Clone, Copy)]
struct QueueInWidth<'a, N> {
    rule: &'a LeakyBucket,
    units: Units<N>,
    /// The longest backlog with which anything passes, in units.
    longest: N,
}

impl LeakyBucket {
    #[inline]
    fn queue_in<N: Width>(&self) -> QueueInWidth<'_, N> {
        let units = N::units(&self.rate);
        QueueInWidth {
            rule: self,
            units,
            longest: match self.max_wait {
                Some(nanos) => units.level(Ticks::NONE, nanos.get()).min(units.full),
                None => units.full,
            },
        }
    }
}

impl<N: Width> QueueInWidth<'_, N> {
    #[inline]
    pub(super) fn backlog(&self, state: Option<&LeakyBucketState>, now: Timestamp) -> Backlog<N> {
        let Some(state) = state else {
            let (units, at) = (N::ZERO, now);
            return Backlog { units, at };
        };
        let at = now.max(state.written_at);
        let elapsed = self
            .units
            .level(Ticks::NONE, at.nanos_since(state.written_at));
        let units = self.units.owed(state.backlog) - elapsed;
        Backlog {
            units: units.max(N::ZERO),
            at,
        }
    }

    /// Returns the longest backlog with which `cost`, at most the capacity, passes.
    #[inline]
    fn most(&self, cost: u64) -> N {
        (self.units.full - self.units.price(cost)).min(self.longest)
    }

    /// Adds `cost` to the backlog if it passes; returns the new backlog, and the decision.
    // Always inlined: most callers read only a part of the decision, and the compiler drops the
    // rest.
    #[inline(always)]
    fn decide(&self, backlog: Backlog<N>, now: Timestamp, cost: Cost) -> (Option<N>, Decision) {
        let cost = cost.get();
        if cost > self.rule.capacity.get() || backlog.units > self.most(cost) {
            return (None, self.refuse(now, cost, cost, &backlog));
        }
        let units = backlog.units + self.units.price(cost);
        let verdict = self.departs(backlog.units);
        let after = Backlog { units, ..backlog };
        (Some(units), self.answer(verdict, now, cost, &after))
    }

    /// Returns the verdict for a call that departs behind a backlog.
    #[inline(always)]
    fn departs(&self, units: N) -> Verdict {
        if units == N::ZERO {
            Verdict::Allow
        } else {
            Verdict::Delay(after(0, self.units.nanos(units)))
        }
    }

    /// Returns a refusal whose `retry_after` ends when `asked` passes.
    #[inline(always)]
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, backlog: &Backlog<N>) -> Decision {
        let retry_after = (asked <= self.rule.capacity.get()).then(|| {
            let wait = self.units.nanos(backlog.units - self.most(asked));
            after(backlog.at.nanos_since(now), wait)
        });
        self.answer(Verdict::Refuse, now, cost, backlog)
            .with_retry_after(retry_after)
    }

    #[inline(always)]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        backlog: &Backlog<N>,
    ) -> Decision {
        let rule = self.rule;
        let decision = Decision::new(verdict, now, cost).with_limit(rule.capacity, rule.quota);
        let stalled = backlog.at.nanos_since(now);
        if !N::IS_NARROW {
            return decision.with_numbers(self.numbers(backlog.units, stalled));
        }
        let Units { price, full, .. } = self.units;
        let state = [backlog.units, price, full, self.longest].map(N::narrow);
        let [backlog, price, full, longest] = state.map(|units| units as u64);
        decision.with_deferred(Deferred {
            state: [backlog, price, full, longest, stalled, 0],
            compute: &DEFERRED,
        })
    }

    fn numbers(&self, backlog: N, stalled: u64) -> Numbers {
        let remaining = match backlog > self.longest {
            true => 0,
            false => (self.units.full - backlog).over(self.units.price),
        };
        // With one more than remains, unless that is more than the capacity.
        let most = self.units.full - self.units.price(remaining + 1);
        let wait = |units| match units == N::ZERO {
            true => Duration::ZERO,
            false => after(stalled, self.units.nanos(units)),
        };
        Numbers {
            remaining,
            more_after: match most < N::ZERO {
                true => Duration::ZERO,
                false => wait(backlog - most.min(self.longest)),
            },
            reset_after: wait(backlog),
        }
    }

    #[inline]
    fn step(&self, state: &mut Option<LeakyBucketState>, now: Timestamp, cost: Cost) -> Step {
        let backlog = self.backlog(state.as_ref(), now);
        let (units, decision) = self.decide(backlog, now, cost);
        let Some(units) = units else {
            return Step::Kept(decision);
        };
        let span = self.units.span(units);
        LeakyBucketState::write(state, backlog.at, backlog.units == N::ZERO, span);
        Step::Wrote(decision)
    }

    fn look(&self, state: Option<&LeakyBucketState>, now: Timestamp) -> Decision {
        let backlog = self.backlog(state, now);
        if backlog.units > self.most(1) {
            return self.refuse(now, 0, 1, &backlog);
        }
        self.answer(self.departs(backlog.units), now, 0, &backlog)
    }
}

/// Computes the numbers of a queue that is counted in ticks.
const DEFERRED: Compute = Compute {
    remaining: |&[backlog, price, full, longest, ..]| match backlog > longest {
        true => 0,
        false => (full - backlog) / price,
    },
    reset_after: |&[backlog, _, _, _, stalled, _]| after_ticks(stalled, backlog),
    more_after: |&[backlog, price, full, longest, stalled, _], remaining| {
        let most = full.checked_sub((remaining + 1) * price);
        most.map_or(Duration::ZERO, |most| {
            after_ticks(stalled, backlog - most.min(longest))
        })
    },
    position: |_, _| None,
};

impl StepPacked for LeakyBucket {
    const AHEAD: u64 = PackedState::LONGEST;

    #[inline]
    fn packed_kind(&self) -> PackedKind {
        PackedKind::QUEUE
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
        let backlog = Backlog {
            units: packed.since(now.packed()).max(0),
            at: now.at(),
        };
        let (backlog, decision) = self.queue_in().decide(backlog, now.at(), cost);
        let packed = backlog.map(|backlog: i64| now.packed().after(backlog as u64));
        (packed, decision)
    }

    #[inline]
    fn step_debt(
        &self,
        debt: Option<PackedState>,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        self.step_packed(debt.unwrap_or(self.floor(now)), now, cost)
    }

    #[inline]
    fn floor(&self, now: StoreTime) -> PackedState {
        now.packed()
    }
}

impl LeakyBucketState {
    /// Writes the state after a call at `at`, which found the queue idle or not.
    #[inline]
    fn write(state: &mut Option<Self>, at: Timestamp, idle: bool, backlog: Ticks) {
        match state {
            None => {
                *state = Some(Self {
                    written_at: at,
                    refunded: None,
                    backlog,
                    sole: true,
                });
            }
            Some(state) => {
                state.sole = at > state.written_at;
                state.written_at = at;
                state.backlog = backlog;
                if idle {
                    state.refunded = None;
                }
            }
        }
    }
}

impl Algorithm for LeakyBucket {
    type State = LeakyBucketState;

    #[inline]
    fn step(&self, state: &mut Option<LeakyBucketState>, now: Timestamp, cost: Cost) -> Step {
        in_width!(self.rate.is_narrow(), N => self.queue_in::<N>().step(state, now, cost))
    }

    fn look(&self, state: Option<&LeakyBucketState>, now: Timestamp) -> Decision {
        in_width!(self.rate.is_narrow(), N => self.queue_in::<N>().look(state, now))
    }

    /// Refunds a slot to calls that have no delay yet, or takes more.
    ///
    /// A higher cost makes the backlog longer from now on. A lower cost corrects the last slot of
    /// the queue: the key is left exactly as if the call had cost `actual` from the beginning, also
    /// after it has departed. A cost of 0, before the departure, also refunds a slot in the middle,
    /// as soon as all slots behind it are refunded, unless 16 others are remembered that do not
    /// touch it. Any other correction changes nothing, because the calls behind have their delays
    /// already.
    ///
    /// A call is recognised by its cost and its departure. So a second settlement gives nothing
    /// back, unless a call of the same cost has taken the slot since. Nothing is refunded if [calls
    /// cannot be distinguished](LeakyBucket#calls-that-are-cancelled).
    fn settle(
        &self,
        state: &mut Option<LeakyBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        // Corrections are rare, and the widest numbers are enough for all rules.
        let queue = self.queue_in::<i128>();
        if let Some(more) = actual.checked_sub(charge.cost) {
            queue.take(state, now, more);
        } else if let Some(state) = state {
            // A store asks for that before.
            let _forgets = queue.refund(state, charge, now, actual);
        }
    }

    fn forgets(
        &self,
        state: Option<&LeakyBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        let forgets = |state: &LeakyBucketState| {
            let queue = self.queue_in::<i128>();
            queue.refund(&mut state.clone(), charge, now, actual)
        };
        actual < charge.cost && state.is_some_and(forgets)
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &LeakyBucketState) -> Timestamp {
        let wait = state.backlog.nanos_up().min(i128::from(u64::MAX));
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait as u64))
    }

    /// Returns `true` unless the queue is 0: then nothing waits.
    fn may_delay(&self) -> bool {
        self.capacity > NonZeroU64::MIN
    }

    #[inline]
    fn built_in(&self) -> BuiltIn<'_, LeakyBucketState> {
        BuiltIn::new(Form::Queue(self), self)
    }
}

impl InWords<LeakyBucketState> for LeakyBucket {
    /// Returns `None` while refunded slots in the middle are remembered.
    fn write_word(&self, state: &LeakyBucketState, now: StoreTime) -> Option<PackedState> {
        if !self.is_packed() || state.refunded.is_some() {
            return None;
        }
        now.packed_after(state.written_at, state.backlog.whole()?)
    }

    fn read_word(
        &self,
        packed: PackedState,
        _: PackedKind,
        now: StoreTime,
    ) -> Option<LeakyBucketState> {
        Some(LeakyBucketState {
            written_at: now.at(),
            refunded: None,
            backlog: Ticks::new(packed.since(now.packed()).max(0)),
            sole: false,
        })
    }
}

/// The most slots that are remembered, so that no number of clients that hang up makes a state
/// large, or slow to correct.
const MOST: usize = 16;

/// Slots before the last one that were refunded and have not passed, in the order of their
/// departures. Slots that touch are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RefundedSlots(pub(super) VecDeque<QueueSlot>);

/// A slot in the queue: the time from its departure to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueSlot {
    pub(super) departs: Timestamp,
    pub(super) span: Ticks,
}

impl RefundedSlots {
    /// Returns the slot before `index`, and for how many nanoseconds it lasts after `departs`.
    /// Departures are rounded up, so 0 and 1 mean that it ends there.
    fn before(&self, index: usize, departs: Timestamp) -> Option<(QueueSlot, i128)> {
        let slot = *self.0.get(index.checked_sub(1)?)?;
        let nanos = departs.nanos_since(slot.departs);
        Some((slot, slot.span.nanos_up() - i128::from(nanos)))
    }

    /// Unites the slot at `index` with the one before it, if it begins where that ends. `gap`, the
    /// least time between two slots that do not touch, must be two nanoseconds.
    fn unite(&mut self, index: usize, gap: i128) {
        let Some(second) = self.0.get(index).copied() else {
            return;
        };
        let Some((first, 0 | 1)) = self.before(index, second.departs) else {
            return;
        };
        if gap < 2 * PARTS_PER_NANO {
            return;
        }
        let parts = first.span.parts().saturating_add(second.span.parts());
        let span = Ticks::from_parts(parts);
        // Very long spans are whole nanoseconds.
        if span.parts() == parts {
            self.0[index - 1].span = span;
            self.0.remove(index);
        }
    }

    /// Drops slots that have passed, which make no difference any more.
    fn pass(&mut self, now: Timestamp) {
        let end = |slot: &QueueSlot| i128::from(slot.departs.as_nanos()) + slot.span.nanos_up();
        while let Some(first) = self.0.front() {
            if end(first) > i128::from(now.as_nanos()) {
                break;
            }
            self.0.pop_front();
        }
    }
}

impl QueueInWidth<'_, i128> {
    /// Lengthens the backlog by force.
    fn take(&self, state: &mut Option<LeakyBucketState>, now: Timestamp, more: u64) {
        if more == 0 {
            return;
        }
        let Backlog { units, at } = self.backlog(state.as_ref(), now);
        let backlog = self.units.span(units).parts();
        *state = Some(LeakyBucketState {
            written_at: at,
            // A forced cost is never refunded, and so no slot before it.
            refunded: None,
            backlog: Ticks::from_parts(backlog.saturating_add(self.units.price_in_parts(more))),
            sole: false,
        });
    }

    /// Corrects a charge to the `actual` cost, which is less. Returns `true` if its slot is one too
    /// many to be remembered.
    fn refund(
        &self,
        state: &mut LeakyBucketState,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        let Backlog { units, at } = self.backlog(Some(state), now);
        if units == 0 {
            // Time has restored all.
            state.refunded = None;
            return false;
        }
        if let Some(refunded) = &mut state.refunded {
            refunded.pass(at);
        }
        let price = self.units.price_in_parts(charge.cost);
        // The beginning of the charge's slot if it is the last one, counted from the last write.
        let slot = state.backlog.parts() - price;
        let last = self.departure(state, slot);
        let sole = state.sole && charge.at == state.written_at;
        // Otherwise several calls depart in a nanosecond.
        let apart = self.units.price_in_parts(1) >= PARTS_PER_NANO;
        let told = charge.delay.map(|delay| {
            i128::from(charge.at.as_nanos()).saturating_add_unsigned(delay.as_nanos())
        });
        let mut forgets = false;
        match told {
            None if sole => self.shorten(state, slot, actual),
            Some(told) if told == last && (apart || sole) => self.shorten(state, slot, actual),
            Some(told) if told < last && apart && actual == 0 => {
                forgets = !self.remembers(state, told, price, at);
            }
            _ => {}
        }
        state.refunded = state
            .refunded
            .take()
            .filter(|refunded| !refunded.0.is_empty());
        forgets
    }

    /// Returns when a slot departs that begins `parts` parts of a tick after the last write, in
    /// nanoseconds rounded up.
    fn departure(&self, state: &LeakyBucketState, parts: i128) -> i128 {
        i128::from(state.written_at.as_nanos()) - (-parts).div_euclid(PARTS_PER_NANO)
    }

    /// Remembers a slot before the last one, if it has not departed. Returns `false` if it is one
    /// too many.
    fn remembers(
        &self,
        state: &mut LeakyBucketState,
        departs: i128,
        price: i128,
        now: Timestamp,
    ) -> bool {
        // A departure beyond all instants is not remembered.
        let departs = u64::try_from(departs).map_or(now, Timestamp::from_nanos);
        let refunded = state.refunded.get_or_insert_default();
        // Also charges that were never made are no more than fit.
        let most = MOST.min(usize::try_from(self.rule.capacity.get()).unwrap_or(MOST));
        let Err(index) = refunded
            .0
            .binary_search_by_key(&departs, |slot| slot.departs)
        else {
            return true;
        };
        // One that lies within another was remembered before.
        let is_known = refunded
            .before(index, departs)
            .is_some_and(|(_, after)| after > 1);
        if departs <= now || is_known {
            return true;
        }
        let span = Ticks::from_parts(price);
        // There are more after the queue became shorter.
        let most = most.max(refunded.0.len());
        refunded.0.insert(index, QueueSlot { departs, span });
        let gap = self.units.price_in_parts(1);
        refunded.unite(index + 1, gap);
        refunded.unite(index, gap);
        let is_remembered = refunded.0.len() <= most;
        if !is_remembered {
            refunded.0.remove(index);
        }
        is_remembered
    }

    /// Leaves `actual` of the last slot; if that is nothing, also nothing of those before it that
    /// were refunded.
    fn shorten(&self, state: &mut LeakyBucketState, slot: i128, actual: u64) {
        let mut end = slot + self.units.price_in_parts(actual);
        let mut refunded = state.refunded.take();
        while let Some(before) = refunded.as_ref().and_then(|refunded| refunded.0.back()) {
            let begin = end - before.span.parts();
            let is_next = self.departure(state, begin) == i128::from(before.departs.as_nanos());
            if actual > 0 || !is_next {
                break;
            }
            end = begin;
            refunded.as_mut().and_then(|refunded| refunded.0.pop_back());
        }
        state.refunded = refunded;
        state.backlog = Ticks::from_parts(end.max(0));
        state.sole = false;
    }
}
