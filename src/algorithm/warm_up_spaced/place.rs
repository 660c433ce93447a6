//! When the next departure is free, and what a call makes of that.

use super::{WarmUpSpaced, WarmUpSpacedState};
use crate::{
    algorithm::span::{Span, mul_div},
    clock::Timestamp,
    decision::Charge,
};

/// In what time is counted: ticks of 2⁻³² ns, and coarser ones in a script.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ticks {
    /// A nanosecond has `2^bits`: at most those of a [`Span`].
    bits: u8,
}

impl Ticks {
    pub(super) const FINEST: Self = Self::new(Span::BITS as u8);

    pub(super) const fn new(bits: u8) -> Self {
        Self { bits }
    }

    /// How many binary digits of a nanosecond are told apart.
    pub(super) fn bits(self) -> u32 {
        u32::from(self.bits)
    }

    /// How many of a span's own binary digits are not.
    fn coarser(self) -> u32 {
        Span::BITS - self.bits()
    }

    /// Ticks of so many nanoseconds, or of an instant.
    pub(super) fn of(self, nanos: u64) -> u128 {
        u128::from(nanos) << self.bits
    }

    /// Whole nanoseconds of so many ticks, rounded up.
    pub(super) fn nanos(self, ticks: u128) -> u128 {
        ticks.div_ceil(1 << self.bits)
    }

    /// A span, rounded down.
    pub(super) fn low(self, span: Span) -> u128 {
        span.ticks() >> self.coarser()
    }

    /// A span, rounded up.
    pub(super) fn high(self, span: Span) -> u128 {
        span.ticks().div_ceil(1 << self.coarser())
    }

    /// The span of so many ticks, or the longest.
    pub(super) fn span(self, ticks: u128) -> Span {
        Span::from_ticks(ticks.min(self.most()) << self.coarser())
    }

    /// The longest span.
    fn most(self) -> u128 {
        Span::MAX_TICKS >> self.coarser()
    }
}

/// The next departure, at an instant that is never before the last write.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: Timestamp,
    ticks: Ticks,
    /// When it is free, not before `at`, in ticks since the epoch.
    free: u128,
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
        self.ticks.nanos(self.backlog())
    }

    /// The same in ticks.
    fn backlog(&self) -> u128 {
        self.free - self.ticks.of(self.at.as_nanos())
    }

    pub(super) fn state(&self) -> WarmUpSpacedState {
        WarmUpSpacedState {
            written_at: self.at,
            backlog: self.ticks.span(self.backlog()),
            warmth: self.ticks.span(self.warmth),
        }
    }
}

impl WarmUpSpaced {
    /// The greatest warmth, in ticks.
    fn most(&self) -> u128 {
        self.ticks.of(self.curve.most)
    }

    /// What warmth is cut to: a tick more than there is, so that a state tells that it was cut.
    fn cut(&self) -> u128 {
        self.most() + 1
    }

    /// When the next departure of a state is free, and how warm the key is then.
    #[inline]
    fn told(&self, state: &WarmUpSpacedState) -> (u128, u128) {
        let (written_at, backlog, warmth) = (state.written_at, state.backlog, state.warmth);
        let free = self.ticks.of(written_at.as_nanos()) + self.ticks.high(backlog);
        (free, self.ticks.low(warmth).min(self.cut()))
    }

    /// The next departure now, or at the last write if that lies ahead.
    #[inline]
    pub(super) fn place(&self, state: Option<&WarmUpSpacedState>, now: Timestamp) -> Place {
        let ticks = self.ticks;
        let Some(state) = state else {
            return Place {
                at: now,
                ticks,
                free: ticks.of(now.as_nanos()),
                warmth: 0,
            };
        };
        let (free, warmth) = self.told(state);
        let at = now.max(state.written_at);
        let this = ticks.of(at.as_nanos());
        match this.checked_sub(free) {
            None => Place {
                at,
                ticks,
                free,
                warmth,
            },
            Some(idle) => Place {
                at,
                ticks,
                free: this,
                warmth: warmth.min(self.most()).saturating_sub(self.cooling(idle)),
            },
        }
    }

    /// What an idle time takes from the warmth, in ticks rounded up: all, after the period.
    fn cooling(&self, idle: u128) -> u128 {
        if idle >= self.ticks.of(self.curve.over) {
            return self.most();
        }
        let [most, over] = [self.curve.most, self.curve.over].map(u128::from);
        let (cooled, rounded) = mul_div(idle, most, over);
        cooled + u128::from(rounded)
    }

    /// From when on the key is as if it were unused, in nanoseconds: nobody is waited for, and it is cold.
    pub(super) fn forgettable(&self, state: &WarmUpSpacedState) -> u128 {
        let (free, warmth) = self.told(state);
        let [most, over] = [self.curve.most, self.curve.over].map(u128::from);
        // The least idle time whose cooling, rounded up, is all of the warmth.
        let idle = match warmth.min(self.most()).checked_sub(1) {
            None => 0,
            Some(less) => mul_div(less, over, most).0 + 1,
        };
        self.ticks.nanos(free + idle)
    }

    /// The price of a call, cut to the longest span.
    fn price(&self, cost: u64) -> Price {
        // At most 2^127.
        let units = u128::from(cost) * u128::from(self.curve.per_permit);
        let per_nano = u128::from(self.curve.per_nano);
        let (whole, rest) = match u64::try_from(units) {
            Ok(units) => {
                let (whole, rest) = (units / self.curve.per_nano, units % self.curve.per_nano);
                (u128::from(whole), u128::from(rest))
            }
            Err(_) => (units / per_nano, units % per_nano),
        };
        if whole > u128::from(u64::MAX) {
            let longest = self.ticks.most();
            return Price {
                high: longest,
                low: longest,
            };
        }
        let (part, rounded) = mul_div(rest, self.ticks.of(1), per_nano);
        let low = (whole << self.ticks.bits) + part;
        Price {
            high: low + u128::from(rounded),
            low,
        }
    }

    /// What those behind a call wait for it, in ticks rounded up: the area under the curve.
    ///
    /// A stored permit below the threshold costs what one does that is not stored; above it, so much more
    /// as the straight line lies higher.
    fn wait(&self, warmth: u128, price: Price) -> u128 {
        let climb = self.ticks.of(self.curve.climb);
        // From here the call goes down to there, above the threshold.
        let from = climb.saturating_sub(warmth);
        let to = climb.saturating_sub(warmth + price.high);
        if from == 0 {
            return price.high;
        }
        let [rise, step] = [self.curve.rise, self.curve.step].map(u128::from);
        // At most 2^114 twice, and the quotient is at most 500 times the climb.
        let (area, rounded) = mul_div(from - to, rise * (from + to), 2 * step * climb);
        price.high + area + u128::from(rounded)
    }

    /// The place behind a call that takes this one.
    #[inline]
    pub(super) fn behind(&self, place: &Place, cost: u64) -> Place {
        let price = self.price(cost);
        Place {
            free: place.free + self.wait(place.warmth, price),
            warmth: (place.warmth + price.low).min(self.cut()),
            ..*place
        }
    }

    /// The place after a call turned out to cost `more` than was charged.
    pub(super) fn owing(&self, place: &Place, more: u64) -> Place {
        Place {
            free: place.free + self.price(more).high,
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
        let (free, warmth) = self.told(state);
        // Or colder than it was, where the warmth was cut.
        let before = warmth.checked_sub(price.low)?;
        // If others were told behind it without finding the key idle, they have made it warmer: what would be
        // waited for this call there is at most what was, and its departure comes out later than it was told,
        // by a nanosecond or more. Where the warmth was cut, that holds only where all calls wait the same.
        let is_cut = warmth == self.cut();
        let too_fast = self.curve.per_permit < self.curve.per_nano;
        if too_fast || (is_cut && before < self.ticks.of(self.curve.climb)) {
            return None;
        }
        let place = Place {
            at,
            ticks: self.ticks,
            free: free.checked_sub(self.wait(before, price))?,
            warmth: before,
        };
        // If the key was idle since, its departure lies before the last write.
        if self.ticks.nanos(place.free) != departs || place.free < self.ticks.of(at.as_nanos()) {
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
