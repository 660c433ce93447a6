//! The subject of a check: a key under a policy, new for each run.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
};

use crate::{algorithm::Algorithm, key::Key, policy::Policy};

/// A key under a policy, with a name for messages.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) policy: Policy,
    pub(super) key: Key,
}

impl Subject {
    /// Returns the rule of this key.
    pub(super) fn own<R: Algorithm>(&self, rule: &R) -> R {
        rule.for_key(&|| self.key.digest())
            .unwrap_or_else(|| rule.clone())
    }
}

impl PartialEq for Subject {
    /// Compares the name of the policy and the key, as stores do.
    fn eq(&self, other: &Self) -> bool {
        (self.policy.name(), &self.key) == (other.policy.name(), &other.key)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Returns a random number for the names of a run, so that states of earlier runs on a server do not matter.
pub(super) fn nonce() -> u64 {
    // The standard library's keys come from the operating system.
    RandomState::new().hash_one(0_u64)
}
