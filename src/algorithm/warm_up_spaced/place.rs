//! When the next departure is free, and what a call makes of that.

use super::{
    WarmUpSpaced, WarmUpSpacedState,
    ticks::{LONGEST, Ticks, nanos_of, ticks_of},
};
use crate::{
    algorithm::span::{Span, mul_div},
    clock::Timestamp,
    decision::Charge,
};

/// The next departure, at an instant that is never before the last write.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: Timestamp,
    ticks: Ticks,
    /// How long after `at` it is free, in ticks.
    backlog: u128,
    /// How warm the key is then, in ticks.
    warmth: u128,
}

/// What a call of some cost takes at the full rate.
#[derive(Clone, Copy)]
struct Price {
    /// In ticks, rounded up and down.
    high: u128,
    low: u128,
}

impl Place {
    /// The wait until it is free, in nanoseconds rounded up.
    #[inline]
    pub(super) fn delay(&self) -> u128 {
        nanos_of(self.backlog)
    }

    #[inline]
    pub(super) fn state(&self) -> WarmUpSpacedState {
        WarmUpSpacedState {
            written_at: self.at,
            backlog: Span::from_ticks(self.backlog.min(self.ticks.down(LONGEST))),
            warmth: Span::from_ticks(self.warmth),
        }
    }
}

impl WarmUpSpaced {
    /// The greatest warmth, in ticks.
    #[inline]
    fn most(&self) -> u128 {
        ticks_of(self.curve.most)
    }

    /// What warmth is cut to: the least more than there is, so that a state tells that it was cut.
    #[inline]
    fn cut(&self) -> u128 {
        self.most() + self.ticks.unit()
    }

    /// How long after its last write the next departure of a state is free, and how warm the key is then.
    #[inline]
    fn told(&self, state: &WarmUpSpacedState) -> (u128, u128) {
        let (backlog, warmth) = (state.backlog.ticks(), state.warmth.ticks());
        let warmth = self.ticks.down(warmth).min(self.cut());
        (self.ticks.up(backlog), warmth)
    }

    /// The next departure now, or at the last write if that lies ahead.
    #[inline]
    pub(super) fn place(&self, state: Option<&WarmUpSpacedState>, now: Timestamp) -> Place {
        let ticks = self.ticks;
        let Some(state) = state else {
            return Place {
                at: now,
                ticks,
                backlog: 0,
                warmth: 0,
            };
        };
        let (backlog, warmth) = self.told(state);
        let elapsed = ticks_of(now.nanos_since(state.written_at));
        let at = now.max(state.written_at);
        match backlog.checked_sub(elapsed) {
            // Before it is free nobody is idle.
            Some(backlog) if backlog > 0 => Place {
                at,
                ticks,
                backlog,
                warmth,
            },
            _ => Place {
                at,
                ticks,
                backlog: 0,
                warmth: warmth
                    .min(self.most())
                    .saturating_sub(self.cooling(elapsed - backlog)),
            },
        }
    }

    /// What an idle time takes from the warmth, in ticks rounded up: all, after the period.
    fn cooling(&self, idle: u128) -> u128 {
        if idle >= ticks_of(self.curve.over) {
            return self.most();
        }
        let (most, over) = (self.curve.most, self.curve.over);
        if most == over {
            return idle;
        }
        let (cooled, rounded) = mul_div(idle, most.into(), over.into());
        self.ticks.up(cooled + u128::from(rounded))
    }

    /// The least idle time that takes all of a warmth, up to the greatest, in ticks.
    #[inline]
    fn cooled_after(&self, warmth: u128) -> u128 {
        let (most, over) = (self.curve.most, self.curve.over);
        // From a cold factor of 3, the default, a key cools as fast as it was warmed.
        if most == over {
            return warmth;
        }
        // What is cooled is rounded up.
        match warmth.checked_sub(self.ticks.unit()) {
            None => 0,
            Some(less) => {
                let (idle, _) = mul_div(less, over.into(), most.into());
                self.ticks.down(idle) + self.ticks.unit()
            }
        }
    }

    /// From when on the key is as if it were unused, in nanoseconds: nobody is waited for, and it is cold.
    #[inline]
    pub(super) fn forgettable(&self, state: &WarmUpSpacedState) -> u128 {
        let (backlog, warmth) = self.told(state);
        self.unused_from(state.written_at, backlog, warmth)
    }

    /// The same for the state of a place.
    #[inline]
    pub(super) fn forgettable_place(&self, place: &Place) -> u128 {
        let backlog = place.backlog.min(self.ticks.down(LONGEST));
        self.unused_from(place.at, backlog, place.warmth)
    }

    #[inline]
    fn unused_from(&self, at: Timestamp, backlog: u128, warmth: u128) -> u128 {
        let idle = self.cooled_after(warmth.min(self.most()));
        u128::from(at.as_nanos()) + nanos_of(backlog + idle)
    }

    /// The price of a call, cut to the longest span.
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
            let longest = self.ticks.down(LONGEST);
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
            high: self.ticks.up(low + u128::from(rounded)),
            low: self.ticks.down(low),
        }
    }

    /// What those behind a call wait for it, in ticks rounded up: the area under the curve.
    ///
    /// A stored permit below the threshold costs what one does that is not stored; above it, so much more
    /// as the straight line lies higher.
    #[inline]
    fn wait(&self, warmth: u128, price: Price) -> u128 {
        let climb = ticks_of(self.curve.climb);
        if warmth >= climb {
            return price.high;
        }
        // From here the call goes down to there, above the threshold.
        let from = climb - warmth;
        let to = climb.saturating_sub(warmth + price.high);
        let [rise, step] = [self.curve.rise, self.curve.step].map(u128::from);
        // At most 2^114 twice, and the quotient is at most 500 times the climb.
        let (area, rounded) = mul_div(from - to, rise * (from + to), 2 * step * climb);
        price.high + self.ticks.up(area + u128::from(rounded))
    }

    /// The place behind a call that takes this one.
    #[inline]
    pub(super) fn behind(&self, place: &Place, cost: u64) -> Place {
        let price = self.price(cost);
        Place {
            backlog: place.backlog + self.wait(place.warmth, price),
            warmth: (place.warmth + price.low).min(self.cut()),
            ..*place
        }
    }

    /// The place after a call turned out to cost `more` than was charged.
    pub(super) fn owing(&self, place: &Place, more: u64) -> Place {
        Place {
            backlog: place.backlog + self.price(more).high,
            ..*place
        }
    }

    /// The place behind the call of this charge as if it had cost `actual`, less than it was charged.
    ///
    /// `None` unless it was the last one that was told its delay.
    pub(super) fn corrected(
        &self,
        state: &WarmUpSpacedState,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> Option<Place> {
        let at = state.written_at;
        let departs = u128::from(charge.at.as_nanos()) + charge.delay?.as_nanos();
        let price = self.price(charge.cost);
        let (backlog, warmth) = self.told(state);
        // Or colder than it was, where the warmth was cut.
        let before = warmth.checked_sub(price.low)?;
        // If others were told behind it without finding the key idle, they have made it warmer: what would be
        // waited for this call there is at most what was, and its departure comes out later than it was told,
        // by a nanosecond or more. Where the warmth was cut, that holds only where all calls wait the same.
        let is_cut = warmth == self.cut();
        let too_fast = self.curve.per_permit < self.curve.per_nano;
        if too_fast || (is_cut && before < ticks_of(self.curve.climb)) {
            return None;
        }
        let place = Place {
            at,
            ticks: self.ticks,
            // If the key was idle since, its departure lies before the last write.
            backlog: backlog.checked_sub(self.wait(before, price))?,
            warmth: before,
        };
        if u128::from(at.as_nanos()) + place.delay() != departs {
            return None;
        }
        // What has departed keeps its distance to the next one.
        let departed = departs <= u128::from(now.max(at).as_nanos());
        let actual = if departed { actual.max(1) } else { actual };
        match actual {
            0 => Some(place),
            _ => (actual < charge.cost).then(|| self.behind(&place, actual)),
        }
    }
}
