//! The common queue, counted in words of 64 bits.
//!
//! Decides as `step.rs` does, in a fraction of its time; one oracle meets both.

use std::{num::NonZeroU64, time::Duration};

use super::{LeakyBucket, LeakyBucketState, step::verdict};
use crate::{
    algorithm::{
        Step,
        credit::Credit,
        mark::{Mark, Moment},
        meter::Metering,
        rate::Rate,
        shape::Shape,
    },
    clock::Timestamp,
    decision::{Cost, Decision, Filling, Told, Verdict},
    quota::Quota,
};

/// A queue that is counted in words of 64 bits: its interval is a whole number of thirds of a nanosecond, and it
/// drains within two years.
///
/// Its mark is when the queue is idle again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueMeter {
    quota: Quota,
    capacity: NonZeroU64,
    /// Thirds of a nanosecond between two departures.
    interval: NonZeroU64,
    /// What the capacity takes to leave.
    full: u64,
    /// The longest wait.
    longest: u64,
}

impl Metering for QueueMeter {
    const AHEAD: u64 = Mark::LONGEST;

    #[inline]
    fn shape(&self) -> Shape {
        Shape::QUEUE
    }

    // Always: most callers look at a part of the decision.
    #[inline(always)]
    fn step_mark(&self, mark: Mark, now: Moment, cost: Cost) -> (Option<Mark>, Decision) {
        let backlog = mark.since(now.mark()).max(0) as u64;
        let (backlog, decision) = self.decide(backlog, now.at(), 0, cost);
        (backlog.map(|backlog| now.mark().after(backlog)), decision)
    }

    #[inline]
    fn step_debt(&self, debt: Option<Mark>, now: Moment, cost: Cost) -> (Option<Mark>, Decision) {
        self.step_mark(debt.unwrap_or(self.floor(now)), now, cost)
    }

    #[inline]
    fn floor(&self, now: Moment) -> Mark {
        now.mark()
    }
}

impl QueueMeter {
    pub(super) const fn of(
        quota: Quota,
        capacity: NonZeroU64,
        max_wait: Option<NonZeroU64>,
        rate: Rate,
    ) -> Option<Self> {
        let longest = match max_wait {
            Some(nanos) => nanos.get().saturating_mul(Mark::PER_NANO),
            None => u64::MAX,
        };
        match rate.in_thirds(capacity) {
            Some((interval, full)) => Some(Self {
                quota,
                capacity,
                interval,
                full,
                longest,
            }),
            None => None,
        }
    }

    /// Whether no two calls depart in one nanosecond, so that a departure alone tells whose it is.
    #[inline]
    pub(super) const fn is_apart(&self) -> bool {
        self.interval.get() >= Mark::PER_NANO
    }

    /// The backlog, below 2⁶³, with `cost`, if that passes, and the decision at `now`, which lies `stalled`
    /// nanoseconds before the last write.
    #[inline(always)]
    fn decide(
        &self,
        backlog: u64,
        now: Timestamp,
        stalled: u64,
        cost: Cost,
    ) -> (Option<u64>, Decision) {
        let answer = |verdict, backlog| {
            let decision =
                Decision::new(verdict, now, cost.get()).with_limit(self.capacity, self.quota);
            self.stand(decision, backlog, stalled)
        };
        if cost > Cost::from(self.capacity) {
            return (None, answer(Verdict::Refuse, backlog));
        }
        let most = self.most(cost.get());
        if backlog > most {
            let retry_after = wait(backlog - most, stalled);
            let refused = answer(Verdict::Refuse, backlog).with_retry_after(Some(retry_after));
            return (None, refused);
        }
        let after = backlog + cost.get() * self.interval.get();
        (Some(after), answer(verdict(wait(backlog, 0)), after))
    }

    /// As [`LeakyBucket::most`].
    #[inline]
    fn most(&self, cost: u64) -> u64 {
        (self.full - cost * self.interval.get()).min(self.longest)
    }

    /// The decision, with how the key stands at a backlog.
    #[inline(always)]
    fn stand(&self, decision: Decision, backlog: u64, stalled: u64) -> Decision {
        if backlog > self.longest {
            return decision.with_told(Told {
                remaining: 0,
                more_after: wait(backlog - self.most(1), stalled),
                reset_after: wait(backlog, stalled),
            });
        }
        // A token bucket, upside down.
        decision.with_filling(Filling {
            level: self.full as i64 - backlog as i64,
            interval: self.interval.get(),
            full: self.full,
            stalled,
            given_back: Filling::NO_POSITION,
        })
    }
}

impl LeakyBucket {
    /// Rule and state counted in words of 64 bits, if both can be.
    #[inline]
    pub(super) fn step_metered(
        &self,
        state: &mut Option<LeakyBucketState>,
        now: Timestamp,
        cost: Cost,
    ) -> Option<Step> {
        let meter = self.meter.as_ref()?;
        let (backlog, at) = match &state {
            None => (0, now),
            Some(state) => {
                let at = now.max(state.written_at);
                let elapsed = at.nanos_since(state.written_at);
                let elapsed = elapsed.saturating_mul(Mark::PER_NANO);
                let backlog = u64::try_from(state.backlog.thirds()?).ok()?;
                (backlog.saturating_sub(elapsed), at)
            }
        };
        let (after, decision) = meter.decide(backlog, now, at.nanos_since(now), cost);
        Some(match after {
            None => Step::Kept(decision),
            Some(after) => {
                let after = Credit::from_thirds(after as i64);
                LeakyBucketState::write(state, at, backlog == 0, after);
                Step::Wrote(decision)
            }
        })
    }
}

/// What passes in `thirds` of a nanosecond, after the clock was `stalled` nanoseconds.
#[inline]
fn wait(thirds: u64, stalled: u64) -> Duration {
    Duration::from_nanos(stalled.saturating_add(thirds.div_ceil(Mark::PER_NANO)))
}
