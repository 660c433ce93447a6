//! The next departure of a key and its arithmetic.

use std::time::Duration;

use super::WarmUpSpaced;
use crate::{
    algorithm::{Algorithm, StateKind, Step, arithmetic::mul_div, ticks::duration, warmth::Span},
    decision::{Charge, Cost, Decision, Numbers, Position, Verdict},
    time::Timestamp,
};

/// The state of a key under a [`WarmUpSpaced`]: the next departure, and the warmth at it.
// `packed(4)`: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct WarmUpSpacedState {
    pub(super) written_at: Timestamp,
    /// From the last write to the next departure.
    pub(super) backlog: Span,
    pub(super) warmth: Span,
}

/// The resolution of time: ticks of 2⁻³² ns, and multiples of them by a power of two for scripts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Resolution {
    /// The resolution in ticks: 1 except for scripts.
    unit: u64,
}

impl Resolution {
    pub(super) const FINEST: Self = Self::new(Span::BITS as u8);

    /// Returns the resolution of `2^bits` multiples to a nanosecond, at most that of a [`Span`].
    pub(super) const fn new(bits: u8) -> Self {
        Self {
            unit: 1 << (Span::BITS - bits as u32),
        }
    }

    /// Returns the number of binary digits behind the nanosecond.
    pub(super) fn bits(self) -> u32 {
        Span::BITS - self.unit.trailing_zeros()
    }

    #[inline]
    pub(super) fn unit(self) -> u128 {
        self.unit.into()
    }

    /// Rounds down to a multiple.
    #[inline]
    fn down(self, ticks: u128) -> u128 {
        ticks & !u128::from(self.unit - 1)
    }

    /// Rounds up to a multiple.
    #[inline]
    fn up(self, ticks: u128) -> u128 {
        self.down(ticks + u128::from(self.unit - 1))
    }
}

/// The longest span, in ticks.
pub(super) const LONGEST: u128 = Span::MAX_TICKS;

/// Returns nanoseconds in ticks.
#[inline]
fn ticks_of(nanos: u64) -> u128 {
    u128::from(nanos) << Span::BITS
}

/// Returns ticks in nanoseconds, rounded up.
#[inline]
fn nanos_of(ticks: u128) -> u128 {
    ticks.div_ceil(1 << Span::BITS)
}

/// The next departure, at an instant that is never before the last write.
#[derive(Clone, Copy)]
struct Departure {
    at: Timestamp,
    /// The time from `at` to the departure, in ticks.
    backlog: u128,
    /// The warmth of the key at the departure, in ticks.
    warmth: u128,
}

/// The price of a call at the full rate.
#[derive(Clone, Copy)]
struct Price {
    /// In ticks, rounded up; and rounded down.
    high: u128,
    low: u128,
}

impl Departure {
    /// Returns the wait until the departure in nanoseconds, rounded up.
    #[inline]
    fn delay(&self) -> u128 {
        nanos_of(self.backlog)
    }

    /// Returns the instant of the departure in nanoseconds, rounded down.
    #[inline]
    fn instant(&self) -> u64 {
        let nanos = u64::try_from(self.backlog >> Span::BITS).unwrap_or(u64::MAX);
        self.at.as_nanos().saturating_add(nanos)
    }
}

impl WarmUpSpaced {
    /// Returns the greatest warmth in ticks.
    #[inline]
    fn most(&self) -> u128 {
        ticks_of(self.curve.most)
    }

    /// Returns the warmth of a state whose warmth was cut: the least number above the greatest, so
    /// that the cut is visible.
    #[inline]
    fn cut(&self) -> u128 {
        self.most() + self.resolution.unit()
    }

    /// Returns the departure that a state contains, as of its last write.
    #[inline]
    fn known(&self, state: &WarmUpSpacedState) -> Departure {
        let (backlog, warmth) = (state.backlog.ticks(), state.warmth.ticks());
        Departure {
            at: state.written_at,
            backlog: self.resolution.up(backlog),
            warmth: self.resolution.down(warmth).min(self.cut()),
        }
    }

    /// Returns the state that contains a departure.
    #[inline]
    fn state(&self, departure: &Departure) -> WarmUpSpacedState {
        WarmUpSpacedState {
            written_at: departure.at,
            backlog: Span::from_ticks(departure.backlog.min(self.longest())),
            warmth: Span::from_ticks(departure.warmth),
        }
    }

    /// Returns the longest backlog in ticks.
    #[inline]
    fn longest(&self) -> u128 {
        self.resolution.down(LONGEST)
    }

    /// Returns the next departure at `now`, or at the last write if that lies ahead.
    #[inline]
    fn departure(&self, state: Option<&WarmUpSpacedState>, now: Timestamp) -> Departure {
        let Some(state) = state else {
            return Departure {
                at: now,
                backlog: 0,
                warmth: 0,
            };
        };
        let last = self.known(state);
        let elapsed = ticks_of(now.nanos_since(last.at));
        let at = now.max(last.at);
        match last.backlog.checked_sub(elapsed) {
            // The key is idle only after the departure.
            Some(backlog) if backlog > 0 => Departure {
                at,
                backlog,
                ..last
            },
            _ => Departure {
                at,
                backlog: 0,
                warmth: last
                    .warmth
                    .min(self.most())
                    .saturating_sub(self.cooling(elapsed - last.backlog)),
            },
        }
    }

    /// Returns the warmth that a key loses in an idle time, in ticks rounded up: all of it after
    /// the period.
    fn cooling(&self, idle: u128) -> u128 {
        if idle >= ticks_of(self.curve.over) {
            return self.most();
        }
        let (most, over) = (self.curve.most, self.curve.over);
        if most == over {
            return idle;
        }
        let (cooled, rounded) = mul_div(idle, most.into(), over.into());
        self.resolution.up(cooled + u128::from(rounded))
    }

    /// Returns the least idle time in which a key loses a warmth, in ticks.
    #[inline]
    fn cooled_after(&self, warmth: u128) -> u128 {
        let (most, over) = (self.curve.most, self.curve.over);
        // With a cold factor of 3, the default, a key cools as fast as it warms.
        if most == over {
            return warmth;
        }
        // The cooling is rounded up.
        match warmth.checked_sub(self.resolution.unit()) {
            None => 0,
            Some(less) => {
                let (idle, _) = mul_div(less, over.into(), most.into());
                self.resolution.down(idle) + self.resolution.unit()
            }
        }
    }

    /// Returns the instant in nanoseconds from which on the key is as if unused: idle and cold.
    #[inline]
    fn forgettable(&self, departure: &Departure) -> u128 {
        let backlog = departure.backlog.min(self.longest());
        let idle = self.cooled_after(departure.warmth.min(self.most()));
        u128::from(departure.at.as_nanos()) + nanos_of(backlog + idle)
    }

    /// Returns the price of a call, at most the longest span.
    #[inline]
    fn price(&self, cost: u64) -> Price {
        // At most 2^127.
        let units = u128::from(cost) * u128::from(self.curve.per_permit);
        let per_nano = u128::from(self.curve.per_nano);
        let (whole, rest) = match u64::try_from(units) {
            _ if per_nano == 1 => (units, 0),
            Ok(units) => {
                let (whole, rest) = (units / self.curve.per_nano, units % self.curve.per_nano);
                (u128::from(whole), u128::from(rest))
            }
            Err(_) => (units / per_nano, units % per_nano),
        };
        if whole > u128::from(u64::MAX) {
            let longest = self.longest();
            return Price {
                high: longest,
                low: longest,
            };
        }
        let (part, rounded) = match rest {
            0 => (0, false),
            rest => mul_div(rest, ticks_of(1), per_nano),
        };
        let low = (whole << Span::BITS) + part;
        Price {
            high: self.resolution.up(low + u128::from(rounded)),
            low: self.resolution.down(low),
        }
    }

    /// Returns how long later calls wait for a call, in ticks rounded up: the area under the curve.
    ///
    /// Below the threshold a stored permit costs as much as one that is not stored. Above it the
    /// straight line adds to that.
    #[inline]
    fn wait(&self, warmth: u128, price: Price) -> u128 {
        let climb = ticks_of(self.curve.climb);
        if warmth >= climb {
            return price.high;
        }
        // The call spends the permits from here to there, above the threshold.
        let from = climb - warmth;
        let to = climb.saturating_sub(warmth + price.high);
        let [rise, step] = [self.curve.rise, self.curve.step].map(u128::from);
        // At most 2^114 twice, and the quotient is at most 500 times the climb.
        let (area, rounded) = mul_div(from - to, rise * (from + to), 2 * step * climb);
        price.high + self.resolution.up(area + u128::from(rounded))
    }

    /// Returns the departure behind a call that departs here.
    #[inline]
    fn behind(&self, departure: &Departure, cost: u64) -> Departure {
        let price = self.price(cost);
        Departure {
            backlog: departure.backlog + self.wait(departure.warmth, price),
            warmth: (departure.warmth + price.low).min(self.cut()),
            ..*departure
        }
    }

    /// Returns the departure after a call turned out to cost `more` than it was charged.
    fn owing(&self, departure: &Departure, more: u64) -> Departure {
        Departure {
            backlog: departure.backlog + self.price(more).high,
            ..*departure
        }
    }

    /// Returns the departure behind the call of a charge as if it had cost `actual`, which is less
    /// than it was charged.
    ///
    /// `None` unless no later call was delayed.
    fn corrected(
        &self,
        state: &WarmUpSpacedState,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> Option<Departure> {
        let last = self.known(state);
        // Each call moves the next departure by a nanosecond or more, unless the rule is too fast.
        let is_last = charge.position?.end() == last.instant();
        let too_fast = self.curve.per_permit < self.curve.per_nano;
        if !is_last || too_fast {
            return None;
        }
        let departs = u128::from(charge.at.as_nanos()) + charge.delay?.as_nanos();
        let price = self.price(charge.cost);
        // Colder than it was if the warmth was cut.
        let before = last.warmth.checked_sub(price.low)?;
        let departure = Departure {
            // If the key was idle since, its departure lies before the last write.
            backlog: last.backlog.checked_sub(self.wait(before, price))?,
            warmth: before,
            ..last
        };
        // A colder key makes the call longer than it was.
        if u128::from(last.at.as_nanos()) + departure.delay() != departs {
            return None;
        }
        // A call that has departed keeps its distance to the next one.
        let departed = departs <= u128::from(now.max(last.at).as_nanos());
        let actual = if departed { actual.max(1) } else { actual };
        match actual {
            0 => Some(departure),
            _ => (actual < charge.cost).then(|| self.behind(&departure, actual)),
        }
    }

    #[inline]
    fn verdict(&self, delay: u128) -> Verdict {
        if delay == 0 {
            Verdict::Allow
        } else if delay <= u128::from(self.longest_wait_nanos()) {
            Verdict::Delay(duration(delay))
        } else {
            Verdict::Refuse
        }
    }

    /// Returns the decision that leaves a departure to the next call, for a key that can be
    /// forgotten at `reset`.
    #[inline]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        departure: &Departure,
        reset: u128,
    ) -> Decision {
        let (remaining, more_after) = match self.too_long(departure, now) {
            None => (self.capacity.get(), Duration::ZERO),
            Some(wait) => (0, wait),
        };
        Decision::new(verdict, now, cost)
            .with_limit(self.capacity, self.quota)
            .with_numbers(Numbers {
                remaining,
                more_after,
                reset_after: duration(reset.saturating_sub(u128::from(now.as_nanos()))),
            })
            .with_full_after(more_after)
    }

    /// Returns when a key can be forgotten if its state stays as it is, in nanoseconds.
    fn reset(&self, state: Option<&WarmUpSpacedState>) -> u128 {
        state.map_or(0, |state| self.forgettable(&self.known(state)))
    }

    /// Returns the wait from `now` until the departure is no longer too far ahead, if it is now.
    #[inline]
    fn too_long(&self, departure: &Departure, now: Timestamp) -> Option<Duration> {
        let beyond = departure
            .delay()
            .checked_sub(u128::from(self.longest_wait_nanos()))?;
        let stalled = departure.at.as_nanos() - now.as_nanos();
        (beyond > 0).then(|| duration(beyond + u128::from(stalled)))
    }
}

impl Algorithm for WarmUpSpaced {
    type State = WarmUpSpacedState;

    #[inline]
    fn step(&self, state: &mut Option<WarmUpSpacedState>, now: Timestamp, cost: Cost) -> Step {
        let departure = self.departure(state.as_ref(), now);
        let verdict = self.verdict(departure.delay());
        let fits = cost.get() <= self.capacity.get();
        if !fits || verdict == Verdict::Refuse {
            let retry_after = self.too_long(&departure, now).filter(|_| fits);
            let reset = self.reset(state.as_ref());
            let refusal = self.answer(Verdict::Refuse, now, cost.get(), &departure, reset);
            return Step::Kept(refusal.with_retry_after(retry_after));
        }
        let departure = self.behind(&departure, cost.get());
        *state = Some(self.state(&departure));
        let reset = self.forgettable(&departure);
        let admission = self.answer(verdict, now, cost.get(), &departure, reset);
        Step::Wrote(admission.with_position(Position::new(departure.instant(), 0)))
    }

    fn look(&self, state: Option<&WarmUpSpacedState>, now: Timestamp) -> Decision {
        let departure = self.departure(state, now);
        let verdict = self.verdict(departure.delay());
        self.answer(verdict, now, 0, &departure, self.reset(state))
            .with_retry_after(self.too_long(&departure, now))
    }

    /// Refunds the departure of the last call, or a part of its cost; see
    /// [the rule](WarmUpSpaced#calls-that-are-cancelled-or-corrected).
    ///
    /// If the key is left colder than it was, no later call departs earlier than without the
    /// corrected call.
    fn settle(
        &self,
        state: &mut Option<WarmUpSpacedState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let departure = if actual > charge.cost {
            Some(self.owing(&self.departure(state.as_ref(), now), actual - charge.cost))
        } else if actual < charge.cost {
            state
                .as_ref()
                .and_then(|state| self.corrected(state, charge, now, actual))
        } else {
            None
        };
        if let Some(departure) = departure {
            *state = Some(self.state(&departure));
        }
    }

    fn may_delay(&self) -> bool {
        true
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &WarmUpSpacedState) -> Timestamp {
        let nanos = u64::try_from(self.forgettable(&self.known(state))).unwrap_or(u64::MAX);
        Timestamp::from_nanos(nanos)
    }
}
