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
        rate::Rate,
        ticks::{CUT, PER_NANO, after, after_ticks, cut, longer, nanos_up},
    },
    decision::{Charge, Compute, Cost, Decision, Deferred, Verdict},
    time::Timestamp,
};

/// The state of a key under a [`LeakyBucket`]: when the next departure is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucketState {
    pub(super) written_at: Timestamp,
    /// Slots before the last one that were refunded. Boxed, because there are seldom any.
    pub(super) refunded: Option<Box<RefundedSlots>>,
    /// The ticks from the last write to the next free departure, never below zero.
    pub(super) backlog: i64,
    /// `true` if the last write was the only call at its instant.
    pub(super) sole: bool,
}

/// The time until the next departure is free, at an instant that is never before the last write.
#[derive(Clone, Copy)]
struct Backlog {
    ticks: i64,
    at: Timestamp,
}

impl Backlog {
    #[inline]
    fn of(state: Option<&LeakyBucketState>, now: Timestamp) -> Self {
        let Some(state) = state else {
            return Self { ticks: 0, at: now };
        };
        let at = now.max(state.written_at);
        let elapsed = longer(0, at.nanos_since(state.written_at));
        let ticks = (state.backlog - elapsed).max(0);
        Self { ticks, at }
    }
}

impl LeakyBucket {
    /// Returns the longest backlog with which anything passes, in ticks.
    #[inline]
    fn longest(&self) -> i64 {
        match self.max_wait {
            Some(nanos) => longer(0, nanos.get()).min(self.rate.full),
            None => self.rate.full,
        }
    }

    /// Returns the longest backlog with which `cost`, at most the capacity, passes.
    #[inline]
    fn most(&self, cost: u64) -> i64 {
        (self.rate.full - self.rate.price_of(cost)).min(self.longest())
    }

    /// Adds `cost` to the backlog if it passes; returns the new backlog, and the decision.
    // Always inlined: most callers read only a part of the decision, and the compiler drops the
    // rest.
    #[inline(always)]
    fn decide(&self, backlog: Backlog, now: Timestamp, cost: Cost) -> (Option<i64>, Decision) {
        let cost = cost.get();
        if cost > self.capacity.get() || backlog.ticks > self.most(cost) {
            return (None, self.refuse(now, cost, cost, &backlog));
        }
        let ticks = backlog.ticks + self.rate.price_of(cost);
        let verdict = departs(backlog.ticks);
        let after = Backlog { ticks, ..backlog };
        (Some(ticks), self.answer(verdict, now, cost, &after))
    }

    /// Returns a refusal whose `retry_after` ends when `asked` passes.
    #[inline(always)]
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, backlog: &Backlog) -> Decision {
        let retry_after = (asked <= self.capacity.get()).then(|| {
            let wait = nanos_up(backlog.ticks - self.most(asked));
            after(backlog.at.nanos_since(now), wait.into())
        });
        self.answer(Verdict::Refuse, now, cost, backlog)
            .with_retry_after(retry_after)
    }

    #[inline(always)]
    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, backlog: &Backlog) -> Decision {
        let stalled = backlog.at.nanos_since(now);
        let Rate { price, full, .. } = self.rate;
        let state = [backlog.ticks, price, full, self.longest()];
        let [backlog, price, full, longest] = state.map(|ticks| ticks as u64);
        let decision = Decision::new(verdict, now, cost).with_limit(self.capacity, self.quota);
        decision.with_deferred(Deferred {
            state: [backlog, price, full, longest, stalled, 0],
            compute: &DEFERRED,
        })
    }
}

/// Returns the verdict for a call that departs behind a backlog in ticks.
#[inline(always)]
fn departs(backlog: i64) -> Verdict {
    if backlog == 0 {
        Verdict::Allow
    } else {
        Verdict::Delay(after(0, nanos_up(backlog).into()))
    }
}

/// Computes the numbers of a queue.
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
            ticks: packed.since(now.packed()).max(0),
            at: now.at(),
        };
        let (backlog, decision) = self.decide(backlog, now.at(), cost);
        let packed = backlog.map(|backlog| now.packed().after(backlog as u64));
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
    fn write(state: &mut Option<Self>, at: Timestamp, idle: bool, backlog: i64) {
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
        let backlog = Backlog::of(state.as_ref(), now);
        let (ticks, decision) = self.decide(backlog, now, cost);
        let Some(ticks) = ticks else {
            return Step::Kept(decision);
        };
        LeakyBucketState::write(state, backlog.at, backlog.ticks == 0, ticks);
        Step::Wrote(decision)
    }

    fn look(&self, state: Option<&LeakyBucketState>, now: Timestamp) -> Decision {
        let backlog = Backlog::of(state, now);
        if backlog.ticks > self.most(1) {
            return self.refuse(now, 0, 1, &backlog);
        }
        self.answer(departs(backlog.ticks), now, 0, &backlog)
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
        if let Some(more) = actual.checked_sub(charge.cost) {
            self.take(state, now, more);
        } else if let Some(state) = state {
            // A store asks for that before.
            let _forgets = self.refund(state, charge, now, actual);
        }
    }

    fn forgets(
        &self,
        state: Option<&LeakyBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        let forgets =
            |state: &LeakyBucketState| self.refund(&mut state.clone(), charge, now, actual);
        actual < charge.cost && state.is_some_and(forgets)
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &LeakyBucketState) -> Timestamp {
        let wait = nanos_up(state.backlog);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
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
        now.packed_after(state.written_at, state.backlog)
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
            backlog: packed.since(now.packed()).max(0),
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
    /// In ticks.
    pub(super) span: i64,
}

impl RefundedSlots {
    /// Returns the slot before `index`, and for how many nanoseconds it lasts after `departs`.
    /// Departures are rounded up, so 0 and 1 mean that it ends there.
    fn before(&self, index: usize, departs: Timestamp) -> Option<(QueueSlot, i128)> {
        let slot = *self.0.get(index.checked_sub(1)?)?;
        let nanos = departs.nanos_since(slot.departs);
        Some((slot, i128::from(nanos_up(slot.span)) - i128::from(nanos)))
    }

    /// Unites the slot at `index` with the one before it, if it begins where that ends. Two slots
    /// that do not touch are two nanoseconds apart at least.
    fn unite(&mut self, index: usize) {
        let Some(second) = self.0.get(index).copied() else {
            return;
        };
        let Some((first, 0 | 1)) = self.before(index, second.departs) else {
            return;
        };
        self.0[index - 1].span = first.span.saturating_add(second.span).min(CUT);
        self.0.remove(index);
    }

    /// Drops slots that have passed, which make no difference any more.
    fn pass(&mut self, now: Timestamp) {
        let end = |slot: &QueueSlot| {
            u128::from(slot.departs.as_nanos()) + u128::from(nanos_up(slot.span))
        };
        while let Some(first) = self.0.front() {
            if end(first) > u128::from(now.as_nanos()) {
                break;
            }
            self.0.pop_front();
        }
    }
}

impl LeakyBucket {
    /// Lengthens the backlog by force.
    fn take(&self, state: &mut Option<LeakyBucketState>, now: Timestamp, more: u64) {
        if more == 0 {
            return;
        }
        let Backlog { ticks, at } = Backlog::of(state.as_ref(), now);
        *state = Some(LeakyBucketState {
            written_at: at,
            // A forced cost is never refunded, and so no slot before it.
            refunded: None,
            backlog: cut(i128::from(ticks) + self.rate.price_of_any(more)),
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
        let Backlog { ticks, at } = Backlog::of(Some(state), now);
        if ticks == 0 {
            // Time has restored all.
            state.refunded = None;
            return false;
        }
        if let Some(refunded) = &mut state.refunded {
            refunded.pass(at);
        }
        let price = self.rate.price_of_any(charge.cost);
        // The beginning of the charge's slot if it is the last one, counted from the last write.
        let slot = i128::from(state.backlog) - price;
        let last = departure(state, slot);
        let sole = state.sole && charge.at == state.written_at;
        let due = charge.delay.map(|delay| {
            i128::from(charge.at.as_nanos()).saturating_add_unsigned(delay.as_nanos())
        });
        let mut forgets = false;
        match due {
            None if sole => self.shorten(state, slot, actual),
            Some(due) if due == last => self.shorten(state, slot, actual),
            Some(due) if due < last && actual == 0 => {
                forgets = !self.remembers(state, due, price, at);
            }
            _ => {}
        }
        state.refunded = state
            .refunded
            .take()
            .filter(|refunded| !refunded.0.is_empty());
        forgets
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
        let most = MOST.min(usize::try_from(self.capacity.get()).unwrap_or(MOST));
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
        let span = cut(price);
        // There are more after the queue became shorter.
        let most = most.max(refunded.0.len());
        refunded.0.insert(index, QueueSlot { departs, span });
        refunded.unite(index + 1);
        refunded.unite(index);
        let is_remembered = refunded.0.len() <= most;
        if !is_remembered {
            refunded.0.remove(index);
        }
        is_remembered
    }

    /// Leaves `actual` of the last slot; if that is nothing, also nothing of those before it that
    /// were refunded.
    fn shorten(&self, state: &mut LeakyBucketState, slot: i128, actual: u64) {
        let mut end = slot + self.rate.price_of_any(actual);
        let mut refunded = state.refunded.take();
        while let Some(before) = refunded.as_ref().and_then(|refunded| refunded.0.back()) {
            let begin = end - i128::from(before.span);
            let is_next = departure(state, begin) == i128::from(before.departs.as_nanos());
            if actual > 0 || !is_next {
                break;
            }
            end = begin;
            refunded.as_mut().and_then(|refunded| refunded.0.pop_back());
        }
        state.refunded = refunded;
        state.backlog = cut(end.max(0));
        state.sole = false;
    }
}

/// Returns when a slot departs that begins `ticks` after the last write, in nanoseconds rounded up.
fn departure(state: &LeakyBucketState, ticks: i128) -> i128 {
    i128::from(state.written_at.as_nanos()) - (-ticks).div_euclid(PER_NANO.into())
}
