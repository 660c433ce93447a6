//! Who gets which slot: free ones, those of keys that say nothing any more, and at the cap the one
//! with the smallest debt.

use super::{
    SWEPT, Table,
    slot::{NOBODY, Seen, Slot},
    word::Word,
};
use crate::{
    algorithm::{Mark, Moment},
    sync::Ordering,
};

/// Where a key has found a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store::local) enum Placed {
    /// In a slot that was free: one key more than before.
    Free,
    /// In the slot of a key that was forgotten without loss.
    Forgotten,
}

/// Slots of the first set from which on a newcomer need not look at the second one: keys that are
/// found in the first set are found with one cache miss less.
const ENOUGH: usize = 3;

/// Slots of one set that a newcomer could have.
#[derive(Default)]
struct Candidates<'a> {
    count: usize,
    free: Option<(Slot<'a>, Seen)>,
    forgettable: Option<(Slot<'a>, Seen)>,
}

impl Table {
    /// Places a newcomer whose shard is locked: in a slot that was forgotten or, where `grow` allows one key
    /// more, in a free one. `None` when both sets are full of keys that matter.
    pub(in crate::store::local) fn place(
        &self,
        key: u64,
        word: Word,
        now: Moment,
        grow: impl FnOnce() -> bool,
    ) -> Option<Placed> {
        let home = self.sets.home(key);
        let first = self.candidates(home.first, word.mark(), now);
        let best = if first.count >= ENOUGH {
            first
        } else {
            let second = self.candidates(home.second, word.mark(), now);
            if second.count > first.count {
                second
            } else {
                first
            }
        };
        if let Some(claim) = best.forgettable.and_then(|(slot, seen)| slot.claim(seen)) {
            claim.hand_over(key, word);
            return Some(Placed::Forgotten);
        }
        // Another thread may have taken it: then the map takes the key.
        let (slot, seen) = best.free?;
        let claim = slot.claim(seen)?;
        if !grow() {
            return None;
        }
        claim.hand_over(key, word);
        Some(Placed::Free)
    }

    fn candidates(&self, set: usize, mark: Mark, now: Moment) -> Candidates<'_> {
        let mut found = Candidates::default();
        for slot in self.sets.set(set).slots() {
            // Invariant 2 of the slots: marks only grow.
            let Some(seen) = slot.see().filter(|seen| seen.word.mark() < mark) else {
                continue;
            };
            let kind = if seen.key == NOBODY {
                &mut found.free
            } else if self.is_forgettable(&seen, now) {
                &mut found.forgettable
            } else {
                continue;
            };
            // The first of its kind: keys are looked for from there.
            kind.get_or_insert((slot, seen));
            found.count += 1;
        }
        found
    }

    /// The largest debt that was ever pushed out of a key's sets. Its shard is locked.
    pub(in crate::store::local) fn owed(&self, key: u64) -> Option<Mark> {
        let home = self.sets.home(key);
        // Relaxed: if this key was pushed out, its slot was seen to be another's (an Acquire load)
        // before, and what it owes was noted before that.
        let owed = |set| self.sets.owed(set).load(Ordering::Relaxed);
        let owed = owed(home.first).max(owed(home.second));
        (owed > 0).then(|| Mark::new(owed))
    }

    /// The smallest debt of a key's sets: what a newcomer inherits who pushes it out.
    pub(in crate::store::local) fn smallest_debt(&self, key: u64) -> Option<Mark> {
        self.victim(key, Mark::MAX)
            .map(|(_, _, seen)| seen.word.mark())
    }

    /// Places a newcomer whose shard is locked in the slot of the smallest debt below its own.
    ///
    /// `false` when there is none, or another thread was faster.
    pub(in crate::store::local) fn push_out(&self, key: u64, word: Word) -> bool {
        let Some((set, slot, seen)) = self.victim(key, word.mark()) else {
            return false;
        };
        let Some(claim) = slot.claim(seen) else {
            return false;
        };
        // Before the slot changes hands: who misses its key afterwards finds what it owes.
        self.sets
            .owed(set)
            .fetch_max(seen.word.mark().get(), Ordering::Relaxed);
        claim.hand_over(key, word);
        true
    }

    fn victim(&self, key: u64, below: Mark) -> Option<(usize, Slot<'_>, Seen)> {
        let home = self.sets.home(key);
        [home.first, home.second]
            .into_iter()
            .flat_map(|set| self.sets.set(set).slots().map(move |slot| (set, slot)))
            .filter_map(|(set, slot)| Some((set, slot, slot.see()?)))
            .filter(|(_, _, seen)| seen.key != NOBODY && seen.word.mark() < below)
            .min_by_key(|(_, _, seen)| self.end(seen.word))
    }

    /// Vacates the slots of the next few sets that say nothing any more; tells how many.
    pub(in crate::store::local) fn sweep(&self, now: Moment) -> usize {
        let first = self.hand.fetch_add(SWEPT, Ordering::Relaxed);
        (first..first.wrapping_add(SWEPT))
            .flat_map(|set| self.sets.set(set % self.sets.len()).slots())
            .filter_map(|slot| Some((slot, slot.see()?)))
            .filter(|(_, seen)| seen.key != NOBODY && self.is_forgettable(seen, now))
            .filter_map(|(slot, seen)| slot.claim(seen))
            .map(super::Claim::vacate)
            .count()
    }

    /// Vacates all slots, and forgives all debts; tells how many keys there were.
    pub(in crate::store::local) fn clear(&self) -> usize {
        let mut cleared = 0;
        for set in 0..self.sets.len() {
            for slot in self.sets.set(set).slots() {
                let held = || slot.see().filter(|seen| seen.key != NOBODY);
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
