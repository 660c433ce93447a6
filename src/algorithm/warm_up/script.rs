//! A second and a warmth in the numbers of a script.

use super::{SECOND, WarmUp, WarmUpState};
use crate::{
    algorithm::{
        scripted::{MOST_FACTOR, Part, Scripted, count, most, natural},
        span::Span,
    },
    clock::Timestamp,
    error::Error,
};

/// A warmth in the largest unit that makes all of a rule's numbers whole.
struct Grid {
    /// Of the curve's own units.
    unit: u128,
    price: u128,
    /// What a second brings.
    made: u128,
    climb: u128,
    most: u128,
}

impl Grid {
    fn of(rule: &WarmUp) -> Self {
        let curve = &rule.curve;
        let price = u128::from(curve.per_permit);
        let (made, climb) = (rule.made(), curve.climb_units());
        let most = u128::from(curve.most) * u128::from(curve.per_nano);
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

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Later seconds have no instant.
const SECONDS: i64 = 1 << 34;

impl Scripted for WarmUp {
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let (curve, grid) = (&self.curve, Grid::of(self));
        let [rise, step] = [curve.rise, curve.step].map(u128::from);
        // The distance of a cold key, in parts of the line.
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

    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<WarmUpState> {
        let Some([Some(part)]) = parts.first_chunk() else {
            return None;
        };
        let [Self::KIND, second, passed, warmth, made] = part[..] else {
            return None;
        };
        let second = natural(second).filter(|_| second < SECONDS)?;
        let [warmth, made] = [natural(warmth)?, natural(made)?].map(u128::from);
        if warmth > MOST_FACTOR || !(1..=MOST_FACTOR).contains(&made) {
            return None;
        }
        let grid = Grid::of(self);
        // Of another rule: as the script does, rounded down. The product is at most 2^102.
        let warmth = (warmth * grid.made / made).min(grid.most);
        Some(WarmUpState {
            second: Timestamp::from_nanos(second * SECOND),
            passed: natural(passed)?,
            warmth: Span::from_units(warmth * grid.unit, self.curve.per_nano),
        })
    }

    fn state_parts(&self, state: &WarmUpState, parts: &mut Vec<Option<Part>>) {
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
