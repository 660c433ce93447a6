//! Encodings: the state as bytes, and the rule and its state as numbers for scripts.

use std::fmt::Display;

use super::{
    TokenBucket,
    step::{Refunded, TokenBucketState},
};
use crate::{
    algorithm::{
        bucket::BucketLevel,
        codec::{Codec, put_instant, put_number, take_instant, take_number, take_tag},
        rate::ScriptRate,
        scripted::{
            MICRO, ScriptTuple, Scripted, count, fitting, in_micros, instant, micros, natural, only,
        },
        ticks::{put_span, take_span},
    },
    error::Error,
};

/// Version 2, of a key to which something was refunded.
const REFUNDED: u8 = TokenBucket::TAG + 1;

/// Only a state with time that was refunded takes the second version.
impl Codec for TokenBucketState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let refunded = self.refunded;
        if refunded.is_none() {
            return self.level.encode(bytes);
        }
        bytes.push(REFUNDED);
        self.level.put(bytes);
        put_number(bytes, refunded.nanos);
        put_instant(bytes, refunded.until);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        if bytes.first() != Some(&REFUNDED) {
            return BucketLevel::decode(bytes).map(Self::from);
        }
        take_tag(bytes, REFUNDED)?;
        Ok(Self {
            level: BucketLevel::take(bytes)?,
            refunded: Refunded::new(take_number(bytes)?, take_instant(bytes)?),
        })
    }
}

/// The bytes are those of a [`TokenBucketState`] without time that was refunded.
impl Codec for BucketLevel {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(TokenBucket::TAG);
        self.put(bytes);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, TokenBucket::TAG)?;
        Self::take(bytes)
    }
}

impl BucketLevel {
    fn put(&self, bytes: &mut Vec<u8>) {
        put_instant(bytes, self.written_at);
        put_span(bytes, self.level);
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, Error> {
        Ok(Self {
            written_at: take_instant(bytes)?,
            level: take_span(bytes)?,
        })
    }
}

/// A script counts the time that was refunded modulo this many microseconds, which is less than
/// what [`Position`](crate::decision::Position) counts.
const SUM: u64 = 1 << 50;

/// A time beyond the end of a script's clock, in microseconds.
const FOR_EVER: u64 = 1 << 52;

impl TokenBucket {
    /// Returns the bucket in the numbers of a script, alone or as a part of `rule`: gain of a
    /// microsecond, price of a token, burst, initial fill, the time for which a full key is kept,
    /// and the tokens that it keeps free.
    pub(crate) fn numbers(&self, rule: &impl Display) -> Result<[i64; 6], Error> {
        let (burst, initial) = (self.burst.get(), self.initial);
        let ScriptRate { gain, price } = ScriptRate::of(&self.rate);
        // One microsecond's gain more than there ever is.
        fitting(
            u128::from(burst.max(initial)) * price as u128 + gain as u128,
            rule,
        )?;
        let keep = if self.starts_full() {
            0
        } else if self.keep / MICRO < FOR_EVER {
            micros(self.keep, rule)?
        } else {
            FOR_EVER as i64
        };
        let [burst, initial, kept] = [burst, initial, self.kept_free()].map(|tokens| tokens as i64);
        Ok([gain, price, burst, initial, keep, kept])
    }

    /// Returns the span of `level` units of a `gain` a microsecond.
    pub(in crate::algorithm) fn span(&self, level: i64, gain: i64) -> Option<i64> {
        ScriptRate::of(&self.rate).span(level, gain)
    }

    /// Returns the level and the gain that a script keeps of a span.
    ///
    /// Within a microsecond the bucket is filled no further: rounded in favour of the limit.
    pub(in crate::algorithm) fn level(&self, span: i64) -> [i64; 2] {
        ScriptRate::of(&self.rate).level(span)
    }
}

impl Scripted for TokenBucket {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        let numbers = self.numbers(self)?;
        parts.push([&[Self::KIND], &numbers[..]].concat());
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<TokenBucketState> {
        let (at, level, gain, refunded) = match *only(parts)? {
            [Self::KIND, at, level, gain] => (at, level, gain, Refunded::NONE),
            [Self::KIND, at, level, gain, micros, until] => {
                let nanos = natural(micros)? % SUM * MICRO;
                (at, level, gain, Refunded::new(nanos, instant(until)?))
            }
            _ => return None,
        };
        let level = BucketLevel {
            written_at: instant(at)?,
            level: self.span(level, gain)?,
        };
        Some(TokenBucketState { level, refunded })
    }

    fn state_parts(&self, state: &TokenBucketState, parts: &mut Vec<Option<ScriptTuple>>) {
        let [level, gain] = self.level(state.level.level);
        let at = in_micros(state.level.written_at);
        let mut part = vec![Self::KIND, at, level, gain];
        let refunded = state.refunded;
        if !refunded.is_none() {
            part.push(count(refunded.nanos.div_ceil(MICRO) % SUM));
            part.push(in_micros(refunded.until));
        }
        parts.push(Some(part));
    }
}
