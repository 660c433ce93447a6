//! A bucket in the numbers of a script.

use std::fmt::Display;

use super::{BucketLevel, TokenBucket, TokenBucketState, settle::GivenBack};
use crate::{
    algorithm::{
        credit::Credit,
        scripted::{
            Grid, MICRO, Part, Scripted, count, fitting, in_micros, instant, micros, natural,
        },
    },
    error::Error,
};

/// Longer than a script's clock can go, in microseconds.
const FOR_EVER: u64 = 1 << 52;

impl TokenBucket {
    /// The bucket as a script reads it, for itself or as one of `rule`: gain of a microsecond, price of a token,
    /// burst, initial fill, and how long that is kept.
    pub(in crate::algorithm) fn numbers(&self, rule: &impl Display) -> Result<[i64; 5], Error> {
        let (burst, initial) = (self.burst.get(), self.initial);
        let [gain, price] = Grid::of(self.rate).numbers(burst.max(initial), rule)?;
        let keep = if self.starts_at_rest() {
            0
        } else if self.keep / MICRO < FOR_EVER {
            micros(self.keep, rule)?
        } else {
            FOR_EVER as i64
        };
        let initial = fitting(initial.into(), rule)?;
        Ok([gain, price, fitting(burst.into(), rule)?, initial, keep])
    }

    /// The credit of `level` units of a `gain` a microsecond.
    pub(in crate::algorithm) fn credit(&self, level: i64, gain: i64) -> Option<Credit> {
        let units = Grid::of(self.rate).of_script(level, gain)?;
        Some(Credit::from_units(units, self.rate.per_nano))
    }

    /// What a script keeps of a credit: level and gain.
    ///
    /// Within a microsecond the bucket is filled no further: rounded in favour of the limit.
    pub(in crate::algorithm) fn level(&self, credit: Credit) -> [i64; 2] {
        Grid::of(self.rate).to_script(credit.units(self.rate.per_nano))
    }
}

impl Scripted for TokenBucket {
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let numbers = self.numbers(self)?;
        parts.push([&[Self::KIND], &numbers[..]].concat());
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<TokenBucketState> {
        let Some([Some(part)]) = parts.first_chunk() else {
            return None;
        };
        let (at, level, gain, given_back) = match part[..] {
            [Self::KIND, at, level, gain] => (at, level, gain, GivenBack::NONE),
            [Self::KIND, at, level, gain, micros, until] => {
                let nanos = natural(micros)? * MICRO;
                (at, level, gain, GivenBack::new(nanos, instant(until)?))
            }
            _ => return None,
        };
        let level = BucketLevel {
            written_at: instant(at)?,
            credit: self.credit(level, gain)?,
        };
        Some(TokenBucketState { level, given_back })
    }

    fn state_parts(&self, state: &TokenBucketState, parts: &mut Vec<Option<Part>>) {
        let [level, gain] = self.level(state.level.credit);
        let at = in_micros(state.level.written_at);
        let mut part = vec![Self::KIND, at, level, gain];
        let given_back = state.given_back;
        if !given_back.is_none() {
            part.push(count(given_back.nanos().div_ceil(MICRO)));
            part.push(in_micros(given_back.until()));
        }
        parts.push(Some(part));
    }
}
