//! What the benchmarks share: contenders that take turns, threads that start together, and an
//! allocator that counts.
#![allow(
    dead_code,
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    reason = "each benchmark uses a part; benchmarks read clocks and print ratios"
)]

pub(crate) mod counting;
pub(crate) mod floor;
pub(crate) mod race;
pub(crate) mod timing;

/// The same numbers in every run: SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}
