//! Decisions, and what they leave of a bucket.

use super::{
    TokenBucket, TokenBucketState,
    fill::{Fill, since},
};
use crate::{
    algorithm::{
        Algorithm, Step,
        credit::Credit,
        mark::{Mark, Moment},
        meter::Meter,
        shape::Shape,
    },
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Told, Verdict},
};

impl TokenBucket {
    #[inline]
    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, fill: &Fill) -> Decision {
        let remaining = self.tokens(fill.level);
        let wait = |wait| since(now, fill.at, wait).unwrap_or_default();
        Decision::new(verdict, now, cost)
            .with_limit(self.burst, self.quota)
            .with_told(Told {
                remaining,
                more_after: wait(self.until(fill.level, remaining + 1)),
                reset_after: wait(self.until_rest(fill.level, fill.full_for)),
            })
    }

    /// The answer to a cost that does not pass.
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, fill: &Fill) -> Decision {
        let wait = self.until(fill.level, asked);
        self.answer(Verdict::Refuse, now, cost, fill)
            .with_retry_after(since(now, fill.at, wait))
    }

    /// Rule and state counted in words of 64 bits, if both can be.
    #[inline]
    fn step_metered(
        &self,
        state: &mut Option<TokenBucketState>,
        now: Timestamp,
        cost: Cost,
    ) -> Option<Step> {
        let meter = self.meter.as_ref()?;
        let (level, at) = match state {
            None => (meter.full(), now),
            Some(state) => {
                let at = now.max(state.written_at);
                (self.metered(state, at)?.1, at)
            }
        };
        let stalled = at.as_nanos() - now.as_nanos();
        let (level, decision) = meter.decide(level, now, stalled, cost);
        Some(match level {
            None => Step::Kept(decision),
            Some(level) => {
                *state = Some(TokenBucketState::holding(level, at));
                Step::Wrote(decision)
            }
        })
    }

    /// Any rule and any state.
    fn step_wide(&self, state: &mut Option<TokenBucketState>, now: Timestamp, cost: Cost) -> Step {
        let mut fill = self.fill(state.as_ref(), now);
        if let Some(level) = self.pay(fill.level, cost.get()) {
            (fill.level, fill.full_for) = (level, Some(0));
            *state = Some(self.state(level, fill.at));
            return Step::Wrote(self.answer(Verdict::Allow, now, cost.get(), &fill));
        }
        let refuse = |fill| self.refuse(now, cost.get(), cost.get(), fill);
        if cost.get() <= self.burst.get() && fill.full_for.is_none() && !self.starts_at_rest() {
            // From here on the key fills up: the one refusal that must be remembered.
            fill.full_for = Some(0);
            *state = Some(self.state(fill.level, fill.at));
            return Step::Wrote(refuse(&fill));
        }
        Step::Kept(refuse(&fill))
    }

    /// From when on any state of any rule says nothing.
    fn forgettable_wide(&self, state: &TokenBucketState) -> Timestamp {
        let level = state.credit.units(self.rate.per_nano);
        let mut wait = self.wait(level, self.price(self.burst.get()));
        if !self.starts_at_rest() {
            wait += u128::from(self.keep);
        }
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
    }
}

impl Algorithm for TokenBucket {
    type State = TokenBucketState;

    #[inline]
    fn step(&self, state: &mut Option<TokenBucketState>, now: Timestamp, cost: Cost) -> Step {
        self.step_metered(state, now, cost)
            .unwrap_or_else(|| self.step_wide(state, now, cost))
    }

    fn look(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Decision {
        let fill = self.fill(state, now);
        if self.holds(fill.level, 1) {
            self.answer(Verdict::Allow, now, 0, &fill)
        } else {
            self.refuse(now, 0, 1, &fill)
        }
    }

    /// Gives back at most what keeps the bucket from overflowing.
    ///
    /// As long as no other call has written since the charge, and the bucket has not filled up since, the key
    /// is left exactly as if the call had cost `actual` from the beginning. A full bucket is given nothing
    /// back, and what is taken by force is taken from it now: it is like one that was forgotten.
    fn settle(
        &self,
        state: &mut Option<TokenBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let known = self.remembered(state.as_ref(), now);
        if let Some(corrected) = self.corrected(known, charge, now, actual) {
            *state = Some(corrected);
        }
    }

    #[inline]
    fn forgettable_at(&self, state: &TokenBucketState) -> Timestamp {
        self.full_at(state)
            .unwrap_or_else(|| self.forgettable_wide(state))
    }

    /// A key that is forgotten begins with less than a full bucket.
    #[inline]
    fn wanes(&self) -> bool {
        self.initial < self.burst.get()
    }

    #[inline]
    fn meter(&self) -> Option<Meter<'_>> {
        self.meter.as_ref().map(Meter::of_bucket)
    }

    fn mark_of(&self, state: &TokenBucketState, now: Moment) -> Option<Mark> {
        let credit = state.credit.thirds().filter(|_| self.meter.is_some())?;
        now.mark_after(state.written_at, credit.checked_neg()?)
    }

    fn state_of(&self, mark: Mark, _: Shape, now: Moment) -> Option<TokenBucketState> {
        let (level, full) = (now.mark().since(mark), self.price(self.burst.get()));
        let units = i128::from(level) * i128::from(self.rate.per_nano);
        Some(if units >= full * i128::from(Mark::PER_NANO) {
            self.state(full, now.at())
        } else {
            TokenBucketState::holding(level, now.at())
        })
    }
}

impl TokenBucketState {
    /// A bucket that holds what comes in so many thirds of a nanosecond.
    #[inline]
    pub(in crate::algorithm) fn holding(thirds: i64, at: Timestamp) -> Self {
        Self {
            written_at: at,
            credit: Credit::from_thirds(thirds),
        }
    }
}
