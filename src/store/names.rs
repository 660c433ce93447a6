//! The names of states: what a store of your own finds them by, and the keys of remote stores.

#[cfg(feature = "tokio")]
use std::fmt::Write;
use std::{
    fmt,
    hash::{Hash, Hasher},
};

use crate::{algorithm::StateKind, key::Key, policy::Policy};

/// The name of a state: the policy's name, the client's key, and the
/// [kind](crate::algorithm::Algorithm::state_kind) of the state.
///
/// [`Ask::state_key`](crate::store::driver::Ask::state_key) and
/// [`Settlement::state_key`](crate::store::driver::Settlement::state_key) make it.
///
/// ```
/// use tollgate::{Cost, FixedWindow, Policy, TokenBucket, store::driver::Ask};
///
/// let api = Policy::new("api");
/// let (bucket, window) = (TokenBucket::per_second(10), FixedWindow::per_hour(100));
/// let key = Ask::new(&api, &bucket, "alice".into(), Cost::ONE).state_key();
/// assert!(key.is_of(&api, &"alice".into()));
///
/// // Rules of one kind share a state; rules of other kinds have a state of their own.
/// let slower = TokenBucket::per_hour(7);
/// assert_eq!(key, Ask::new(&api, &slower, "alice".into(), Cost::ONE).state_key());
/// assert_ne!(key, Ask::new(&api, &window, "alice".into(), Cost::ONE).state_key());
/// ```
#[derive(Clone)]
pub struct StateKey {
    policy: Policy,
    key: Key,
    kind: StateKind,
}

impl StateKey {
    pub(super) fn new(policy: &Policy, key: &Key, kind: StateKind) -> Self {
        Self {
            policy: policy.clone(),
            key: *key,
            kind,
        }
    }

    /// Returns the policy. Only its [stored name](Policy::stored_name) identifies the state.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the key of the client.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the kind of the state.
    pub fn kind(&self) -> StateKind {
        self.kind
    }

    /// Returns `true` if the state belongs to this policy and key, whatever its kind. A reset
    /// removes all of these.
    pub fn is_of(&self, policy: &Policy, key: &Key) -> bool {
        self.key == *key && self.policy.stored_name() == policy.stored_name()
    }
}

impl PartialEq for StateKey {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.is_of(&other.policy, &other.key)
    }
}

impl Eq for StateKey {}

impl Hash for StateKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.policy.digest().hash(hasher);
        self.key.hash(hasher);
        self.kind.hash(hasher);
    }
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateKey")
            .field("policy", &self.policy)
            .field("key", &self.key)
            .field("kind", &self.kind)
            .finish()
    }
}

/// Version of the names.
#[cfg(feature = "tokio")]
const VERSION: u8 = 2;

/// Returns the name of a client's states: prefix, version, client and policy.
///
/// The client stands in braces, so that all its limits lie on one node of a cluster. It is a digest
/// of 128 bits, unless its key is labelled.
#[cfg(feature = "tokio")]
pub(super) fn key_name(prefix: &str, policy: &Policy, key: &Key) -> Box<[u8]> {
    // Exactly the length of a name with a digest, so nothing is reallocated.
    let mut name = String::with_capacity(prefix.len() + policy.stored_name().len() + 38);
    // Writing to memory cannot fail.
    let _ = write!(
        name,
        "{prefix}:{VERSION}:{{{}}}:{}",
        key.stored(),
        policy.stored_name()
    );
    name.into_bytes().into_boxed_slice()
}

/// Returns the name of a log beside the states of a client, from the name of the states. It differs
/// from every name of states, because there a colon follows the client.
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

/// Returns the name of the counts of nodes that use a policy. It differs from every name of a
/// client's states.
#[cfg(feature = "tokio")]
pub(super) fn nodes_name(prefix: &str, policy: &Policy) -> Box<[u8]> {
    let name = format!("{prefix}:nodes:{}", policy.stored_name());
    name.into_bytes().into_boxed_slice()
}
