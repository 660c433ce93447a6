//! Seeded random numbers, equal in every run, and how many random cases a test tries.

use std::env;

/// SplitMix64, written independently of the generator in the crate.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Neighbouring seeds give unrelated numbers.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number from 0 to below `end`, which is at least 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// Returns `true` once in `times` on average, and never for 0.
    pub fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    /// Chooses an item of a non-empty list.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Returns the number of random timelines of the conformance suite for a store that should keep all
/// laws: usually as many as a suite makes by itself.
pub fn timelines() -> u64 {
    cases(32).max(4)
}

/// Returns a number of random cases: `usual`, or in proportion less or more if `PROPTEST_CASES` is
/// set, which proptest reads too; its usual number is 256.
///
/// # Panics
///
/// If the variable is not a number.
pub fn cases(usual: u64) -> u64 {
    env::var("PROPTEST_CASES").map_or(usual, |cases| {
        let cases: u64 = cases
            .parse()
            .expect("PROPTEST_CASES: expected a number of cases, such as 256");
        (usual * cases / 256).max(1)
    })
}
