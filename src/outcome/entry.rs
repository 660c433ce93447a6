//! The decision of one limit.

use super::taken::Taken;
use crate::{decision::Decision, key::Key, policy::Policy, store::StoreId};

/// Tells apart the states that limits charge: a hash of the store, the policy and the key. 0 if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Place {
    #[inline]
    pub(crate) fn new(store: Option<StoreId>, policy: &Policy, key: &Key) -> Self {
        let Some(store) = store else {
            return Self::default();
        };
        // Found by chance only. A client that finds two keys of one place makes a wrong line in the log.
        Self(key.quick_hash() ^ policy.digest().rotate_left(32) ^ store.number())
    }

    pub(crate) fn is_known(self) -> bool {
        self.0 != 0
    }
}

/// The decision of one limit.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) policy: Policy,
    pub(super) decision: Decision,
    /// Set once the charge was taken out of the outcome.
    pub(super) taken: Taken,
    pub(super) place: Place,
}

impl Entry {
    #[inline]
    pub(super) fn new(policy: Policy, decision: Decision, place: Place) -> Self {
        Self {
            policy,
            decision: decision.shared(),
            taken: Taken::default(),
            place,
        }
    }
}
