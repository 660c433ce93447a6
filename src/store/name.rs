//! Names in a store of bytes.

use std::fmt::Write;

use crate::{key::Key, policy::Policy};

/// The version of names.
pub(super) const VERSION: u8 = 2;

/// Returns the name of a client's states: prefix, version, client and policy.
///
/// The client stands in braces, so that all its limits lie on one node of a cluster. It is a digest
/// of 128 bits, unless its key is labelled.
pub(super) fn key_name(prefix: &str, policy: &Policy, key: &Key) -> Box<[u8]> {
    // Exactly as long as the name of a digest: then nothing is moved.
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

/// Returns the name of a log beside the states of a client, from the name of these. No name of states is equal to it, as a colon follows their
/// client.
#[cfg(feature = "redis")]
pub(super) fn log_name(prefix: &str, states: &[u8], log: &str) -> Box<[u8]> {
    let begin = format!("{prefix}:{VERSION}:").len();
    let client = states.iter().skip(begin).position(|byte| *byte == b'}');
    let end = client.map_or(states.len(), |client| begin + client + 1);
    let (client, policy) = states.split_at(end);
    [client, b"/", log.as_bytes(), policy]
        .concat()
        .into_boxed_slice()
}

/// Returns the name of the counts of nodes that use a policy. No name of a client's states is equal to it.
pub(super) fn nodes_name(prefix: &str, policy: &Policy) -> Box<[u8]> {
    let name = format!("{prefix}:nodes:{}", policy.name());
    name.into_bytes().into_boxed_slice()
}
