//! Keys that are likely used up, so that their calls are not added only to be taken back.

use std::{
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering},
};

use foldhash::quality::RandomState;

use super::counter_set::CounterSet;
use crate::{
    decision::{Cost, Decision},
    time::Timestamp,
};

/// The most keys that are remembered at once, of 24 bytes each.
const SLOTS: usize = 8192;

/// For a bounded number of keys that are used up: the lowest cost that was refused, and until when.
///
/// Hints only choose whether to read before adding, and decide nothing. So a slot is written without a lock, two keys may evict
/// each other, and a torn slot costs an operation.
pub(super) struct Hints {
    slots: Box<[Slot]>,
    hasher: RandomState,
}

// Relaxed throughout, for the same reason.
#[derive(Default)]
struct Slot {
    hash: AtomicU64,
    cost: AtomicU64,
    until: AtomicU64,
}

impl Hints {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            hasher: RandomState::default(),
        }
    }

    pub(super) fn hash(&self, place: &CounterSet) -> u64 {
        self.hasher.hash_one(place.stem())
    }

    fn slot(&self, hash: u64) -> &Slot {
        &self.slots[hash as usize % SLOTS]
    }

    /// Returns `true` if a cost is likely to be refused now.
    pub(super) fn doubts(&self, hash: u64, cost: Cost, now: Timestamp) -> bool {
        let slot = self.slot(hash);
        slot.hash.load(Ordering::Relaxed) == hash
            && slot.cost.load(Ordering::Relaxed) <= cost.get()
            && slot.until.load(Ordering::Relaxed) > now.as_nanos()
    }

    /// Learns from a decision about a cost.
    pub(super) fn learn(&self, hash: u64, cost: Cost, decision: &Decision) {
        let remaining = decision.remaining().unwrap_or(0);
        let wait = if !decision.is_admitted() {
            decision.retry_after()
        } else if remaining < cost.get() {
            Some(decision.more_after())
        } else {
            None
        };
        let is_known = self.doubts(hash, cost, decision.at());
        match wait {
            // A hint about a lower cost says more.
            Some(_) if is_known => {}
            Some(wait) => {
                let until = decision.at().saturating_add(wait);
                let slot = self.slot(hash);
                slot.hash.store(hash, Ordering::Relaxed);
                slot.cost.store(cost.get(), Ordering::Relaxed);
                slot.until.store(until.as_nanos(), Ordering::Relaxed);
            }
            None if is_known => self.forget(hash),
            None => {}
        }
    }

    /// Forgets a key: something came back.
    pub(super) fn forget(&self, hash: u64) {
        let slot = self.slot(hash);
        if slot.hash.load(Ordering::Relaxed) == hash {
            slot.until.store(0, Ordering::Relaxed);
        }
    }
}
