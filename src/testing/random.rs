//! Numbers that come out the same for the same seed, to all who share them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::Random as Plain;

/// The crate's generator, drawn from by shared reference.
#[derive(Debug)]
pub(super) struct Random(AtomicU64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(super) fn next(&self) -> u64 {
        Plain::new(self.0.fetch_add(Plain::STEP, Ordering::Relaxed)).next()
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

    #[test]
    fn it_goes_on_as_the_plain_generator_does() {
        let (random, mut plain) = (Random::new(1_234_567), Plain::new(1_234_567));
        for _ in 0..100 {
            assert_eq!(random.next(), plain.next());
        }
    }

    #[test]
    fn it_stays_below() {
        let random = Random::new(1);
        let numbers: Vec<_> = (0..1000).map(|_| random.below(3)).collect();
        assert!((0..3).all(|n| numbers.contains(&n)) && numbers.iter().all(|n| *n < 3));
        assert_eq!(random.below(0), 0);
    }
}
