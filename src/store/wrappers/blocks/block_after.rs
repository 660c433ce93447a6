//! Blocks of keys that are refused again and again.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::BlockCounters;
use crate::{
    algorithm::{Block, SlidingLog},
    decision::{Cost, Decision},
    error::Error,
    key::Key,
    policy::Policy,
    quota::Quota,
    store::{Ask, Local, LocalBuilder},
    time::Clock,
};

/// Maximum number of refusals after which a key is blocked: each is remembered for the period.
const MOST_REFUSALS: u64 = 1000;

/// Settings of blocks after refusals.
#[derive(Clone, Copy, Debug)]
pub(super) struct AfterRefusals {
    rule: SlidingLog,
    pub(super) block: Block,
}

impl AfterRefusals {
    pub(super) fn new(refusals: u64, period: Duration, duration: Duration) -> Result<Self, Error> {
        let block = Block::try_new(duration)?.of_new_key();
        if !(1..=MOST_REFUSALS).contains(&refusals) {
            return Err(Error::new(format!(
                "a block after {refusals} refusals: expected 1 to {MOST_REFUSALS}, each of which is remembered; choose a number \
                 between them"
            )));
        }
        let quota = Quota::try_new(refusals, period)?;
        let rule = SlidingLog::new(quota);
        Ok(Self { rule, block })
    }
}

/// Maximum number of keys whose refusals are counted at the same time.
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

    /// Counts a refusal. Returns the key if it was refused often enough and no other call is
    /// blocking it.
    pub(super) fn refused(
        self: &Arc<Self>,
        policy: &Policy,
        key: &Key,
        counters: &BlockCounters,
    ) -> Option<Offender<C>> {
        let is_enough = self.count(policy, key, counters).remaining() == Some(0);
        if !is_enough || !self.in_flight().insert((policy.digest(), *key)) {
            return None;
        }
        Some(Offender::new(Arc::clone(self), policy.clone(), *key))
    }

    /// Counts a refusal that was decided elsewhere. Returns `true` once: for the one after which
    /// the key is to be blocked.
    ///
    /// If that fails, refusals that reach the store try again, and not those that are decided
    /// elsewhere.
    pub(super) fn is_last(&self, policy: &Policy, key: &Key, counters: &BlockCounters) -> bool {
        let count = self.count(policy, key, counters);
        count.is_admitted() && count.remaining() == Some(0)
    }

    /// Adds a refusal to the log of its key. The result is undecided, without `remaining`, if there
    /// is no room for the key.
    fn count(&self, policy: &Policy, key: &Key, counters: &BlockCounters) -> Decision {
        let ask = Ask::new(policy, &self.settings.rule, *key, Cost::ONE);
        let count = self.refusals.decide(&ask);
        if count.is_undecided() {
            counters.uncounted.add(1);
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
    fn release(&self, policy: &Policy, key: &Key) {
        self.in_flight().remove(&(policy.digest(), *key));
    }

    fn in_flight(&self) -> MutexGuard<'_, HashSet<(u64, Key)>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that was refused often enough. Only one call at a time has it.
pub(super) struct Offender<C> {
    after: Arc<BlockAfter<C>>,
    pub(super) policy: Policy,
    pub(super) key: Key,
}

impl<C> Offender<C> {
    /// Creates the key of the call that blocks it.
    fn new(after: Arc<BlockAfter<C>>, policy: Policy, key: Key) -> Self {
        Self { after, policy, key }
    }
}

impl<C: Clock> Offender<C> {
    /// Forgets the refusals, because the key is blocked.
    pub(super) fn forget_refusals(&self) {
        self.after.forget(&self.policy, &self.key);
    }
}

impl<C> Drop for Offender<C> {
    fn drop(&mut self) {
        self.after.release(&self.policy, &self.key);
    }
}
