//! Blocks of keys that are refused again and again.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{after_refusals::AfterRefusals, counters::Counters, offender::Offender};
use crate::{
    algorithm::SlidingLog,
    decision::{Cost, Decision},
    key::Key,
    policy::Policy,
    store::{Ask, Local, LocalBuilder},
    time::Clock,
};

/// The most keys whose refusals are counted at the same time.
const KEYS: usize = 16_384;

/// Counts the refusals of keys in this process.
pub(super) struct BlockAfter<C> {
    pub(super) settings: AfterRefusals,
    /// A log of the refusals of each key.
    refusals: Local<SlidingLog, C>,
    /// The keys that are being blocked, by the digest of the policy.
    in_flight: Mutex<HashSet<(u64, Key)>>,
}

impl<C: Clock> BlockAfter<C> {
    pub(super) fn new(settings: AfterRefusals, clock: C) -> Self {
        Self {
            settings,
            refusals: LocalBuilder::new().capacity(KEYS).clock(clock).build(),
            in_flight: Mutex::default(),
        }
    }

    /// Counts a refusal. Returns the key if it was refused often enough and nobody else is blocking it.
    pub(super) fn refused(
        self: &Arc<Self>,
        policy: &Policy,
        key: &Key,
        counters: &Counters,
    ) -> Option<Offender<C>> {
        let is_enough = self.count(policy, key, counters).remaining() == Some(0);
        if !is_enough || !self.in_flight().insert((policy.digest(), *key)) {
            return None;
        }
        Some(Offender::new(Arc::clone(self), policy.clone(), *key))
    }

    /// Counts a refusal that was decided elsewhere. Returns `true` once: for the one after which the key is to be blocked.
    ///
    /// If that fails, refusals that reach the store try again, and not those that are decided elsewhere.
    pub(super) fn is_last(&self, policy: &Policy, key: &Key, counters: &Counters) -> bool {
        let count = self.count(policy, key, counters);
        count.is_admitted() && count.remaining() == Some(0)
    }

    /// Adds a refusal to the log of its key. Undecided, and so without a number that remains, if there is no room for the key.
    fn count(&self, policy: &Policy, key: &Key, counters: &Counters) -> Decision {
        let ask = Ask::new(policy, &self.settings.rule, *key, Cost::ONE);
        let count = self.refusals.decide(&ask);
        if count.is_undecided() {
            counters.count_uncounted();
        }
        count
    }

    /// Forgets the refusals of a key.
    pub(super) fn forget(&self, policy: &Policy, key: &Key) {
        self.refusals.reset(policy, key);
    }

    /// Returns the number of keys whose refusals are remembered.
    pub(super) fn len(&self) -> usize {
        self.refusals.len()
    }
}

impl<C> BlockAfter<C> {
    /// Lets another call block a key.
    pub(super) fn release(&self, policy: &Policy, key: &Key) {
        self.in_flight().remove(&(policy.digest(), *key));
    }

    fn in_flight(&self) -> MutexGuard<'_, HashSet<(u64, Key)>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
