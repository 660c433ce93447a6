//! Who gets which slot: free ones, those of keys that say nothing any more, and at the cap the one
//! with the smallest debt.

use super::{
    Table,
    sets::{HomeSets, WAYS},
    slot::{Claim, NO_KEY, Seen, TableSlot},
    word::Word,
};
use crate::{
    algorithm::packed::{PackedState, StoreTime},
    sync::Ordering,
};

/// Where a key has found a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store::local) enum Placed {
    /// In a slot that was free: one key more than before.
    Free,
    /// In the slot of a key that was forgotten without loss.
    Expired,
}

/// Slots of the first set from which on a newcomer is not placed in the second one: keys that are
/// found in the first set are found with one cache miss less.
const PREFERRED_FROM: usize = 3;

/// What a newcomer finds in its two sets.
pub(in crate::store::local) struct SetScan<'a> {
    key: u64,
    /// Whether the key seems to be there already.
    is_known: bool,
    /// Whether another thread holds a slot, which may soon be had.
    is_held: bool,
    /// The largest debt that was ever pushed out of the sets, or 0.
    owed: u64,
    free: Option<Found<'a>>,
    expired: Option<Found<'a>>,
    /// A slot that was forgotten too, whose packed state is not below that of a newcomer who owes nothing.
    too_high: Option<Found<'a>>,
    smallest: Option<Found<'a>>,
}

#[derive(Clone, Copy)]
struct Found<'a> {
    set: usize,
    slot: TableSlot<'a>,
    seen: Seen,
}

/// Slots of one set that a newcomer could have.
#[derive(Default)]
struct Candidates<'a> {
    count: usize,
    free: Option<Found<'a>>,
    expired: Option<Found<'a>>,
}

impl SetScan<'_> {
    /// Whether there is a slot that was forgotten.
    pub(in crate::store::local) fn has_expired(&self) -> bool {
        self.expired.is_some()
    }

    /// Whether there may be a debt to push out at the next try, where there was none at this one.
    pub(in crate::store::local) fn may_change(&self) -> bool {
        self.is_held || self.smallest.is_some()
    }

    /// The smallest debt: what a newcomer inherits who pushes it out.
    pub(in crate::store::local) fn smallest_debt(&self) -> Option<PackedState> {
        self.smallest.map(|found| found.seen.word.packed())
    }

    /// The largest debt that was ever pushed out of the sets.
    pub(in crate::store::local) fn owed(&self) -> Option<PackedState> {
        (self.owed > 0).then(|| PackedState::new(self.owed))
    }
}

impl Table {
    /// Holds the slot of a key whose shard is locked, if it has one, and surveys its sets: for a key that has none
    /// after it was seen to have none, so that the scan tells what it owes.
    pub(in crate::store::local) fn claim_or_scan(
        &self,
        key: u64,
        now: StoreTime,
        floor: PackedState,
    ) -> (Option<Claim<'_>>, SetScan<'_>) {
        let scan = self.scan(key, now, floor);
        if !scan.is_known {
            return (None, scan);
        }
        match self.claim(key) {
            Some(claim) => (Some(claim), scan),
            // Another thread has pushed the key out since, and noted only then what it owes.
            None => (None, self.scan(key, now, floor)),
        }
    }

    /// Looks at the slots of a key whose packed state will be above `floor`, and whose shard is locked.
    pub(in crate::store::local) fn scan(
        &self,
        key: u64,
        now: StoreTime,
        floor: PackedState,
    ) -> SetScan<'_> {
        let home = self.sets.home(key);
        let mut scan = SetScan {
            key,
            is_known: false,
            is_held: false,
            // On its way while the slots are looked at.
            owed: self.owed_of(home),
            free: None,
            expired: None,
            too_high: None,
            smallest: None,
        };
        let first = self.scan_set(home.first, now, floor, &mut scan);
        let second = self.scan_set(home.second, now, floor, &mut scan);
        let (best, other) = if first.count >= PREFERRED_FROM || first.count >= second.count {
            (first, second)
        } else {
            (second, first)
        };
        scan.free = best.free.or(other.free);
        scan.expired = best.expired.or(other.expired);
        // Again: what was noted before the key was seen to be gone counts.
        scan.owed = scan.owed.max(self.owed_of(home));
        scan
    }

    #[inline]
    fn scan_set<'a>(
        &'a self,
        set: usize,
        now: StoreTime,
        floor: PackedState,
        scan: &mut SetScan<'a>,
    ) -> Candidates<'a> {
        let mut candidates = Candidates::default();
        let slots = self.sets.set(set);
        let mut least = scan
            .smallest
            .map_or(u64::MAX, |found| self.end(found.seen.word));
        for way in 0..WAYS {
            let slot = slots.slot(way);
            let Some(seen) = slot.see() else {
                // Held: perhaps it is being given to this key, or taken from it.
                scan.is_known |= slot.key() == scan.key;
                scan.is_held = true;
                continue;
            };
            scan.is_known |= seen.key == scan.key;
            let (end, found) = (self.end(seen.word), Found { set, slot, seen });
            if end > now.packed().get() && seen.key != NO_KEY {
                if end < least {
                    least = end;
                    scan.smallest = Some(found);
                }
            } else if seen.word.packed() <= floor {
                // Invariant 2 of the slots: packed states only grow. The first of its kind: keys are
                // looked for from there.
                let is_free = seen.key == NO_KEY;
                let kind = if is_free {
                    &mut candidates.free
                } else {
                    &mut candidates.expired
                };
                kind.get_or_insert(found);
                candidates.count += 1;
            } else if seen.key != NO_KEY {
                scan.too_high = Some(found);
            }
        }
        candidates
    }

    /// Places a newcomer: in a slot that was forgotten or, where `grow` allows one key more, in a free
    /// one. `None` when both sets are full of keys that matter.
    pub(in crate::store::local) fn place<'a>(
        &self,
        scan: &SetScan<'a>,
        word: Word,
        grow: impl FnOnce() -> bool,
    ) -> Option<(Placed, Claim<'a>)> {
        let claim = |found: Found<'a>| found.slot.claim(found.seen);
        if let Some(claim) = scan.expired.and_then(claim) {
            return Some((Placed::Expired, claim.hand_over(scan.key, word)));
        }
        // Another thread may have taken it: then the map takes the key.
        let claim = scan.free.and_then(claim)?;
        if !grow() {
            return None;
        }
        Some((Placed::Free, claim.hand_over(scan.key, word)))
    }

    /// The largest debt that was ever pushed out of a key's sets. Its shard is locked.
    pub(in crate::store::local) fn owed(&self, key: u64) -> Option<PackedState> {
        let owed = self.owed_of(self.sets.home(key));
        (owed > 0).then(|| PackedState::new(owed))
    }

    #[inline]
    fn owed_of(&self, home: HomeSets) -> u64 {
        // Relaxed: if a key was pushed out, its slot was seen to be another's (an Acquire load)
        // before, and what it owes was noted before that.
        let owed = |set| self.sets.owed(set).load(Ordering::Relaxed);
        owed(home.first).max(owed(home.second))
    }

    /// Vacates a slot that the newcomer itself cannot have; tells whether there was one.
    pub(in crate::store::local) fn vacate(&self, scan: &SetScan<'_>) -> bool {
        let too_high = scan.too_high.and_then(|found| found.slot.claim(found.seen));
        too_high.map(Claim::vacate).is_some()
    }

    /// Places a newcomer in the slot of the smallest debt, if its own is larger.
    ///
    /// `None` when there is none, or another thread was faster.
    pub(in crate::store::local) fn evict<'a>(
        &self,
        scan: &SetScan<'a>,
        word: Word,
    ) -> Option<Claim<'a>> {
        let smaller = |found: &Found<'_>| found.seen.word.packed() < word.packed();
        let Found { set, slot, seen } = scan.smallest.filter(smaller)?;
        let claim = slot.claim(seen)?;
        // Before the slot changes hands: who misses its key afterwards finds what it owes.
        self.sets
            .owed(set)
            .fetch_max(seen.word.packed().get(), Ordering::Relaxed);
        Some(claim.hand_over(scan.key, word))
    }

    /// Notes what a key owes, up to [`Word::LAST`], as if it had been pushed out. Its shard is locked.
    pub(in crate::store::local) fn owe(&self, key: u64, debt: PackedState) {
        debug_assert!(debt.get() <= Word::LAST);
        let first = self.sets.home(key).first;
        // Relaxed: who asks for this key next locks its shard after this thread.
        self.sets
            .owed(first)
            .fetch_max(debt.get(), Ordering::Relaxed);
    }

    /// Vacates the slots of the next set that say nothing any more; tells how many.
    pub(in crate::store::local) fn sweep(&self, now: StoreTime) -> usize {
        // Relaxed: which set is next orders nothing.
        let set = self.hand.fetch_add(1, Ordering::Relaxed) % self.sets.len();
        self.sets
            .set(set)
            .slots()
            .filter_map(|slot| Some((slot, slot.see()?)))
            .filter(|(_, seen)| seen.key != NO_KEY && self.is_expired(seen, now))
            .filter_map(|(slot, seen)| slot.claim(seen))
            .map(Claim::vacate)
            .count()
    }

    /// Vacates all slots, and forgives all debts; tells how many keys there were.
    pub(in crate::store::local) fn clear(&self) -> usize {
        let mut cleared = 0;
        for set in 0..self.sets.len() {
            for slot in self.sets.set(set).slots() {
                let held = || slot.see().filter(|seen| seen.key != NO_KEY);
                if let Some(claim) = held().and_then(|seen| slot.claim(seen)) {
                    claim.vacate();
                    cleared += 1;
                }
            }
            self.sets.owed(set).store(0, Ordering::Relaxed);
        }
        cleared
    }
}
