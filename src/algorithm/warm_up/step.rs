//! How warm a key is, and the decisions that follow from it.

use super::{SECOND, WarmUp, WarmUpState};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        credit::{div_ceil, div_floor, duration},
        span::{Span, mul_div},
        warm_curve::Curve,
    },
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Told, Verdict},
};

impl Curve {
    /// The climb in units, of which a nanosecond brings `per_nano`.
    pub(super) fn climb_units(&self) -> u128 {
        // At most 2^101, as all warmth.
        u128::from(self.climb) * u128::from(self.per_nano)
    }

    /// What the rate at a warmth in units is of the full one, as a fraction: both at most 2^112.
    #[inline]
    fn share(&self, warmth: u128) -> (u128, u128) {
        let climb = self.climb_units();
        let [rise, step] = [self.rise, self.step].map(u128::from);
        // step · climb / (step · climb + rise · (climb - warmth))
        let cold = (rise + step) * climb - rise * warmth.min(climb);
        (step * climb, cold)
    }

    /// What passes in a second at a warmth in units, rounded down.
    pub(super) fn each_second(&self, warmth: u128) -> u64 {
        let (warm, cold) = self.share(warmth);
        let units = u128::from(self.per_nano) * u128::from(SECOND);
        let (units, _) = mul_div(units, warm, cold);
        // At most 2^40, the fastest of all quotas.
        div_floor(units, self.per_permit) as u64
    }

    /// Whether at least `count` pass in a second at a warmth in units: the same compared as products, without a division.
    fn lets_pass(&self, count: u64, warmth: u128) -> bool {
        let (warm, cold) = self.share(warmth);
        let units = u128::from(self.per_nano) * u128::from(SECOND);
        let price = u128::from(count) * u128::from(self.per_permit);
        match (units.checked_mul(warm), price.checked_mul(cold)) {
            (Some(comes), Some(costs)) => costs <= comes,
            _ => count <= self.each_second(warmth),
        }
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
    #[inline]
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
    #[inline]
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
    #[inline]
    fn forgettable(&self, stand: &Stand, next: &Stand) -> u64 {
        let stand = if stand.passed == 0 { stand } else { next };
        // At most 2^61 ns; rounded up twice is rounded up once.
        let nanos = div_ceil(stand.warmth, self.curve.per_nano) as u64;
        stand.second + nanos.div_ceil(SECOND)
    }

    /// Whether at least `count` pass at a warmth, in a second in which nothing has passed.
    #[inline]
    fn lets_pass(&self, count: u64, warmth: u128) -> bool {
        // No less when it is cold, and no more when it is warm.
        count <= self.least.get()
            || (count <= self.capacity.get() && self.curve.lets_pass(count, warmth))
    }

    /// What still passes in this second.
    #[inline]
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

    /// The answer to a call that passed, or to one of so many units that did not, in a second in which `rest` are left.
    #[inline]
    fn answer(
        &self,
        now: Timestamp,
        cost: u64,
        stand: &Stand,
        rest: u64,
        refused: Option<u64>,
    ) -> Decision {
        let next = self.next(stand);
        let until_next = duration(stand.until_next(now));
        let more_after = if self.lets_pass(rest + 1, next.warmth) {
            until_next
        } else {
            Default::default()
        };
        let reset = u128::from(self.forgettable(stand, &next)) * u128::from(SECOND);
        let reset_after = duration(reset.saturating_sub(u128::from(now.as_nanos())));
        let verdict = match refused {
            None => Verdict::Allow,
            Some(_) => Verdict::Refuse,
        };
        // This second is as it is. If nothing else happens, what is stored only grows from the next one on, and what
        // may pass only falls: what does not pass then never will.
        let passes = |asked: &u64| self.lets_pass(*asked, next.warmth);
        let retry_after = refused.filter(passes).map(|_| until_next);
        Decision::new(verdict, now, cost)
            .with_limit(self.capacity, self.quota)
            .with_told(Told {
                remaining: rest,
                more_after,
                reset_after,
            })
            .with_retry_after(retry_after)
    }
}

impl Algorithm for WarmUp {
    type State = WarmUpState;

    #[inline]
    fn step(&self, state: &mut Option<WarmUpState>, now: Timestamp, cost: Cost) -> Step {
        let mut stand = self.stand(state.as_ref(), now);
        let (cost, rest) = (cost.get(), self.rest(&stand));
        if cost > rest {
            return Step::Kept(self.answer(now, cost, &stand, rest, Some(cost)));
        }
        stand.passed += cost;
        // Within a second it stays as it is.
        let before = state.as_ref().map_or(Span::NONE, |state| state.warmth);
        *state = Some(WarmUpState {
            second: Timestamp::from_nanos(stand.second * SECOND),
            passed: stand.passed,
            warmth: before.replaced(stand.warmth, self.curve.per_nano),
        });
        Step::Wrote(self.answer(now, cost, &stand, rest - cost, None))
    }

    fn look(&self, state: Option<&WarmUpState>, now: Timestamp) -> Decision {
        let stand = self.stand(state, now);
        let rest = self.rest(&stand);
        self.answer(now, 0, &stand, rest, (rest == 0).then_some(1))
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
    fn state_kind(&self) -> StateKind {
        const { StateKind::named("warm-up") }
    }

    #[inline]
    fn forgettable_at(&self, state: &WarmUpState) -> Timestamp {
        let stand = self.known(state);
        let second = self.forgettable(&stand, &self.next(&stand));
        Timestamp::from_nanos(second.saturating_mul(SECOND))
    }
}
