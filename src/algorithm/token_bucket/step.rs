//! Decisions, and what they leave of a bucket.

use super::{
    BucketLevel, TokenBucket, TokenBucketState,
    fill::{Fill, since},
    settle::GivenBack,
};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        mark::{Mark, Moment},
        meter::Meter,
        shape::Shape,
    },
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Position, Told, Verdict},
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
        let (level, at, given_back) = match state {
            None => (meter.full(), now, GivenBack::NONE),
            Some(state) => {
                let at = now.max(state.level.written_at);
                let (_, level) = self.metered(&state.level, at)?;
                let given_back = state.given_back.at(at, level == meter.full());
                (level, at, given_back)
            }
        };
        let stalled = at.as_nanos() - now.as_nanos();
        let (level, decision) = meter.decide(level, now, stalled, given_back.nanos(), cost);
        Some(match level {
            None => Step::Kept(decision),
            Some(level) => {
                *state = Some(TokenBucketState {
                    level: BucketLevel::of_thirds(level, at),
                    given_back,
                });
                Step::Wrote(decision)
            }
        })
    }

    /// Any rule and any state.
    fn step_wide(&self, state: &mut Option<TokenBucketState>, now: Timestamp, cost: Cost) -> Step {
        let mut fill = self.fill(state.as_ref().map(TokenBucketState::level), now);
        let is_full = fill.level >= self.price(self.burst.get());
        let given_back = state.map_or(GivenBack::NONE, |state| state.given_back);
        let given_back = given_back.at(fill.at, is_full);
        let keep = |fill: &Fill| TokenBucketState {
            level: self.state(fill.level, fill.at),
            given_back,
        };
        if let Some(level) = self.pay(fill.level, cost.get()) {
            (fill.level, fill.full_for) = (level, Some(0));
            *state = Some(keep(&fill));
            let end = self.full_from(fill.level, fill.at);
            let position = Position::new(end, given_back.nanos());
            let decision = self.answer(Verdict::Allow, now, cost.get(), &fill);
            return Step::Wrote(decision.with_position(position));
        }
        let refuse = |fill| self.refuse(now, cost.get(), cost.get(), fill);
        if cost.get() <= self.burst.get() && fill.full_for.is_none() && !self.starts_at_rest() {
            // From here on the key fills up: the one refusal that must be remembered.
            fill.full_for = Some(0);
            *state = Some(keep(&fill));
            return Step::Wrote(refuse(&fill));
        }
        Step::Kept(refuse(&fill))
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
        let fill = self.fill(state.map(TokenBucketState::level), now);
        if self.holds(fill.level, 1) {
            self.answer(Verdict::Allow, now, 0, &fill)
        } else {
            self.refuse(now, 0, 1, &fill)
        }
    }

    /// Gives back what refill has not restored yet; see
    /// [the rule](TokenBucket#when-a-charge-is-corrected).
    fn settle(
        &self,
        state: &mut Option<TokenBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        if let Some(corrected) = self.settled(state.as_ref(), charge, now, actual) {
            *state = Some(corrected);
        }
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named("token-bucket") }
    }

    #[inline]
    fn forgettable_at(&self, state: &TokenBucketState) -> Timestamp {
        self.at_rest_from(&state.level)
            .max(state.given_back.until())
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
        if self.meter.is_none() || !state.given_back.is_none() {
            return None;
        }
        let thirds = state.level.credit.thirds()?;
        now.mark_after(state.level.written_at, thirds.checked_neg()?)
    }

    fn state_of(&self, mark: Mark, _: Shape, now: Moment) -> Option<TokenBucketState> {
        let (level, full) = (now.mark().since(mark), self.price(self.burst.get()));
        let units = i128::from(level) * i128::from(self.rate.per_nano);
        let level = if units >= full * i128::from(Mark::PER_NANO) {
            self.state(full, now.at())
        } else {
            BucketLevel::of_thirds(level, now.at())
        };
        Some(level.into())
    }
}

impl TokenBucketState {
    #[inline]
    pub(super) fn level(&self) -> &BucketLevel {
        &self.level
    }
}
