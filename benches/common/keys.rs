//! Keys that every contender takes, and the order in which they are visited.

use std::{
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr},
};

use rate_net::RateLimiter;
use support::Random;
use tollgate::key::Key;

/// A key that all contenders take, each in its own way.
pub(crate) trait BenchKey: Hash + Eq + Clone + Send + Sync {
    fn ours(&self) -> Key;
    fn rate_net(&self, limiter: &RateLimiter) -> bool;
    fn floor(&self, hasher: &mut impl Hasher);
}

impl BenchKey for IpAddr {
    fn ours(&self) -> Key {
        (*self).into()
    }

    fn rate_net(&self, limiter: &RateLimiter) -> bool {
        limiter.check(*self).is_allow()
    }

    fn floor(&self, hasher: &mut impl Hasher) {
        match self {
            Self::V4(address) => hasher.write_u32(address.to_bits()),
            Self::V6(address) => hasher.write_u128(address.to_bits()),
        }
    }
}

impl BenchKey for String {
    fn ours(&self) -> Key {
        self.as_str().into()
    }

    fn rate_net(&self, limiter: &RateLimiter) -> bool {
        limiter.check_bytes(self).is_allow()
    }

    fn floor(&self, hasher: &mut impl Hasher) {
        hasher.write(self.as_bytes());
    }
}

/// All keys of a race once, and the keys in the order of their visits.
///
/// Visited keys are adjacent in memory, because a server has just read the key of its request.
pub(crate) struct Keys<K> {
    pub(crate) all: Vec<K>,
    pub(crate) visits: Vec<K>,
}

impl<K: Clone> Keys<K> {
    pub(crate) fn new(all: Vec<K>, visits: &[u32]) -> Self {
        let visits = visits.iter().map(|n| all[*n as usize].clone()).collect();
        Self { all, visits }
    }
}

/// Draws visits of `keys` keys: key k in proportion to (k + 1)^-0.99.
pub(crate) fn zipf(keys: usize, visits: usize) -> Vec<u32> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        })
        .collect();
    let mut random = Random::new(5);
    let mut visit = || {
        let drawn = random.next_u64() as f64 / u64::MAX as f64 * sum;
        sums.partition_point(|sum| *sum < drawn).min(keys - 1) as u32
    };
    (0..visits).map(|_| visit()).collect()
}

/// Addresses from 10.0.0.0 on, shuffled.
pub(crate) fn addresses(count: usize) -> Vec<IpAddr> {
    let mut keys: Vec<IpAddr> = (0..count as u32)
        .map(|n| Ipv4Addr::from_bits(0x0a00_0000 + n).into())
        .collect();
    Random::new(2).shuffle(&mut keys);
    keys
}

/// Strings of 16 to 40 characters, 24 in most.
pub(crate) fn texts(count: usize) -> Vec<String> {
    let width = |n| [13, 13, 13, 5, 29][n % 5];
    (0..count)
        .map(|n| format!("client-key-{n:0width$x}", width = width(n)))
        .collect()
}
