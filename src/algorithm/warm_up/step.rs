//! How warm a key is, and the decisions that follow from it.

use super::{SECOND, WarmUp, WarmUpState};
use crate::{
    algorithm::{
        Algorithm, Step,
        credit::duration,
        span::{Span, mul_div},
        warm_curve::Curve,
    },
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Verdict},
};

impl Curve {
    /// The climb in units, of which a nanosecond brings `per_nano`.
    pub(super) fn climb_units(&self) -> u128 {
        // At most 2^101, as all warmth.
        u128::from(self.climb) * u128::from(self.per_nano)
    }

    /// What passes in a second at a warmth in units, rounded down.
    pub(super) fn each_second(&self, warmth: u128) -> u64 {
        let climb = self.climb_units();
        let [rise, step] = [self.rise, self.step].map(u128::from);
        // count · step · climb / (step · climb + rise · (climb - warmth)): at most 2^112 below the line.
        let cold = (rise + step) * climb - rise * warmth.min(climb);
        let units = u128::from(self.per_nano) * u128::from(SECOND);
        let (units, _) = mul_div(units, step * climb, cold);
        // At most 2^40, the fastest of all quotas.
        (units / u128::from(self.per_permit)) as u64
    }
}

/// A key in one of its seconds.
#[derive(Clone, Copy)]
struct Stand {
    /// In seconds since the epoch.
    second: u64,
    /// At the beginning of the second, in units.
    warmth: u128,
    passed: u64,
}

impl Stand {
    /// Nanoseconds from `now` to the next second.
    fn until_next(&self, now: Timestamp) -> u128 {
        (u128::from(self.second) + 1) * u128::from(SECOND) - u128::from(now.as_nanos())
    }
}

impl WarmUp {
    /// What a full second makes tokens for, in units.
    pub(super) fn made(&self) -> u128 {
        u128::from(SECOND) * u128::from(self.curve.per_nano)
    }

    /// The key in the second of its state.
    fn known(&self, state: &WarmUpState) -> Stand {
        let most = u128::from(self.curve.most) * u128::from(self.curve.per_nano);
        let (second, warmth) = (state.second, state.warmth);
        Stand {
            second: second.as_nanos() / SECOND,
            warmth: warmth.units(self.curve.per_nano).min(most),
            passed: state.passed,
        }
    }

    /// The key at the beginning of the next second.
    fn next(&self, stand: &Stand) -> Stand {
        let most = u128::from(self.curve.most) * u128::from(self.curve.per_nano);
        // Whoever passes what a cold key may is on the way to being warm: nothing is made against that.
        let warm = stand.warmth >= self.curve.climb_units();
        let made = if warm || stand.passed < self.least.get() {
            self.made()
        } else {
            0
        };
        // At most 2^64 calls at less than 2^63 units.
        let taken = u128::from(stand.passed) * u128::from(self.curve.per_permit);
        Stand {
            second: stand.second + 1,
            warmth: stand
                .warmth
                .saturating_sub(made)
                .saturating_add(taken)
                .min(most),
            passed: 0,
        }
    }

    /// The key now, or in its last second if that lies ahead: as if looked at in every second in between.
    #[inline]
    fn stand(&self, state: Option<&WarmUpState>, now: Timestamp) -> Stand {
        let this = now.as_nanos() / SECOND;
        let Some(state) = state else {
            return Stand {
                second: this,
                warmth: 0,
                passed: 0,
            };
        };
        let stand = self.known(state);
        if this <= stand.second {
            return stand;
        }
        let next = self.next(&stand);
        // Nothing passed in the seconds since, which is less than anybody may.
        let idle = u128::from(this - next.second) * self.made();
        Stand {
            second: this,
            warmth: next.warmth.saturating_sub(idle),
            passed: 0,
        }
    }

    /// From which second on the key is as if it were unused: cold, and nothing passed.
    fn forgettable(&self, stand: &Stand) -> u64 {
        let stand = if stand.passed == 0 {
            *stand
        } else {
            self.next(stand)
        };
        // At most 2^61 ns.
        stand.second + stand.warmth.div_ceil(self.made()) as u64
    }

    fn rest(&self, stand: &Stand) -> u64 {
        let allowed = if stand.warmth >= self.curve.climb_units() {
            self.capacity.get()
        } else if stand.warmth == 0 {
            self.least.get()
        } else {
            self.curve.each_second(stand.warmth)
        };
        allowed.saturating_sub(stand.passed)
    }

    /// The answer to a call that passed, or to one of `asked` units that did not.
    #[inline]
    fn answer(&self, now: Timestamp, cost: u64, stand: &Stand, refused: Option<u64>) -> Decision {
        let (rest, next) = (self.rest(stand), self.rest(&self.next(stand)));
        let until_next = duration(stand.until_next(now));
        let more_after = if next > rest {
            until_next
        } else {
            Default::default()
        };
        let reset = u128::from(self.forgettable(stand)) * u128::from(SECOND);
        let reset_after = duration(reset.saturating_sub(u128::from(now.as_nanos())));
        let verdict = match refused {
            None => Verdict::Allow,
            Some(_) => Verdict::Refuse,
        };
        // This second is as it is. If nothing else happens, what is stored only grows from the next one on, and what
        // may pass only falls: what does not pass then never will.
        let retry_after = refused.and_then(|asked| (asked <= next).then_some(until_next));
        Decision::new(verdict, now, cost)
            .with_limit(self.capacity, self.quota)
            .with_remaining(rest)
            .with_more_after(more_after)
            .with_reset_after(reset_after)
            .with_retry_after(retry_after)
    }
}

impl Algorithm for WarmUp {
    type State = WarmUpState;

    #[inline]
    fn step(&self, state: &mut Option<WarmUpState>, now: Timestamp, cost: Cost) -> Step {
        let mut stand = self.stand(state.as_ref(), now);
        if cost.get() > self.rest(&stand) {
            return Step::Kept(self.answer(now, cost.get(), &stand, Some(cost.get())));
        }
        stand.passed += cost.get();
        *state = Some(WarmUpState {
            second: Timestamp::from_nanos(stand.second * SECOND),
            passed: stand.passed,
            warmth: Span::from_units(stand.warmth, self.curve.per_nano),
        });
        Step::Wrote(self.answer(now, cost.get(), &stand, None))
    }

    fn look(&self, state: Option<&WarmUpState>, now: Timestamp) -> Decision {
        let stand = self.stand(state, now);
        let refused = (self.rest(&stand) == 0).then_some(1);
        self.answer(now, 0, &stand, refused)
    }

    /// Corrects what passed in the second of the charge, as long as that is the key's last one.
    ///
    /// Afterwards it has been taken off what is stored, and nothing is given back or taken.
    fn settle(&self, state: &mut Option<WarmUpState>, charge: &Charge, _: Timestamp, actual: u64) {
        let Some(state) = state else {
            return;
        };
        let (second, passed) = (state.second, state.passed);
        if charge.at.as_nanos() / SECOND == second.as_nanos() / SECOND {
            state.passed = passed.saturating_sub(charge.cost).saturating_add(actual);
        }
    }

    /// While nothing passes it cools.
    #[inline]
    fn wanes(&self) -> bool {
        true
    }

    #[inline]
    fn forgettable_at(&self, state: &WarmUpState) -> Timestamp {
        let second = self.forgettable(&self.known(state));
        Timestamp::from_nanos(second.saturating_mul(SECOND))
    }
}
