//! Encodings: the state as bytes, and the rule and its state as numbers for scripts.

use super::{
    WarmUpSpaced, WarmUpSpacedState,
    step::{LONGEST, Resolution},
};
use crate::{
    algorithm::{
        arithmetic::gcd,
        codec::{Codec, put_instant, take_instant, take_tag},
        scripted::{
            MICRO, MOST_FACTOR, ScriptTuple, Scripted, in_micros, instant, most, natural, only,
        },
        warmth::Span,
    },
    error::Error,
};

impl Codec for WarmUpSpacedState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(WarmUpSpaced::TAG);
        put_instant(bytes, self.written_at);
        self.backlog.encode(bytes);
        self.warmth.encode(bytes);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, WarmUpSpaced::TAG)?;
        Ok(Self {
            written_at: take_instant(bytes)?,
            backlog: Span::decode(bytes)?,
            warmth: Span::decode(bytes)?,
        })
    }
}

impl WarmUpSpaced {
    /// Returns two fractions in lowest terms, by which scripts multiply: the cooling `most / over`,
    /// and the slope of the line `rise / (2 step)`.
    fn shares(&self) -> [u64; 4] {
        let curve = &self.curve;
        let gcd = |a: u64, b: u64| gcd(a.into(), b.into()) as u64;
        let cooling = gcd(curve.most, curve.over);
        let (rise, twice) = (u64::from(curve.rise), 2 * u64::from(curve.step));
        let line = gcd(rise, twice);
        [
            curve.most / cooling,
            curve.over / cooling,
            rise / line,
            twice / line,
        ]
    }

    /// Returns the finest resolution at which all numbers of a script stay exact; `None` if there
    /// is none.
    fn resolution_in_script(&self) -> Option<Resolution> {
        let curve = &self.curve;
        let [most, over, climb] = [curve.most, curve.over, curve.climb].map(u128::from);
        let [cools, rests, rise, twice] = self.shares().map(u128::from);
        let permit = u128::from(curve.per_permit);
        // At most 2^63, as all times; and the line rises by at most 2^20.
        let price = u128::from(self.capacity.get()) * permit / u128::from(curve.per_nano) + 1;
        let wait = price + rise * climb / twice + 1;
        let micros = 4 * u128::from(MICRO);
        let in_ticks = [
            most + price,
            u128::from(self.longest_wait_nanos()) + wait + over + micros,
            2 * rise * climb,
            twice * climb,
            permit,
        ];
        let greatest = in_ticks.into_iter().max()?;
        let bits = (MOST_FACTOR / greatest).checked_ilog2()?;
        let fits = cools.max(rests) <= MOST_FACTOR;
        fits.then(|| Resolution::new(bits.min(Span::BITS) as u8))
    }
}

impl Resolution {
    /// Returns a span in multiples of the unit, rounded down.
    fn low(self, span: Span) -> u128 {
        span.ticks() / self.unit()
    }

    /// Returns a span in multiples of the unit, rounded up.
    fn high(self, span: Span) -> u128 {
        span.ticks().div_ceil(self.unit())
    }

    /// Returns the span of a number of multiples of the unit, at most the longest span.
    fn span(self, multiples: u128) -> Span {
        Span::from_ticks(multiples.min(LONGEST / self.unit()) * self.unit())
    }
}

impl Scripted for WarmUpSpaced {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        let Some(resolution) = self.resolution_in_script() else {
            return Err(Error::new(format!(
                "the rule `{self}` does not fit into a script's numbers: expected `over`, `max-wait`, what a key \
                 stores and a permit to come to less than 2^51 ns together, 26 days; choose a shorter `over` or \
                 `max-wait`, a higher rate, or a cold factor that is a whole number"
            )));
        };
        let curve = &self.curve;
        let [cools, rests, rise, twice] = self.shares();
        let in_ticks = |nanos: u64| (nanos << resolution.bits()) as i64;
        parts.push(vec![
            Self::KIND,
            resolution.bits().into(),
            in_ticks(self.longest_wait_nanos()),
            self.capacity.get() as i64,
            in_ticks(curve.per_permit),
            curve.per_nano as i64,
            in_ticks(curve.most),
            in_ticks(curve.over),
            cools as i64,
            rests as i64,
            in_ticks(curve.climb),
            rise as i64,
            in_ticks(twice * curve.climb),
        ]);
        Ok(())
    }

    fn in_script(&self) -> Option<Self> {
        let resolution = self.resolution_in_script()?;
        (resolution != self.resolution).then_some(Self {
            resolution,
            ..*self
        })
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<WarmUpSpacedState> {
        let [Self::KIND, at, backlog, warmth, bits] = *only(parts)? else {
            return None;
        };
        let bits = u8::try_from(bits).ok()?;
        let resolution = (u32::from(bits) <= Span::BITS).then(|| Resolution::new(bits))?;
        let span = |number: i64| Some(resolution.span(natural(number)?.into()));
        Some(WarmUpSpacedState {
            written_at: instant(at)?,
            backlog: span(backlog)?,
            warmth: span(warmth)?,
        })
    }

    fn state_parts(&self, state: &WarmUpSpacedState, parts: &mut Vec<Option<ScriptTuple>>) {
        let (backlog, warmth) = (state.backlog, state.warmth);
        let resolution = self.resolution_in_script().unwrap_or(self.resolution);
        parts.push(Some(vec![
            Self::KIND,
            in_micros(state.written_at),
            most(resolution.high(backlog)),
            most(resolution.low(warmth)),
            resolution.bits().into(),
        ]));
    }
}
