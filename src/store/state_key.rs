//! The name of a state in a store of your own.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use crate::{algorithm::StateKind, key::Key, policy::Policy};

/// The name of a state: the policy's name, the client's key, and the [kind](crate::algorithm::Algorithm::state_kind) of the state.
///
/// [`Ask::state_key`](crate::store::Ask::state_key) and [`Settlement::state_key`](crate::store::Settlement::state_key) make it.
///
/// ```
/// use tollgate::{Cost, FixedWindow, Policy, TokenBucket, store::Ask};
///
/// let (api, bucket, window) = (Policy::new("api"), TokenBucket::per_second(10), FixedWindow::per_hour(100));
/// let key = Ask::new(&api, &bucket, "alice".into(), Cost::ONE).state_key();
/// assert!(key.is_of(&api, &"alice".into()));
///
/// // Rules of one kind share a state; rules of other kinds have a state of their own.
/// assert_eq!(key, Ask::new(&api, &TokenBucket::per_hour(7), "alice".into(), Cost::ONE).state_key());
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

    /// Returns the policy, of which only the name counts.
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

    /// Returns `true` if the state is one of this policy and key, whatever its kind: a reset removes it.
    pub fn is_of(&self, policy: &Policy, key: &Key) -> bool {
        self.key == *key && self.policy.name() == policy.name()
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
