//! The backlog of a queue, and the decisions that follow from it.

use std::{num::NonZeroU64, time::Duration};

use super::{freed::Freed, rule::LeakyBucket};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        packed::{Meter, Metering, PackedKind, PackedState, StoreTime},
        rate::{Units, Width},
        ticks::{Ticks, after, after_ticks},
    },
    decision::{Charge, Compute, Cost, Decision, Deferred, Numbers, Verdict},
    time::Timestamp,
};

/// The state of a key under a [`LeakyBucket`]: when the next departure is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucketState {
    pub(super) written_at: Timestamp,
    /// Places before the last one that were given back. Boxed, because there are seldom any.
    pub(super) freed: Option<Box<Freed>>,
    /// From the last write to the next free departure, never below zero.
    pub(super) backlog: Ticks,
    /// `true` if the last write was the only call at its instant.
    pub(super) sole: bool,
}

/// The time until the next departure is free, in units of the rate, at an instant that is never before the
/// last write.
#[derive(Clone, Copy)]
pub(super) struct Backlog<N> {
    pub(super) units: N,
    pub(super) at: Timestamp,
}

/// A rule, with its numbers in one width.
#[derive(Clone, Copy)]
pub(super) struct Queue<'a, N> {
    pub(super) rule: &'a LeakyBucket,
    pub(super) units: Units<N>,
    /// The longest backlog with which anything passes, in units.
    longest: N,
}

impl LeakyBucket {
    #[inline]
    fn queue_in<N: Width>(&self) -> Queue<'_, N> {
        let units = N::units(&self.rate);
        Queue {
            rule: self,
            units,
            longest: match self.max_wait {
                Some(nanos) => units.level(Ticks::NONE, nanos.get()).min(units.full),
                None => units.full,
            },
        }
    }
}

impl<N: Width> Queue<'_, N> {
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
    // Always inlined: most callers read a part of the decision.
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

    /// Refuses a call that can come again when `asked` passes.
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

impl Metering for LeakyBucket {
    const AHEAD: u64 = PackedState::LONGEST;

    #[inline]
    fn packed_kind(&self) -> PackedKind {
        PackedKind::QUEUE
    }

    // Always inlined: most callers read a part of the decision.
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
                    freed: None,
                    backlog,
                    sole: true,
                });
            }
            Some(state) => {
                state.sole = at > state.written_at;
                state.written_at = at;
                state.backlog = backlog;
                if idle {
                    state.freed = None;
                }
            }
        }
    }
}

impl Algorithm for LeakyBucket {
    type State = LeakyBucketState;

    #[inline]
    fn step(&self, state: &mut Option<LeakyBucketState>, now: Timestamp, cost: Cost) -> Step {
        if self.rate.is_narrow() {
            self.queue_in::<i64>().step(state, now, cost)
        } else {
            self.queue_in::<i128>().step(state, now, cost)
        }
    }

    fn look(&self, state: Option<&LeakyBucketState>, now: Timestamp) -> Decision {
        if self.rate.is_narrow() {
            self.queue_in::<i64>().look(state, now)
        } else {
            self.queue_in::<i128>().look(state, now)
        }
    }

    /// Gives a place back to calls that have no delay yet, or takes more.
    ///
    /// A higher cost makes the backlog longer from now on. A lower cost corrects the last place of the queue: the key is left
    /// exactly as if the call had cost `actual` from the beginning, also after it has departed. A cost of 0, before the departure,
    /// also gives back a place in the middle, as soon as all places behind it are given back, unless 16 others are remembered that do not
    /// touch it. Any other correction changes nothing, because the calls behind have their delays already.
    ///
    /// A call is recognised by its cost and its departure. So a second settlement gives nothing back, unless a call of the same
    /// cost has taken the place since. Nothing is given back if [calls cannot be distinguished](LeakyBucket#calls-that-are-cancelled).
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
            let _forgets = queue.give_back(state, charge, now, actual);
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
            queue.give_back(&mut state.clone(), charge, now, actual)
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

    /// Unless the queue is 0: then nothing waits.
    fn may_delay(&self) -> bool {
        self.capacity > NonZeroU64::MIN
    }

    #[inline]
    fn meter(&self) -> Option<Meter<'_>> {
        self.is_packed().then(|| Meter::of_queue(self))
    }

    /// Not while places in the middle are given back.
    fn pack(&self, state: &LeakyBucketState, now: StoreTime) -> Option<PackedState> {
        if !self.is_packed() || state.freed.is_some() {
            return None;
        }
        now.packed_after(state.written_at, state.backlog.whole()?)
    }

    fn unpack(
        &self,
        packed: PackedState,
        _: PackedKind,
        now: StoreTime,
    ) -> Option<LeakyBucketState> {
        Some(LeakyBucketState {
            written_at: now.at(),
            freed: None,
            backlog: Ticks::new(packed.since(now.packed()).max(0)),
            sole: false,
        })
    }
}
