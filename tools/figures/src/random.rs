//! Seeded random numbers.

/// SplitMix64. Equal seeds give equal numbers in each run.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// A part of a whole, in millionths.
pub type Millionths = u32;

pub(crate) const WHOLE: Millionths = 1_000_000;

impl Random {
    /// Creates the generator of one purpose. Purposes with one seed have unrelated numbers.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in purpose.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut random = Self(seed ^ hash);
        random.0 = random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number from 0 to below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(end);
        (product >> u64::BITS) as u64
    }

    pub(crate) fn happens(&mut self, part: Millionths) -> bool {
        part > 0 && self.below(WHOLE.into()) < part.into()
    }

    /// Returns a number above 0 and at most 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an exponentially distributed time, in nanoseconds, at least 1.
    pub(crate) fn exponential(&mut self, mean: f64) -> u64 {
        (-libm::log(self.fraction()) * mean) as u64 + 1
    }

    /// Returns a number of the standard normal distribution, by the method of Box and Muller.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.fraction()));
        radius * libm::cos(std::f64::consts::TAU * self.fraction())
    }
}
