//! Where state lies: a key under a policy, fresh for each run.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
};

use crate::{algorithm::Algorithm, key::Key, policy::Policy};

/// A key under a policy, and what messages call it.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) policy: Policy,
    pub(super) key: Key,
}

impl Place {
    /// The rule as this key meets it.
    pub(super) fn own<R: Algorithm>(&self, rule: &R) -> R {
        rule.for_key(&|| self.key.digest())
            .unwrap_or_else(|| rule.clone())
    }
}

impl PartialEq for Place {
    /// As stores tell them apart: by the name of the policy, and the key.
    fn eq(&self, other: &Self) -> bool {
        (self.policy.name(), &self.key) == (other.policy.name(), &other.key)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A word that no other run has in its names: what a server still holds of an earlier run is another's.
pub(super) fn nonce() -> u64 {
    // The standard library's keys come from the operating system.
    RandomState::new().hash_one(0_u64)
}
