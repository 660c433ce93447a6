//! How long the backlog is, and the decisions that follow from it.

use std::{num::NonZeroU64, time::Duration};

use super::{LeakyBucket, LeakyBucketState};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        credit::{Credit, div_floor, duration},
        mark::{Mark, Moment},
        meter::Meter,
        shape::Shape,
    },
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Told, Verdict},
};

/// The time until the next departure is free, in units of the rate, at an instant that is never before the
/// last write.
pub(super) struct Backlog {
    pub(super) units: i128,
    pub(super) at: Timestamp,
}

impl LeakyBucket {
    #[inline]
    pub(super) fn backlog(&self, state: Option<&LeakyBucketState>, now: Timestamp) -> Backlog {
        let Some(state) = state else {
            return Backlog { units: 0, at: now };
        };
        let at = now.max(state.written_at);
        let elapsed = i128::from(at.nanos_since(state.written_at)) * i128::from(self.rate.per_nano);
        let units = state.backlog.units_up(self.rate.per_nano) - elapsed;
        Backlog {
            units: units.max(0),
            at,
        }
    }

    /// So many units as a span of time: from where that has whole nanoseconds only, rounded up.
    pub(super) fn span(&self, units: i128) -> Credit {
        let (per_nano, long) = (self.rate.per_nano, i128::from(Credit::LONG_NANOS));
        let up = if units >= long * i128::from(per_nano) {
            i128::from(per_nano - 1)
        } else {
            0
        };
        Credit::from_units(units.saturating_add(up), per_nano)
    }

    /// The longest backlog with which `cost`, at most the capacity, passes.
    #[inline]
    fn most(&self, cost: u64) -> i128 {
        self.rate
            .price(self.capacity.get() - cost)
            .min(self.longest())
    }

    /// The longest backlog with which anything passes.
    #[inline]
    fn longest(&self) -> i128 {
        self.max_wait.map_or(i128::MAX, |nanos| {
            i128::from(nanos.get()) * i128::from(self.rate.per_nano)
        })
    }

    #[inline]
    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, backlog: &Backlog) -> Decision {
        let stalled = u128::from(backlog.at.nanos_since(now));
        let wait = |units| match self.rate.wait(units) {
            0 => 0,
            wait => stalled + wait,
        };
        let free = self.rate.price(self.capacity.get()) - backlog.units;
        let remaining = if free <= 0 || backlog.units > self.longest() {
            0
        } else {
            div_floor(free as u128, self.rate.per_token) as u64
        };
        let more_after = if remaining == self.capacity.get() {
            0
        } else {
            wait(backlog.units - self.most(remaining + 1))
        };
        Decision::new(verdict, now, cost)
            .with_limit(self.capacity, self.quota)
            .with_told(Told {
                remaining,
                more_after: duration(more_after),
                reset_after: duration(wait(backlog.units)),
            })
    }

    /// The answer to a cost that does not pass.
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, backlog: &Backlog) -> Decision {
        let retry_after = (asked <= self.capacity.get()).then(|| {
            let stalled = u128::from(backlog.at.nanos_since(now));
            let wait = self.rate.wait(backlog.units - self.most(asked));
            duration(stalled + wait)
        });
        self.answer(Verdict::Refuse, now, cost, backlog)
            .with_retry_after(retry_after)
    }

    /// What is told to a call that departs behind a backlog of so many units.
    fn departs(&self, units: i128) -> Verdict {
        verdict(duration(self.rate.wait(units)))
    }

    /// Any rule and any state.
    fn step_wide(&self, state: &mut Option<LeakyBucketState>, now: Timestamp, cost: Cost) -> Step {
        let mut backlog = self.backlog(state.as_ref(), now);
        let cost = cost.get();
        if cost > self.capacity.get() || backlog.units > self.most(cost) {
            return Step::Kept(self.refuse(now, cost, cost, &backlog));
        }
        let (before, verdict) = (backlog.units, self.departs(backlog.units));
        backlog.units += self.rate.price(cost);
        let span = self.span(backlog.units);
        LeakyBucketState::write(state, backlog.at, before == 0, span);
        Step::Wrote(self.answer(verdict, now, cost, &backlog))
    }
}

impl LeakyBucketState {
    /// A queue that is idle from a mark on.
    pub(in crate::algorithm) fn idle_at(mark: Mark, now: Moment) -> Self {
        Self {
            written_at: now.at(),
            freed: None,
            backlog: Credit::from_thirds(mark.since(now.mark()).max(0)),
            sole: false,
        }
    }

    /// After a call at `at`, which found the queue idle or not.
    #[inline]
    pub(super) fn write(state: &mut Option<Self>, at: Timestamp, idle: bool, backlog: Credit) {
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

#[inline]
pub(super) fn verdict(delay: Duration) -> Verdict {
    if delay.is_zero() {
        Verdict::Allow
    } else {
        Verdict::Delay(delay)
    }
}

impl Algorithm for LeakyBucket {
    type State = LeakyBucketState;

    #[inline]
    fn step(&self, state: &mut Option<LeakyBucketState>, now: Timestamp, cost: Cost) -> Step {
        self.step_metered(state, now, cost)
            .unwrap_or_else(|| self.step_wide(state, now, cost))
    }

    fn look(&self, state: Option<&LeakyBucketState>, now: Timestamp) -> Decision {
        let backlog = self.backlog(state, now);
        if backlog.units > self.most(1) {
            return self.refuse(now, 0, 1, &backlog);
        }
        self.answer(self.departs(backlog.units), now, 0, &backlog)
    }

    /// Gives a place back to those who are not told their delay yet, or takes more.
    ///
    /// More makes the backlog longer from now on. Less corrects the last place of the queue: the key is left
    /// exactly as if the call had cost `actual` from the beginning, also after it has departed. And 0 gives
    /// back a place in the middle, before its departure, once all behind it is given back too. Anything
    /// else changes nothing, for those who wait behind a call keep what they were told.
    ///
    /// A call is recognised by its cost and its departure. So a second settlement gives nothing back, unless
    /// a call of the same cost has taken the place since; and nothing is given back where calls cannot be told
    /// apart, as [the type](LeakyBucket#calls-that-are-cancelled) says.
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
            self.give_back(state, charge, now, actual);
        }
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named("leaky-bucket") }
    }

    #[inline]
    fn forgettable_at(&self, state: &LeakyBucketState) -> Timestamp {
        let wait = u64::try_from(state.backlog.units_up(1)).unwrap_or(u64::MAX);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
    }

    /// Unless the queue is 0: then nothing waits.
    fn may_delay(&self) -> bool {
        self.capacity > NonZeroU64::MIN
    }

    /// Only where calls can be told apart by their departures: a mark does not say whether the last call was the
    /// only one at its instant.
    #[inline]
    fn meter(&self) -> Option<Meter<'_>> {
        let meter = self.meter.as_ref().filter(|meter| meter.is_apart());
        meter.map(Meter::of_queue)
    }

    /// Not while places in the middle are given back.
    fn mark_of(&self, state: &LeakyBucketState, now: Moment) -> Option<Mark> {
        if self.meter().is_none() || state.freed.is_some() {
            return None;
        }
        now.mark_after(state.written_at, state.backlog.thirds()?)
    }

    fn state_of(&self, mark: Mark, _: Shape, now: Moment) -> Option<LeakyBucketState> {
        Some(LeakyBucketState::idle_at(mark, now))
    }
}
