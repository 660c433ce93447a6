//! The part of one limit in a request, for observers.

use crate::{decision::Decision, key::Key, policy::Policy};

/// One limit's part in a request: its policy, the key, and the decision.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::observe::{Event, Observer};
///
/// /// Counts the units that clients were refused.
/// #[derive(Default)]
/// struct Units(AtomicU64);
///
/// impl Observer for Units {
///     fn refused(&self, event: &Event<'_>) {
///         if event.policy().name() == "uploads" {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    policy: &'a Policy,
    key: &'a Key,
    decision: &'a Decision,
}

impl<'a> Event<'a> {
    /// Creates the event of a decision about a key, for tests of observers.
    #[inline]
    pub const fn new(policy: &'a Policy, key: &'a Key, decision: &'a Decision) -> Self {
        Self {
            policy,
            key,
            decision,
        }
    }

    /// Returns the policy of the limit.
    #[inline]
    pub const fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Returns the key that the limit counts by.
    #[inline]
    pub const fn key(&self) -> &'a Key {
        self.key
    }

    /// Returns the decision.
    #[inline]
    pub const fn decision(&self) -> &'a Decision {
        self.decision
    }
}
