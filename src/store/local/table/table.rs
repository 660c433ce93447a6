//! The table, and decisions about keys that it contains.

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

/// Packed states by key.
pub(in crate::store::local) struct Table {
    pub(super) sets: Sets,
    pub(super) packed_kinds: PackedKinds,
    /// The set that the next sweep checks.
    pub(super) hand: AtomicUsize,
}

/// The number of attempts to step a key without a lock, before it is locked.
const LOCK_FREE_ATTEMPTS: usize = 16;

impl Table {
    /// Creates a table that is 80 % full at `keys` entries. It has at least two sets.
    ///
    /// # Panics
    ///
    /// If there is not enough memory for it.
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

    /// Decides about a key in the table, without a lock.
    ///
    /// Returns `None` if the key is not there, or cannot be stepped without a lock.
    // Always inlined: most callers read a part of the decision, and the compiler drops the rest.
    #[inline(always)]
    pub(in crate::store::local) fn step<M: Metering>(
        &self,
        key: u64,
        meter: &M,
        now: impl FnOnce() -> StoreTime,
        cost: Cost,
    ) -> Option<Decision> {
        let slot = self.find(key)?;
        // Read while the memory of the slot is being fetched.
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
                    // No further ahead of now than its kind allows, so it fits into a word.
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

    /// Returns the word of a key whose shard is locked.
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

    /// Claims the slot of a key whose shard is locked.
    pub(in crate::store::local) fn claim(&self, key: u64) -> Option<Claim<'_>> {
        // The table is unused, for example because no rule packs its states.
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
                // Another thread is evicting the key, which takes a few stores.
                None => yield_now(),
            }
        }
    }

    /// Returns `true` if the table has a number for the packed kind of a rule.
    pub(in crate::store::local) fn has_kind(&self, meter: Meter<'_>) -> bool {
        self.packed_kinds.number(meter.packed_kind()).is_some()
    }

    /// Creates a word. Returns `None` if the packed state does not fit, or the table has no number for its kind.
    pub(in crate::store::local) fn word(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
    ) -> Option<Word> {
        Word::new(packed, self.packed_kinds.number(packed_kind)?)
    }

    /// Returns the time until which a word matters to the longest rule that charged it. Only the states of buckets matter to some rules
    /// for longer than to others.
    pub(in crate::store::local) fn protected_until(&self, word: Word, now: StoreTime) -> Timestamp {
        if self.packed_kind(word).is_bucket() {
            now.instant_of(self.end(word))
        } else {
            Timestamp::default()
        }
    }

    /// Returns the packed kind of a word.
    pub(in crate::store::local) fn packed_kind(&self, word: Word) -> PackedKind {
        self.packed_kinds.get(word.packed_kind())
    }

    /// Returns the time at which a word expires, on the scale of packed states.
    pub(super) fn end(&self, word: Word) -> u64 {
        word.packed()
            .get()
            .saturating_add(self.packed_kind(word).lasts())
    }

    /// Returns `true` if an evicted packed state could still matter, whichever kind it had.
    pub(in crate::store::local) fn can_matter(&self, packed: PackedState, now: StoreTime) -> bool {
        packed.get().saturating_add(self.packed_kinds.longest()) > now.packed().get()
    }

    pub(super) fn is_expired(&self, seen: &Seen, now: StoreTime) -> bool {
        self.end(seen.word) <= now.packed().get()
    }
}
