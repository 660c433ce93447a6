//! Encodings: the state as bytes, and the rule and its state as numbers for scripts.

use super::{WarmUp, WarmUpState, step::SECOND};
use crate::{
    algorithm::{
        arithmetic::gcd,
        codec::{Codec, damaged, put_number, take_number, take_tag},
        scripted::{MOST_FACTOR, ScriptTuple, Scripted, count, most, natural, only},
        warmth::Span,
    },
    error::Error,
    time::Timestamp,
};

impl Codec for WarmUpState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let second = self.second;
        bytes.push(WarmUp::TAG);
        put_number(bytes, second.as_nanos() / SECOND);
        put_number(bytes, self.passed);
        self.warmth.encode(bytes);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, WarmUp::TAG)?;
        let nanos = take_number(bytes)?.checked_mul(SECOND);
        Ok(Self {
            second: nanos.map(Timestamp::from_nanos).ok_or_else(damaged)?,
            passed: take_number(bytes)?,
            warmth: Span::decode(bytes)?,
        })
    }
}

/// The numbers of a rule in the largest unit in which all of them are whole.
struct Grid {
    /// In units of the curve.
    unit: u128,
    price: u128,
    /// Added by a second.
    made: u128,
    climb: u128,
    most: u128,
}

impl Grid {
    fn of(rule: &WarmUp) -> Self {
        let curve = &rule.curve;
        let price = u128::from(curve.per_permit);
        let (made, climb, most) = (rule.made(), curve.climb_units(), curve.most_units());
        let unit = [made, climb, most].into_iter().fold(price, gcd);
        let [price, made, climb, most] = [price, made, climb, most].map(|units| units / unit);
        Self {
            unit,
            price,
            made,
            climb,
            most,
        }
    }
}

/// Later seconds do not fit into a [`Timestamp`].
const SECONDS: i64 = 1 << 34;

impl Scripted for WarmUp {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        let (curve, grid) = (&self.curve, Grid::of(self));
        let [rise, step] = [curve.rise, curve.step].map(u128::from);
        // The interval of a cold key, in parts of the line.
        let cold = (rise + step) * grid.climb;
        let fits = [grid.price, step * grid.made, cold, grid.most]
            .into_iter()
            .all(|number| number <= MOST_FACTOR);
        if !fits {
            return Err(Error::new(format!(
                "the rule `{self}` does not fit into a script's numbers: expected the price of a call, what a second makes \
                 and what a key stores to be whole numbers of one unit, below 2^51; choose an amount that divides its \
                 period, an `over` of whole seconds, or a cold factor that is a whole number"
            )));
        }
        let numbers = [
            grid.price, grid.made, grid.climb, grid.most, cold, rise, step,
        ];
        let mut part = vec![Self::KIND];
        part.extend(numbers.map(|number| number as i64));
        part.extend([self.least, self.capacity].map(|units| units.get() as i64));
        parts.push(part);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<WarmUpState> {
        let [Self::KIND, second, passed, warmth, made] = *only(parts)? else {
            return None;
        };
        let second = natural(second).filter(|_| second < SECONDS)?;
        let [warmth, made] = [natural(warmth)?, natural(made)?].map(u128::from);
        if warmth > MOST_FACTOR || !(1..=MOST_FACTOR).contains(&made) {
            return None;
        }
        let grid = Grid::of(self);
        // The state of another rule is rescaled as in the script, rounded down. The product is at
        // most 2^102.
        let warmth = (warmth * grid.made / made).min(grid.most);
        Some(WarmUpState {
            second: Timestamp::from_nanos(second * SECOND),
            passed: natural(passed)?,
            warmth: Span::from_units(warmth * grid.unit, self.curve.per_nano),
        })
    }

    fn state_parts(&self, state: &WarmUpState, parts: &mut Vec<Option<ScriptTuple>>) {
        let grid = Grid::of(self);
        let (second, warmth) = (state.second, state.warmth);
        let units = warmth.units(self.curve.per_nano);
        parts.push(Some(vec![
            Self::KIND,
            (second.as_nanos() / SECOND) as i64,
            count(state.passed),
            most(units / grid.unit),
            most(grid.made),
        ]));
    }
}
