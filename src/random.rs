//! Pseudorandom numbers.

use std::hash::{BuildHasher, RandomState};
#[cfg(any(test, feature = "test-util"))]
use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
///
/// Neighbouring seeds give unrelated numbers. Not for secrets: one number determines all others.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The increment of the state for each number.
    pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number from 0 to `max` inclusive: the whole part of `fraction · (max + 1)`.
    ///
    /// The fraction has 128 bits, made of two numbers, the first in the upper half. The
    /// probabilities of the results differ by at most one part in 2⁶⁴, and every draw takes the
    /// same time.
    pub(crate) fn up_to(&mut self, max: u64) -> u64 {
        let count = u128::from(max) + 1;
        let (upper, lower) = (u128::from(self.next()), u128::from(self.next()));
        ((upper * count + ((lower * count) >> u64::BITS)) >> u64::BITS) as u64
    }
}

/// A [`Random`] that threads share.
#[cfg(any(test, feature = "test-util"))]
#[derive(Debug)]
pub(crate) struct SharedRandom(AtomicU64);

#[cfg(any(test, feature = "test-util"))]
impl SharedRandom {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(crate) fn next(&self) -> u64 {
        Random::new(self.0.fetch_add(Random::STEP, Ordering::Relaxed)).next()
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> u64::BITS) as u64
    }

    /// Returns `true` once in `times`.
    pub(crate) fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns an index of a list with `len` elements; 0 if it is empty.
    pub(crate) fn index(&self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

/// Returns a seed that differs for each call and in each process.
pub(crate) fn seed() -> u64 {
    // The standard library's keys come from the operating system.
    RandomState::new().hash_one(0_u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementation (Vigna, `splitmix64.c`) for the
    /// seed 1234567.
    #[test]
    fn it_is_splitmix() {
        let mut random = Random::new(1_234_567);
        let numbers = [(); 5].map(|()| random.next());
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    #[test]
    fn draws_cover_their_range() {
        let mut random = Random::new(1);
        let numbers: Vec<_> = (0..1000).map(|_| random.up_to(2)).collect();
        assert!((0..=2).all(|n| numbers.contains(&n)) && numbers.iter().all(|n| *n <= 2));
        assert_eq!(random.up_to(0), 0);
    }

    /// For the widest range, a draw is equal to the first of its two numbers.
    #[test]
    fn the_widest_range_is_no_exception() {
        let (mut random, mut draws) = (Random::new(7), Random::new(7));
        for _ in 0..100 {
            let number = random.next();
            random.next();
            assert_eq!(draws.up_to(u64::MAX), number);
        }
    }

    #[test]
    fn a_shared_one_draws_the_same_numbers() {
        let (shared, mut random) = (SharedRandom::new(1_234_567), Random::new(1_234_567));
        for _ in 0..100 {
            assert_eq!(shared.next(), random.next());
        }
    }

    #[test]
    fn a_shared_one_stays_below() {
        let random = SharedRandom::new(1);
        let numbers: Vec<_> = (0..1000).map(|_| random.below(3)).collect();
        assert!((0..3).all(|n| numbers.contains(&n)) && numbers.iter().all(|n| *n < 3));
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(seed(), seed());
    }
}
