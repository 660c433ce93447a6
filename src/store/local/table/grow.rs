//! Growth: one more set, which takes about half of the keys of another set.
//!
//! The thread that adds a set holds all slots of the set that it splits, until the new set is in
//! use and the moved keys have left their former slots. So meanwhile no other thread inserts a key
//! into the former set, or charges a key of it:
//!
//! - A call that finds a slot held, or its key gone, locks the shard of the key, and searches again
//!   until it has seen all of the key's homes at one number of sets.
//! - A thread that has found a slot for a new key claims it first, and then checks the homes of the
//!   key again.
//!
//! A slot that a moved key leaves is as if unused. If it kept its packed state as a lower bound for
//! the next key, like a vacated slot, most new keys could not take it: in a fixed window, for
//! example, a new key has the smallest state. The price is that a charge without a lock may meet
//! another key with an equal word; see [`Table::step`].
//!
//! # Numbers
//!
//! The table grows by linear hashing, because most services have a few thousand clients and the
//! default capacity of a million. In a table of full size each of these keys would lie on cache
//! lines and a page of its own, and a decision would take almost twice the time. When 70 % of the
//! slots are in use, as many as at the full size, the number of sets is doubled, by four sets per
//! new key, because the sets that are not split yet are the fullest ones; with one set per new key,
//! 2 to 5 % of the keys find no slot and go to the map. Fewer cache lines in use are worth more
//! than the map's few keys, so 70 % and not 60 %. The first number of sets need not be a power of
//! two, so the full table can have nearly any size, with equally full sets.
//!
//! A call may be charged twice if its key moves at that moment; never less than once. Nothing is
//! refunded then: an equal word does not show whether the charge met this key or its successor in
//! the slot, and a stress test found units that were refunded to the wrong key. Inherited usage is
//! recorded under the hash of the evicted key, at the full size of the table, and not with its set,
//! because sets are split.

use smallvec::SmallVec;

use super::{Claim, FULL, Table, Words, set::WAYS, slot::NO_KEY};

/// The slots of a set, all of them held.
type HeldSet<'a> = SmallVec<[Claim<'a>; WAYS]>;

/// The number of sets that a new key adds while the table doubles. The sets that are not split yet
/// are the fullest ones, so doubling is kept short.
const ADDED_AT_ONCE: usize = 4;

impl Table {
    /// Adds a few sets if the table is over [capacity](FULL) with this number of keys, or has begun
    /// to double its sets.
    ///
    /// Keys in the map count, too: there are few of them where states are packed.
    #[inline]
    pub(crate) fn grow_for(&self, keys: usize) {
        if self.sets.are_doubling() || keys * 100 > self.sets.len() * WAYS * FULL {
            self.grow_some();
        }
    }

    fn grow_some(&self) {
        for _ in 0..ADDED_AT_ONCE {
            if self.sets.next_size().is_none() || !self.grow() || !self.sets.are_doubling() {
                return;
            }
        }
    }

    /// Adds a set. Returns `false` if the table has its full size, or if another thread adds a set
    /// or holds a slot of the set that would be split.
    pub(crate) fn grow(&self) -> bool {
        // Nothing is waited for here: the caller has locked a shard, and may hold slots.
        let Ok(_growing) = self.growing.try_lock() else {
            return false;
        };
        let Some((size, parent)) = self.sets.next_size() else {
            return false;
        };
        let mut held = HeldSet::new();
        for slot in self.sets.set(parent).slots() {
            // Otherwise another thread holds it.
            let Some(claim) = slot.see().and_then(|seen| slot.claim(seen)) else {
                return false;
            };
            held.push(claim);
        }
        let moves = |claim: &Claim<'_>| {
            let home = self.sets.home_at(size, claim.key());
            claim.key() != NO_KEY && home.first != parent && home.second != parent
        };
        let new_set = self.sets.set(size.sets as usize - 1);
        for (slot, claim) in new_set
            .slots()
            .zip(held.iter().filter(|claim| moves(claim)))
        {
            let Words { word, state } = self.words_of(claim);
            if let Some(state) = state {
                self.two_words.store(slot.index, state);
            }
            slot.fill(claim.key(), word);
        }
        self.sets.resize(size);
        for claim in held {
            // The others are released as they were.
            if moves(&claim) {
                claim.leave();
            }
        }
        true
    }
}
