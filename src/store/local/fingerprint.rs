//! Fingerprints of keys: 64 bits that cannot be predicted outside of this process.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use foldhash::{SharedSeed, quality::FoldHasher};

use crate::{algorithm::StateKind, key::Key, policy::Policy};

/// Hashes keys under the seed of a store.
///
/// The hash is fast and well mixed, but it is not a message authentication code. Its seeds (this one of 64 bits, and four words of
/// the process) are secret, and no decision reveals a bit of a hash. So a client can neither aim at the key of another client nor fill
/// one shard.
#[derive(Clone, Copy)]
pub(in crate::store) struct Fingerprinter {
    own: u64,
    process: &'static SharedSeed,
}

impl Fingerprinter {
    pub(in crate::store) fn random() -> Self {
        // The standard library's keys come from the operating system.
        let own = RandomState::new().hash_one(0_u64);
        Self {
            own,
            process: SharedSeed::global_random(),
        }
    }

    /// The same in each process: for simulations and tests, where no client aims at the key of another.
    #[cfg(feature = "tokio")]
    pub(in crate::store) fn seeded(seed: u64) -> Self {
        Self {
            own: seed,
            process: SharedSeed::global_fixed(),
        }
    }

    #[inline]
    pub(in crate::store) fn fingerprint(self, policy: &Policy, key: &Key, kind: StateKind) -> u64 {
        // A typed rule's kind is a constant.
        let seed = self.own ^ policy.digest() ^ kind.as_u64();
        let mut hasher = FoldHasher::with_seed(seed, self.process);
        key.hash(&mut hasher);
        // No fingerprint is 0, which marks a free slot.
        hasher.finish().max(1)
    }
}
