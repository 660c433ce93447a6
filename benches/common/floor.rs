//! The floor: a bare open table of fingerprints and instants that only decides.
//!
//! It supports one rule and one kind of key, and answers yes or no. It never forgets, and two
//! threads that bring the same new key at once may both insert it.

use std::{
    hash::Hasher,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use foldhash::{SharedSeed, fast::FoldHasher};
use tollgate::time::{Clock, SystemClock};

/// Two sets of eight to a key, as the store's own table has.
#[derive(Default)]
#[repr(align(128))]
struct Set {
    keys: [AtomicU64; 8],
    empty_at: [AtomicU64; 8],
}

pub(crate) struct Floor {
    sets: Vec<Set>,
    clock: SystemClock,
    interval: u64,
    full: u64,
}

impl Floor {
    /// Room for `keys`; one token per `interval` nanoseconds, and `burst` at once.
    pub(crate) fn new(keys: usize, interval: u64, burst: u64) -> Self {
        Self {
            sets: (0..(keys * 5 / 4).div_ceil(8).max(2))
                .map(|_| Set::default())
                .collect(),
            clock: SystemClock::new(),
            interval,
            full: interval * burst,
        }
    }

    #[inline]
    pub(crate) fn decide(&self, key: impl FnOnce(&mut FoldHasher<'_>)) -> bool {
        let mut hasher = FoldHasher::with_seed(7, SharedSeed::global_fixed());
        key(&mut hasher);
        let key = hasher.finish();
        let Some(empty_at) = self.find(key) else {
            return self.insert(key);
        };
        let now = self.clock.now().as_nanos();
        let mut at = empty_at.load(Relaxed);
        loop {
            let next = at.max(now - self.full) + self.interval;
            if next > now {
                return false;
            }
            match empty_at.compare_exchange(at, next, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(newer) => at = newer,
            }
        }
    }

    #[inline]
    fn homes(&self, key: u64) -> [&Set; 2] {
        [key & u64::from(u32::MAX), key >> 32]
            .map(|half| &self.sets[((half * self.sets.len() as u64) >> 32) as usize])
    }

    #[inline]
    fn find(&self, key: u64) -> Option<&AtomicU64> {
        self.homes(key).into_iter().find_map(|set| {
            let mut found = 8;
            for way in (0..8).rev() {
                found = if set.keys[way].load(Relaxed) == key {
                    way
                } else {
                    found
                };
            }
            set.empty_at.get(found)
        })
    }

    #[cold]
    fn insert(&self, key: u64) -> bool {
        let homes = self.homes(key);
        let free = |set: &&Set| set.keys.iter().filter(|key| key.load(Relaxed) == 0).count();
        let set = if free(&homes[0]) > 2 || free(&homes[0]) >= free(&homes[1]) {
            homes[0]
        } else {
            homes[1]
        };
        let Some(way) = (0..8).find(|way| set.keys[*way].load(Relaxed) == 0) else {
            // Two keys in a thousand: it has no place for them, and says yes.
            return true;
        };
        let at = self.clock.now().as_nanos() - self.full + self.interval;
        set.empty_at[way].store(at, Relaxed);
        set.keys[way].store(key, Relaxed);
        true
    }
}
