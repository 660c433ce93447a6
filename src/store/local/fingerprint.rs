//! What is kept of a key: 64 bits that nobody outside of this process can foresee.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use foldhash::{SharedSeed, quality::FoldHasher};

use crate::{algorithm::StateKind, key::Key, policy::Policy};

/// The seed of a store's fingerprints.
///
/// The hash is fast and well mixed, but no message authentication code: what protects it is that its
/// seeds (this one of 64 bits, and four words of the process) are secret and that no answer shows a bit
/// of it. A client can neither aim at another one's key nor fill one shard.
#[derive(Clone, Copy)]
pub(super) struct Fingerprinter {
    own: u64,
    process: &'static SharedSeed,
}

impl Fingerprinter {
    pub(super) fn random() -> Self {
        // The standard library's keys come from the operating system.
        let own = RandomState::new().hash_one(0_u64);
        Self {
            own,
            process: SharedSeed::global_random(),
        }
    }

    #[inline]
    pub(super) fn fingerprint(self, policy: &Policy, key: &Key, kind: StateKind) -> u64 {
        // Of a typed rule the kind is a constant.
        let seed = self.own ^ policy.digest() ^ kind.as_u64();
        let mut hasher = FoldHasher::with_seed(seed, self.process);
        key.hash(&mut hasher);
        // No key's fingerprint is 0, which marks a slot that is nobody's.
        hasher.finish().max(1)
    }
}
