//! Keys of stores that hold bytes.

use std::fmt::Write;

use crate::{key::Key, policy::Policy};

/// Version of the key layout.
pub(super) const VERSION: u8 = 2;

/// Returns the store's key for a client and a policy: `prefix:version:{client}:policy`.
///
/// The client stands in braces, so that a cluster keeps all states of a client on one node. It is a digest of 128 bits, unless its
/// key is labelled.
pub(super) fn key_name(prefix: &str, policy: &Policy, key: &Key) -> Box<[u8]> {
    // Exactly the length with a digest, so nothing is reallocated.
    let mut name = String::with_capacity(prefix.len() + policy.name().len() + 38);
    // Writing to memory cannot fail.
    let _ = write!(
        name,
        "{prefix}:{VERSION}:{{{}}}:{}",
        key.stored(),
        policy.name()
    );
    name.into_bytes().into_boxed_slice()
}
