//! The two limits of a fleet: one hot key, and many keys.

use std::time::Duration;

use tollgate::{TokenBucket, store::LeaseConfig};

/// A bucket with leases, and what a fleet asks of it.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub name: &'static str,
    /// Per second and key.
    pub rate: u64,
    pub burst: u64,
    pub hold: Duration,
    pub keys: u64,
    /// The calls a second of all nodes.
    pub demand: u64,
}

impl Limit {
    pub fn rule(&self) -> TokenBucket {
        TokenBucket::per_second(self.rate).burst(self.burst)
    }

    pub fn config(&self) -> LeaseConfig {
        LeaseConfig::new().duration(self.hold)
    }

    /// The burst that the store has: less what is refilled during the hold, rounded up.
    pub fn held_burst(&self) -> u64 {
        let refilled = u128::from(self.rate) * self.hold.as_nanos();
        self.burst - refilled.div_ceil(1_000_000_000) as u64
    }

    /// Draws one of the keys. A few are asked for far more often than the others.
    pub fn key(&self, random: &mut support::Random) -> u64 {
        let draw = u128::from(random.below(1 << 32));
        ((draw * draw * draw * u128::from(self.keys)) >> 96) as u64
    }
}

/// The hot key has a demand of 1.2 times its rate. Of many keys the first ones are over their
/// limit, and most are far below it.
pub fn limits(keys: u64, demand: u64) -> [Limit; 2] {
    [
        Limit {
            name: "hot",
            rate: 2000,
            burst: 1200,
            hold: Duration::from_millis(200),
            keys: 1,
            demand: 2400,
        },
        Limit {
            name: "many",
            rate: 5,
            burst: 6,
            hold: Duration::from_millis(200),
            keys,
            demand,
        },
    ]
}
