//! Numbers that come out the same for the same seed.

use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
pub(super) struct Random(AtomicU64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(super) fn next(&self) -> u64 {
        let mut word = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Below `end`; 0 where that is 0.
    pub(super) fn below(&self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> u64::BITS) as u64
    }

    /// True once in `times`.
    pub(super) fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// An index of a list that is not empty.
    pub(super) fn index(&self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementation (Vigna, `splitmix64.c`) for the seed 1234567.
    #[test]
    fn it_is_splitmix() {
        let random = Random::new(1_234_567);
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
    fn it_stays_below() {
        let random = Random::new(1);
        let numbers: Vec<_> = (0..1000).map(|_| random.below(3)).collect();
        assert!((0..3).all(|n| numbers.contains(&n)) && numbers.iter().all(|n| *n < 3));
        assert_eq!(random.below(0), 0);
    }
}
