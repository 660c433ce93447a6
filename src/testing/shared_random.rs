//! A pseudorandom generator that threads share.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::Random;

/// The generator of the crate, usable through a shared reference.
#[derive(Debug)]
pub(super) struct SharedRandom(AtomicU64);

impl SharedRandom {
    pub(super) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(super) fn next(&self) -> u64 {
        Random::new(self.0.fetch_add(Random::STEP, Ordering::Relaxed)).next()
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub(super) fn below(&self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> u64::BITS) as u64
    }

    /// Returns `true` once in `times`.
    pub(super) fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns an index of a list with `len` elements; 0 if it is empty.
    pub(super) fn index(&self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_equals_the_generator_of_the_crate() {
        let (shared, mut random) = (SharedRandom::new(1_234_567), Random::new(1_234_567));
        for _ in 0..100 {
            assert_eq!(shared.next(), random.next());
        }
    }

    #[test]
    fn it_stays_below() {
        let random = SharedRandom::new(1);
        let numbers: Vec<_> = (0..1000).map(|_| random.below(3)).collect();
        assert!((0..3).all(|n| numbers.contains(&n)) && numbers.iter().all(|n| *n < 3));
        assert_eq!(random.below(0), 0);
    }
}
