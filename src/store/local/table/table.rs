//! The table: its fields, and deciding about keys that it contains.

use super::{
    Claim, Word,
    packed_kinds::PackedKinds,
    sets::{Sets, WAYS},
    slot::{Seen, TableSlot},
};
use crate::{
    algorithm::{
        Metering,
        packed::{Meter, PackedKind, PackedState, StoreTime},
    },
    decision::{Cost, Decision},
    sync::{AtomicUsize, yield_now},
    time::Timestamp,
};

/// States of one word, by key.
pub(in crate::store::local) struct Table {
    pub(super) sets: Sets,
    pub(super) packed_kinds: PackedKinds,
    /// The set at which the next sweep begins.
    pub(super) hand: AtomicUsize,
}

/// How often a known key is tried without a lock, before the lock is waited for.
const LOCK_FREE_ATTEMPTS: usize = 16;

impl Table {
    /// A table in which so many keys fill four slots of five, at least ten.
    ///
    /// # Panics
    ///
    /// When there is no memory for it.
    pub(in crate::store::local) fn new(keys: usize) -> Self {
        let sets = keys.div_ceil(4).saturating_mul(5).div_ceil(WAYS);
        let made = u32::try_from(sets).ok().and_then(Sets::new);
        let Some(sets) = made else {
            panic!(
                "no memory for a local store of {keys} keys, about {sets} · 136 bytes: \
                 expected a capacity that this machine has room for"
            )
        };
        Self {
            sets,
            packed_kinds: PackedKinds::new(),
            hand: AtomicUsize::new(0),
        }
    }

    /// Decides about a key that is known, without a lock.
    ///
    /// `None` when the key is not there, or not to be had without one.
    // Always: most callers look at a part of the decision, and need not make the rest.
    #[inline(always)]
    pub(in crate::store::local) fn step<M: Metering>(
        &self,
        key: u64,
        meter: &M,
        now: impl FnOnce() -> StoreTime,
        cost: Cost,
    ) -> Option<Decision> {
        let slot = self.find(key)?;
        // Read while the slot's memory is on its way.
        let now = now();
        if now.packed().get() > Word::LAST - M::AHEAD {
            return None;
        }
        for _ in 0..LOCK_FREE_ATTEMPTS {
            let word = slot.read(key)?;
            let packed_kind = self.packed_kinds.get(word.packed_kind());
            if !meter.reads(packed_kind) {
                return None;
            }
            let (packed, decision) = meter.step_packed(word.packed(), now, cost);
            let done = match packed {
                None => slot.is_still(word),
                Some(packed) => {
                    if !meter.keeps_to(packed_kind) {
                        return None;
                    }
                    // No further ahead than packed states of its kind may be, so it fits.
                    slot.advance(word, word.at(packed))
                }
            };
            if done {
                return Some(decision);
            }
        }
        None
    }

    #[inline(always)]
    fn find(&self, key: u64) -> Option<TableSlot<'_>> {
        let home = self.sets.home(key);
        match self.sets.set(home.first).find(key) {
            Some(slot) => Some(slot),
            None => self.sets.set(home.second).find(key),
        }
    }

    /// The word that remembers a key. Its shard is locked.
    pub(in crate::store::local) fn look(&self, key: u64) -> Option<Word> {
        let slot = self.find(key)?;
        loop {
            match slot.see() {
                Some(seen) => return (seen.key == key).then_some(seen.word),
                None if slot.key() != key => return None,
                None => yield_now(),
            }
        }
    }

    /// Holds the slot of a key. Its shard is locked.
    pub(in crate::store::local) fn claim(&self, key: u64) -> Option<Claim<'_>> {
        // As where no rule has a meter.
        if self.packed_kinds.is_untouched() {
            return None;
        }
        let slot = self.find(key)?;
        loop {
            match slot.see() {
                Some(seen) if seen.key != key => return None,
                Some(seen) => {
                    if let Some(claim) = slot.claim(seen) {
                        return Some(claim);
                    }
                }
                None if slot.key() != key => return None,
                // Another thread pushes the key out: a few stores.
                None => yield_now(),
            }
        }
    }

    /// Whether the packed states of a rule have a kind here.
    pub(in crate::store::local) fn has_kind(&self, meter: Meter<'_>) -> bool {
        self.packed_kinds.number(meter.packed_kind()).is_some()
    }

    /// A word of a kind; `None` for a packed state that does not fit, and where there is no such kind here.
    pub(in crate::store::local) fn word(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
    ) -> Option<Word> {
        Word::new(packed, self.packed_kinds.number(packed_kind)?)
    }

    /// Until when a word is remembered for the longest rule that has charged it. Only what buckets have charged matters
    /// to some rules for longer than to others.
    pub(in crate::store::local) fn protected_until(&self, word: Word, now: StoreTime) -> Timestamp {
        if self.packed_kind(word).is_bucket() {
            now.instant_of(self.end(word))
        } else {
            Timestamp::default()
        }
    }

    /// What a word's packed state says.
    pub(in crate::store::local) fn packed_kind(&self, word: Word) -> PackedKind {
        self.packed_kinds.get(word.packed_kind())
    }

    /// When a word's packed state says no more than none, as a packed state.
    pub(super) fn end(&self, word: Word) -> u64 {
        word.packed()
            .get()
            .saturating_add(self.packed_kind(word).lasts())
    }

    /// Whether a packed state that was pushed out could still matter, whichever kind it had.
    pub(in crate::store::local) fn can_matter(&self, packed: PackedState, now: StoreTime) -> bool {
        packed.get().saturating_add(self.packed_kinds.longest()) > now.packed().get()
    }

    pub(super) fn is_expired(&self, seen: &Seen, now: StoreTime) -> bool {
        self.end(seen.word) <= now.packed().get()
    }
}
