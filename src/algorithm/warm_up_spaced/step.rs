//! The decisions that follow from when the next departure is free.

use std::time::Duration;

use super::{WarmUpSpaced, WarmUpSpacedState, place::Place};
use crate::{
    algorithm::{Algorithm, StateKind, Step, credit::duration},
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Told, Verdict},
};

impl WarmUpSpaced {
    #[inline]
    fn verdict(&self, delay: u128) -> Verdict {
        if delay == 0 {
            Verdict::Allow
        } else if delay <= u128::from(self.max_wait) {
            Verdict::Delay(duration(delay))
        } else {
            Verdict::Refuse
        }
    }

    /// An answer that leaves `place` to the next call, and a key that is forgotten at `reset`.
    #[inline]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        place: &Place,
        reset: u128,
    ) -> Decision {
        let (remaining, more_after) = match self.too_long(place, now) {
            None => (self.capacity.get(), Duration::ZERO),
            Some(wait) => (0, wait),
        };
        Decision::new(verdict, now, cost)
            .with_limit(self.capacity, self.quota)
            .with_told(Told {
                remaining,
                more_after,
                reset_after: duration(reset.saturating_sub(u128::from(now.as_nanos()))),
            })
    }

    /// When a key that is left as it is can be forgotten, in nanoseconds.
    fn reset(&self, state: Option<&WarmUpSpacedState>) -> u128 {
        state.map_or(0, |state| self.forgettable(state))
    }

    /// The wait from `now` until nobody waits too long for the place, if one would now.
    #[inline]
    fn too_long(&self, place: &Place, now: Timestamp) -> Option<Duration> {
        let beyond = place.delay().checked_sub(u128::from(self.max_wait))?;
        let stalled = place.at.as_nanos() - now.as_nanos();
        (beyond > 0).then(|| duration(beyond + u128::from(stalled)))
    }
}

impl Algorithm for WarmUpSpaced {
    type State = WarmUpSpacedState;

    #[inline]
    fn step(&self, state: &mut Option<WarmUpSpacedState>, now: Timestamp, cost: Cost) -> Step {
        let place = self.place(state.as_ref(), now);
        let verdict = self.verdict(place.delay());
        let fits = cost.get() <= self.capacity.get();
        if !fits || verdict == Verdict::Refuse {
            let retry_after = self.too_long(&place, now).filter(|_| fits);
            let reset = self.reset(state.as_ref());
            let refusal = self.answer(Verdict::Refuse, now, cost.get(), &place, reset);
            return Step::Kept(refusal.with_retry_after(retry_after));
        }
        let place = self.behind(&place, cost.get());
        *state = Some(place.state());
        let reset = self.forgettable_place(&place);
        Step::Wrote(self.answer(verdict, now, cost.get(), &place, reset))
    }

    fn look(&self, state: Option<&WarmUpSpacedState>, now: Timestamp) -> Decision {
        let place = self.place(state, now);
        let verdict = self.verdict(place.delay());
        self.answer(verdict, now, 0, &place, self.reset(state))
            .with_retry_after(self.too_long(&place, now))
    }

    /// Gives the last call's place back, or what it cost less; see
    /// [the rule](WarmUpSpaced#calls-that-are-cancelled-or-corrected).
    ///
    /// A key that is colder than it was lets nobody go on earlier than if the call had not been made.
    fn settle(
        &self,
        state: &mut Option<WarmUpSpacedState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let place = if actual > charge.cost {
            Some(self.owing(&self.place(state.as_ref(), now), actual - charge.cost))
        } else if actual < charge.cost {
            state
                .as_ref()
                .and_then(|state| self.corrected(state, charge, now, actual))
        } else {
            None
        };
        if let Some(place) = place {
            *state = Some(place.state());
        }
    }

    fn may_delay(&self) -> bool {
        true
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named("warm-up-spaced") }
    }

    #[inline]
    fn forgettable_at(&self, state: &WarmUpSpacedState) -> Timestamp {
        let nanos = u64::try_from(self.forgettable(state)).unwrap_or(u64::MAX);
        Timestamp::from_nanos(nanos)
    }
}
