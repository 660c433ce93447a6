//! What a bucket holds, and the decisions that follow from it.

use super::{TokenBucket, TokenBucketState};
use crate::{
    algorithm::{
        Algorithm, Step,
        credit::{Credit, div_ceil, div_floor, duration},
        mark::{Mark, Moment},
        meter::Meter,
    },
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Verdict},
};

impl TokenBucket {
    #[inline]
    fn price(&self, tokens: u64) -> i128 {
        // At most 2^40 tokens of at most 2^63 units.
        i128::from(tokens) * i128::from(self.per_token)
    }

    fn initial_fill(&self, now: Timestamp) -> Fill {
        Fill {
            level: self.price(self.initial),
            at: now,
            known: false,
        }
    }

    /// What is in the bucket.
    #[inline]
    fn fill(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Fill {
        let Some(state) = state else {
            return self.initial_fill(now);
        };
        if !self.starts_at_rest() && now >= self.forgettable_at(state) {
            return self.initial_fill(now);
        }
        let at = now.max(state.written_at);
        let (level, full) = (
            state.credit.units(self.per_nano),
            self.price(self.burst.get()),
        );
        let level = if level > full {
            level.min(full.max(self.price(self.initial)))
        } else {
            let elapsed = at.as_nanos() - state.written_at.as_nanos();
            let refill = i128::from(elapsed) * i128::from(self.per_nano);
            level.saturating_add(refill).min(full)
        };
        Fill {
            level,
            at,
            known: true,
        }
    }

    fn state(&self, level: i128, at: Timestamp) -> TokenBucketState {
        TokenBucketState {
            written_at: at,
            credit: Credit::from_units(level, self.per_nano),
        }
    }

    /// Nanoseconds until a bucket at `level` is at `target`.
    #[inline]
    fn wait(&self, level: i128, target: i128) -> u128 {
        let lacking = u128::try_from(target.saturating_sub(level)).unwrap_or(0);
        div_ceil(lacking, self.per_nano)
    }

    #[inline]
    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, fill: &Fill) -> Decision {
        let full = self.price(self.burst.get());
        let held = u128::try_from(fill.level).unwrap_or(0);
        let remaining = (div_floor(held, self.per_token) as u64).min(self.burst.get());
        let stalled = u128::from(fill.at.as_nanos() - now.as_nanos());
        let more_after = if remaining == self.burst.get() {
            0
        } else {
            stalled + self.wait(fill.level, self.price(remaining + 1))
        };
        let reset_after = if self.starts_at_rest() {
            match self.wait(fill.level, full) {
                0 => 0,
                wait => stalled + wait,
            }
        } else if fill.known {
            stalled + self.wait(fill.level, full) + u128::from(self.keep)
        } else {
            0
        };
        Decision::new(verdict, now, cost)
            .with_limit(self.burst, self.quota)
            .with_remaining(remaining)
            .with_more_after(duration(more_after))
            .with_reset_after(duration(reset_after))
    }

    /// The answer to a cost that does not pass.
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, fill: &Fill) -> Decision {
        let retry_after = (asked <= self.burst.get()).then(|| {
            let stalled = u128::from(fill.at.as_nanos() - now.as_nanos());
            duration(stalled + self.wait(fill.level, self.price(asked)))
        });
        self.answer(Verdict::Refuse, now, cost, fill)
            .with_retry_after(retry_after)
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
                let elapsed = at.as_nanos() - state.written_at.as_nanos();
                (meter.level(state.credit.thirds()?, elapsed)?, at)
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
        if cost.get() <= self.burst.get() {
            let price = self.price(cost.get());
            if fill.level >= price {
                fill.level -= price;
                fill.known = true;
                *state = Some(self.state(fill.level, fill.at));
                let decision = self.answer(Verdict::Allow, now, cost.get(), &fill);
                return Step::Wrote(decision);
            }
            if !fill.known && !self.starts_at_rest() {
                // From here on the key fills up: the one refusal that must be remembered.
                fill.known = true;
                *state = Some(self.state(fill.level, fill.at));
                return Step::Wrote(self.refuse(now, cost.get(), cost.get(), &fill));
            }
        }
        Step::Kept(self.refuse(now, cost.get(), cost.get(), &fill))
    }
}

/// The level of a bucket, at an instant that is never before the last write.
struct Fill {
    level: i128,
    at: Timestamp,
    known: bool,
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
        if fill.level >= self.price(1) {
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
        let change = i128::from(charge.cost) - i128::from(actual);
        let change = change.saturating_mul(i128::from(self.per_token));
        if change == 0 || (state.is_none() && change > 0) {
            return;
        }
        let full = self.price(self.burst.get());
        let overfull = full.max(self.price(self.initial));
        let untouched = state.filter(|state| {
            let written_at = state.written_at;
            written_at == charge.at && now < self.forgettable_at(state)
        });
        let (level, at, most) = match untouched {
            // Refill is still to come, and will be cut as it always is.
            Some(state) => (state.credit.units(self.per_nano), charge.at, overfull),
            None => {
                let fill = self.fill(state.as_ref(), now);
                let most = if fill.level > full { overfull } else { full };
                (fill.level, fill.at, most)
            }
        };
        *state = Some(self.state(level.saturating_add(change).min(most), at));
    }

    #[inline]
    fn forgettable_at(&self, state: &TokenBucketState) -> Timestamp {
        if let (Some(meter), Some(credit)) = (&self.meter, state.credit.thirds()) {
            // At most 2^58 less at least -2^63.
            let wait = (i128::from(meter.full()) - i128::from(credit)).max(0) as u64;
            let wait = wait.div_ceil(Mark::PER_NANO);
            return Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait));
        }
        let level = state.credit.units(self.per_nano);
        let mut wait = self.wait(level, self.price(self.burst.get()));
        if !self.starts_at_rest() {
            wait += u128::from(self.keep);
        }
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
    }

    #[inline]
    fn meter(&self) -> Option<&Meter> {
        self.meter.as_ref()
    }

    fn mark_of(&self, state: &TokenBucketState, now: Moment) -> Option<Mark> {
        let credit = state.credit.thirds().filter(|_| self.meter.is_some())?;
        // Where the clock has stepped back, the state lies ahead of it.
        let since = i128::from(state.written_at.as_nanos()) - i128::from(now.at().as_nanos());
        let shift = since * i128::from(Mark::PER_NANO) - i128::from(credit);
        let mark = i128::from(now.mark().get()) + shift;
        u64::try_from(mark).ok().map(Mark::new)
    }

    fn state_of(&self, mark: Mark, now: Moment) -> Option<TokenBucketState> {
        let (level, full) = (now.mark().since(mark), self.price(self.burst.get()));
        let units = i128::from(level) * i128::from(self.per_nano);
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
