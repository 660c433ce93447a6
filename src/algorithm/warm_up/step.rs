//! The warmth of a key and its arithmetic.
//!
//! A second is evaluated as of its end, also if no call came. Sentinel evaluates it at the next
//! call, so that there a refused call changes the allowance of later calls.

use super::WarmUp;
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        arithmetic::{div_ceil, div_floor, mul_div},
        ticks::duration,
        warmth::{Span, WarmthCurve},
    },
    decision::{Charge, Cost, Decision, Numbers, Verdict},
    time::Timestamp,
};

/// Nanoseconds in a second.
pub(super) const SECOND: u64 = 1_000_000_000;

/// The state of a key under a [`WarmUp`]: its warmth at the beginning of its last second, and the
/// usage in that second.
// `packed(4)`: 28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct WarmUpState {
    /// The beginning of the second.
    pub(super) second: Timestamp,
    pub(super) passed: u64,
    pub(super) warmth: Span,
}

impl WarmthCurve {
    /// Returns the climb in units, of which a nanosecond adds `per_nano`.
    pub(super) fn climb_units(&self) -> u128 {
        // At most 2^101, as all warmth.
        u128::from(self.climb) * u128::from(self.per_nano)
    }

    /// Returns the greatest warmth in units.
    pub(super) fn most_units(&self) -> u128 {
        u128::from(self.most) * u128::from(self.per_nano)
    }

    /// Returns the rate at a warmth in units as a fraction of the full rate; both numbers are at
    /// most 2^112.
    #[inline]
    fn share(&self, warmth: u128) -> (u128, u128) {
        let climb = self.climb_units();
        let [rise, step] = [self.rise, self.step].map(u128::from);
        // step · climb / (step · climb + rise · (climb - warmth))
        let cold = (rise + step) * climb - rise * warmth.min(climb);
        (step * climb, cold)
    }

    /// Returns the units that pass in a second at a warmth, rounded down.
    pub(super) fn each_second(&self, warmth: u128) -> u64 {
        let (warm, cold) = self.share(warmth);
        let units = u128::from(self.per_nano) * u128::from(SECOND);
        let (units, _) = mul_div(units, warm, cold);
        // At most 2^40, the fastest of all quotas.
        div_floor(units, self.per_permit) as u64
    }

    /// Returns `true` if at least `count` units pass in a second at a warmth. Compares products,
    /// without a division.
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

/// The usage of a key in one second.
#[derive(Clone, Copy)]
struct SecondUsage {
    /// Seconds since the epoch.
    second: u64,
    /// The warmth at the beginning of the second, in units.
    warmth: u128,
    passed: u64,
}

impl SecondUsage {
    /// Returns the nanoseconds from `now` to the next second.
    fn until_next(&self, now: Timestamp) -> u128 {
        (u128::from(self.second) + 1) * u128::from(SECOND) - u128::from(now.as_nanos())
    }
}

impl WarmUp {
    /// Returns the units that a second adds.
    pub(super) fn made(&self) -> u128 {
        u128::from(SECOND) * u128::from(self.curve.per_nano)
    }

    /// Returns the usage in the second of a state.
    #[inline]
    fn known(&self, state: &WarmUpState) -> SecondUsage {
        let (second, warmth) = (state.second, state.warmth);
        SecondUsage {
            second: second.as_nanos() / SECOND,
            warmth: warmth
                .units(self.curve.per_nano)
                .min(self.curve.most_units()),
            passed: state.passed,
        }
    }

    /// Returns the usage at the beginning of the next second.
    #[inline]
    fn next(&self, usage: &SecondUsage) -> SecondUsage {
        // A key that uses what a cold key may is warming up, and nothing is added against that.
        let warm = usage.warmth >= self.curve.climb_units();
        let made = if warm || usage.passed < self.least.get() {
            self.made()
        } else {
            0
        };
        // At most 2^64 calls at less than 2^63 units.
        let taken = u128::from(usage.passed) * u128::from(self.curve.per_permit);
        SecondUsage {
            second: usage.second + 1,
            warmth: usage
                .warmth
                .saturating_sub(made)
                .saturating_add(taken)
                .min(self.curve.most_units()),
            passed: 0,
        }
    }

    /// Returns the usage now, or in the last second if that lies ahead, as if it had been evaluated
    /// in every second in between.
    #[inline]
    fn usage(&self, state: Option<&WarmUpState>, now: Timestamp) -> SecondUsage {
        let this = now.as_nanos() / SECOND;
        let Some(state) = state else {
            return SecondUsage {
                second: this,
                warmth: 0,
                passed: 0,
            };
        };
        let usage = self.known(state);
        if this <= usage.second {
            return usage;
        }
        let next = self.next(&usage);
        // Nothing passed in the seconds since, so each of them adds tokens.
        let idle = u128::from(this - next.second) * self.made();
        SecondUsage {
            second: this,
            warmth: next.warmth.saturating_sub(idle),
            passed: 0,
        }
    }

    /// Returns the second from which on the key is as if unused: cold, without calls.
    #[inline]
    fn forgettable(&self, usage: &SecondUsage, next: &SecondUsage) -> u64 {
        let usage = if usage.passed == 0 { usage } else { next };
        // At most 2^61 ns; rounded up twice is rounded up once.
        let nanos = div_ceil(usage.warmth, self.curve.per_nano) as u64;
        usage.second + nanos.div_ceil(SECOND)
    }

    /// Returns `true` if `count` units pass at a warmth in a second without other calls.
    #[inline]
    fn lets_pass(&self, count: u64, warmth: u128) -> bool {
        // A cold key admits the least, and a warm key the most.
        count <= self.least.get()
            || (count <= self.capacity.get() && self.curve.lets_pass(count, warmth))
    }

    /// Returns the units that still pass in this second.
    #[inline]
    fn rest(&self, usage: &SecondUsage) -> u64 {
        let allowed = if usage.warmth >= self.curve.climb_units() {
            self.capacity.get()
        } else if usage.warmth == 0 {
            self.least.get()
        } else {
            self.curve.each_second(usage.warmth)
        };
        allowed.saturating_sub(usage.passed)
    }

    /// Returns the decision on a call that passed, or on one of `refused` units that did not, with
    /// `rest` units left in the second.
    #[inline]
    fn answer(
        &self,
        now: Timestamp,
        cost: u64,
        usage: &SecondUsage,
        rest: u64,
        refused: Option<u64>,
    ) -> Decision {
        let next = self.next(usage);
        let until_next = duration(usage.until_next(now));
        let more_after = if self.lets_pass(rest + 1, next.warmth) {
            until_next
        } else {
            Default::default()
        };
        let reset = u128::from(self.forgettable(usage, &next)) * u128::from(SECOND);
        let reset_after = duration(reset.saturating_sub(u128::from(now.as_nanos())));
        let verdict = match refused {
            None => Verdict::Allow,
            Some(_) => Verdict::Refuse,
        };
        // Without other calls a key only becomes colder after the next second: what does not pass
        // then never will.
        let passes = |asked: &u64| self.lets_pass(*asked, next.warmth);
        let retry_after = refused.filter(passes).map(|_| until_next);
        let full_after = if usage.passed > 0 {
            until_next
        } else {
            Default::default()
        };
        Decision::new(verdict, now, cost)
            .with_limit(self.capacity, self.quota)
            .with_numbers(Numbers {
                remaining: rest,
                more_after,
                reset_after,
            })
            .with_full_after(full_after)
            .with_retry_after(retry_after)
    }
}

impl Algorithm for WarmUp {
    type State = WarmUpState;

    #[inline]
    fn step(&self, state: &mut Option<WarmUpState>, now: Timestamp, cost: Cost) -> Step {
        let mut usage = self.usage(state.as_ref(), now);
        let (cost, rest) = (cost.get(), self.rest(&usage));
        if cost > rest {
            return Step::Kept(self.answer(now, cost, &usage, rest, Some(cost)));
        }
        usage.passed += cost;
        // The warmth stays the same within a second.
        let before = state.as_ref().map_or(Span::NONE, |state| state.warmth);
        *state = Some(WarmUpState {
            second: Timestamp::from_nanos(usage.second * SECOND),
            passed: usage.passed,
            warmth: before.replaced(usage.warmth, self.curve.per_nano),
        });
        Step::Wrote(self.answer(now, cost, &usage, rest - cost, None))
    }

    fn look(&self, state: Option<&WarmUpState>, now: Timestamp) -> Decision {
        let usage = self.usage(state, now);
        let rest = self.rest(&usage);
        self.answer(now, 0, &usage, rest, (rest == 0).then_some(1))
    }

    /// Corrects the usage in the second of the charge, while that is the last second of the key.
    ///
    /// A later correction does nothing, because the usage has been subtracted from the stored
    /// tokens.
    fn settle(&self, state: &mut Option<WarmUpState>, charge: &Charge, _: Timestamp, actual: u64) {
        let Some(state) = state else {
            return;
        };
        let (second, passed) = (state.second, state.passed);
        if charge.at.as_nanos() / SECOND == second.as_nanos() / SECOND {
            state.passed = passed.saturating_sub(charge.cost).saturating_add(actual);
        }
    }

    fn grant_slack(&self) -> Option<u64> {
        None
    }

    /// An idle key cools.
    #[inline]
    fn may_shrink_when_idle(&self) -> bool {
        true
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &WarmUpState) -> Timestamp {
        let usage = self.known(state);
        let second = self.forgettable(&usage, &self.next(&usage));
        Timestamp::from_nanos(second.saturating_mul(SECOND))
    }
}
