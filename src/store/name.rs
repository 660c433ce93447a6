//! What a client's state is called in a store of bytes.

use std::io::Write;

use crate::{key::Key, outcome::Policy};

/// The version of names.
pub(super) const VERSION: u8 = 1;

/// The name under which the state of a client lies: prefix, version, client and policy.
///
/// The client stands in braces, so that all its limits lie on one node of a cluster. It is a digest
/// of 128 bits, unless its key is labelled.
pub(super) fn key_name(prefix: &str, policy: &Policy, key: &Key) -> Box<[u8]> {
    let mut name = Vec::with_capacity(prefix.len() + 38 + policy.name().len());
    let (stored, policy) = (key.stored(), policy.name());
    // Writing to memory cannot fail.
    let _ = write!(name, "{prefix}:{VERSION}:{{{stored}}}:{policy}");
    name.into_boxed_slice()
}
