//! The table of packed states. Keys that it contains are decided without a lock.
//!
//! The table grows with its keys, by a set at a time. A key has two sets of eight slots. Its state
//! is a [`PackedState`](crate::algorithm::packed::PackedState) in one of these sixteen slots.
//! [`Table::step`] finds and advances it without a lock, and [`Table::change_in_flight`] too. A
//! thread that inserts, evicts or resets a key, or settles any other charge, has locked the shard
//! of the key in the [map](super::map), so only one thread at a time inserts or removes a key.
//!
//! | file | |
//! |---|---|
//! | `mod` | decisions about keys in the table, and the kinds of packed states |
//! | `slot` | the 64 bits of a slot, and shared access to it |
//! | `set` | the memory: the two sets of a key, the number of sets in use, and states in two words |
//! | `insert` | insertion and eviction |
//! | `grow` | one more set |

mod grow;
mod insert;
mod set;
mod slot;

use std::array;

pub(super) use self::{
    insert::SetScan,
    slot::{Claim, Word, Words},
};
use self::{
    set::{HomeSets, Sets, TwoWordStates, WAYS},
    slot::{KINDS, Seen, TableSlot},
};
use crate::{
    algorithm::{
        StepPacked,
        packed::{PackedKind, PackedRule, PackedState, StoreTime, TwoWords},
    },
    decision::{Cost, Decision},
    sync::{AtomicU64, AtomicUsize, Mutex, Ordering, spin_loop, yield_now},
    time::Timestamp,
};

/// Packed states by key.
pub(super) struct Table {
    sets: Sets,
    two_words: TwoWordStates,
    packed_kinds: PackedKinds,
    /// The set that the next sweep checks.
    hand: AtomicUsize,
    /// Locked by the thread that adds a set.
    growing: Mutex<()>,
}

/// The percentage of all slots that are in use when the table is full, at its largest size and at
/// those before. So a table that could be four times as large is as dense as one that has just
/// enough room.
const FULL: usize = 70;

/// The minimum number of sets in use at the beginning: four pages of memory. A small table has
/// fewer.
const FIRST_SETS: usize = 128;

/// The number of attempts to step a key without a lock, before it is locked.
const LOCK_FREE_ATTEMPTS: usize = 16;

/// The end of a word that never expires.
const NEVER: u64 = u64::MAX;

impl Table {
    /// Creates a table that is [full](FULL) at `keys` entries, once it has [grown](Self::grow). It
    /// has at least two sets.
    ///
    /// # Panics
    ///
    /// If there is not enough memory for it.
    pub(super) fn new(keys: usize) -> Self {
        let sets = keys.saturating_mul(100) / (FULL * WAYS);
        let Some(table) = Self::beginning_with(FIRST_SETS, sets.max(2)) else {
            panic!(
                "no memory for a local store of {keys} keys, about {sets} · 132 bytes: \
                 expected a capacity that this machine has room for"
            )
        };
        table
    }

    /// Creates a table of up to `sets` sets, of which fewer than twice as many as `first_sets` are
    /// in use at the beginning.
    pub(super) fn beginning_with(first_sets: usize, sets: usize) -> Option<Self> {
        let sets = Sets::beginning_with(first_sets, sets)?;
        Some(Self {
            two_words: TwoWordStates::new(sets.most_slots()),
            sets,
            packed_kinds: PackedKinds::new(),
            hand: AtomicUsize::new(0),
            growing: Mutex::new(()),
        })
    }

    /// Decides about a key in the table, without a lock.
    ///
    /// Returns `None` if the key is not there, or cannot be stepped without a lock.
    ///
    /// Between the read of a word and the charge, the key may move to a new set, and another key
    /// with an equal word may come to the slot. Then that key is charged, and the caller charges
    /// this one as well: a call may be charged twice while the table grows, but no limit is
    /// exceeded. Nothing is refunded, because the slot could also have changed hands after the
    /// charge.
    // Always inlined: most callers read a part of the decision, and the compiler drops the rest.
    #[inline(always)]
    pub(super) fn step<M: StepPacked>(
        &self,
        key: u64,
        packed_rule: &M,
        now: impl FnOnce() -> StoreTime,
        cost: Cost,
    ) -> Option<Decision> {
        let size = self.sets.size();
        let home = self.sets.home_at(size, key);
        let slot = match self.sets.set(home.first).find(key) {
            Some(slot) => slot,
            None => {
                self.fetch(home, key);
                self.sets.set(home.second).find(key)?
            }
        };
        // Read while the memory of the slot is being fetched.
        let now = now();
        if now.packed().get() > Word::LAST - M::AHEAD {
            return None;
        }
        for _ in 0..LOCK_FREE_ATTEMPTS {
            let word = slot.read(key)?;
            let packed_kind = self.packed_kinds.get(word.packed_kind());
            if !packed_rule.reads(packed_kind) {
                return None;
            }
            let (packed, decision) = packed_rule.step_packed(word.packed(), now, cost);
            let Some(packed) = packed else {
                if slot.is_still(word) {
                    return (self.sets.size() == size).then_some(decision);
                }
                continue;
            };
            if !packed_rule.keeps_to(packed_kind) {
                return None;
            }
            // No further ahead of now than its kind allows, so it fits into a word.
            let next = word.at(packed);
            if slot.advance(word, next) {
                // A key never comes back to a set that it was moved from.
                let is_charged = self.sets.size() == size || slot.key() == key;
                return is_charged.then_some(decision);
            }
        }
        None
    }

    #[inline(always)]
    fn find_in(&self, home: HomeSets, key: u64) -> Option<TableSlot<'_>> {
        match self.sets.set(home.first).find(key) {
            Some(slot) => Some(slot),
            None => self.sets.set(home.second).find(key),
        }
    }

    /// Finds the slot of a key whose shard is locked.
    fn find_locked(&self, key: u64) -> Option<TableSlot<'_>> {
        loop {
            let home = self.sets.home(key);
            let found = self.find_in(home, key);
            // Otherwise the key may have been moved to a new set meanwhile.
            if found.is_some() || self.sets.home(key) == home {
                return found;
            }
        }
    }

    /// Decides about a key whose state is in two words, without a lock: `step` gets the
    /// [end](Self::end) of the state and the words, and returns the new ones if it wrote any.
    ///
    /// Returns `None` if the key is not there, has another state, or cannot be stepped without a
    /// lock.
    #[inline(always)]
    pub(super) fn step_two_words(
        &self,
        key: u64,
        now: impl FnOnce() -> StoreTime,
        step: impl Fn(u64, TwoWords, StoreTime) -> (Option<(u64, TwoWords)>, Decision),
    ) -> Option<Decision> {
        let size = self.sets.size();
        let home = self.sets.home_at(size, key);
        self.two_words.fetch(home.first);
        let slot = self.find_in(home, key)?;
        // Read while the memory of the slot is being fetched.
        let now = now();
        for _ in 0..LOCK_FREE_ATTEMPTS {
            let Some((seen, words)) = self.see_two_words(slot) else {
                spin_loop();
                continue;
            };
            if seen.key != key || !self.packed_kind(seen.word).is_two_words() {
                return None;
            }
            let (written, decision) = step(self.end(seen.word), words, now);
            let Some((end, words)) = written else {
                return (self.sets.size() == size).then_some(decision);
            };
            // Always later than before, so an unchanged word proves unchanged words beside it
            // (invariant 5 of the slots).
            let last = (end - 1).max(seen.word.packed().get() + 1);
            let word = Word::new(PackedState::new(last), seen.word.packed_kind())?;
            if let Some(claim) = slot.claim(seen) {
                self.two_words.store(slot.index, words);
                claim.advance(word);
                return Some(decision);
            }
        }
        None
    }

    /// Changes what calls in flight hold under a key in the table, without a lock, and returns the
    /// former packed state. `change` returns the new one, which is later or the same.
    ///
    /// Returns `None` if the key is not there, has another state, or cannot be changed without a
    /// lock; or if `change` does.
    // The slot is held meanwhile: units that were added to another key, which
    // [`step`](Self::step) risks, would never be given back. Also by a call that is refused: so a
    // release that comes after it sees that it waits (`Lines::waiting`).
    #[inline(always)]
    pub(super) fn change_in_flight(
        &self,
        key: u64,
        change: impl FnOnce(PackedState) -> Option<PackedState>,
    ) -> Option<PackedState> {
        let slot = self.find_in(self.sets.home(key), key)?;
        for _ in 0..LOCK_FREE_ATTEMPTS {
            let Some(seen) = slot.see() else {
                spin_loop();
                continue;
            };
            if seen.key != key || !self.packed_kind(seen.word).is_in_flight() {
                return None;
            }
            let Some(claim) = slot.claim(seen) else {
                continue;
            };
            let former = seen.word.packed();
            let word = Word::new(change(former)?, seen.word.packed_kind())?;
            claim.advance(word);
            return Some(former);
        }
        None
    }

    /// Returns the contents of a slot at one moment. Returns `None` while it is held.
    #[inline]
    fn see_two_words(&self, slot: TableSlot<'_>) -> Option<(Seen, TwoWords)> {
        let before = slot.see()?;
        let words = self.two_words.load(slot.index)?;
        slot.is_still(before.word).then_some((before, words))
    }

    /// Returns the contents of a slot that this thread holds.
    pub(super) fn words_of(&self, claim: &Claim<'_>) -> Words {
        let word = claim.word();
        let is_two_words = self.packed_kind(word).is_two_words();
        // The memory of two words is not touched for others.
        let state = is_two_words.then(|| self.two_words.load(claim.index()));
        let state = state.flatten();
        Words { word, state }
    }

    /// Stores a later state of a key whose slot this thread holds, or a state in two words that
    /// matters as long as the former one.
    pub(super) fn advance(&self, claim: Claim<'_>, words: Words) {
        let Words { mut word, state } = words;
        if let Some(state) = state {
            self.two_words.store(claim.index(), state);
            // Always later than before, as in `step_two_words`.
            let next = claim.word().next();
            word = next
                .filter(|next| next.packed() > word.packed())
                .unwrap_or(word);
        }
        claim.advance(word);
    }

    /// Returns the new words of a slot that this thread holds, if calls in flight with an instant
    /// after that of the slot, which may be ahead of the time.
    pub(super) fn after(&self, claim: &Claim<'_>, words: Words) -> Option<Words> {
        let (former, next) = (claim.word().packed(), words.word.packed());
        if next > former || !self.packed_kind(words.word).is_in_flight() {
            return Some(words);
        }
        let packed = former.then_holding(next.held())?;
        Word::new(packed, words.word.packed_kind()).map(Words::from)
    }

    /// Claims the slot of a key whose shard is locked.
    pub(super) fn claim(&self, key: u64) -> Option<Claim<'_>> {
        // The table is unused, for example because no rule packs its states.
        if self.packed_kinds.is_untouched() {
            return None;
        }
        loop {
            let slot = self.find_locked(key)?;
            match slot.see() {
                Some(seen) if seen.key == key => {
                    if let Some(claim) = slot.claim(seen) {
                        return Some(claim);
                    }
                }
                // Evicted or moved; or being evicted or moved, which takes a few stores.
                Some(_) | None => yield_now(),
            }
        }
    }

    /// Returns `true` if the table has a number for the packed kind of a rule.
    pub(super) fn has_kind(&self, packed_rule: PackedRule<'_>) -> bool {
        self.packed_kinds
            .number(packed_rule.packed_kind())
            .is_some()
    }

    /// Creates a word. Returns `None` if the packed state does not fit, or the table has no number
    /// for its kind.
    pub(super) fn word(&self, packed: PackedState, packed_kind: PackedKind) -> Option<Word> {
        Word::new(packed, self.packed_kinds.number(packed_kind)?)
    }

    /// Creates the word beside a state in two words that matters until after `last`. Returns `None`
    /// if there is no room for it.
    pub(super) fn word_of_two(&self, last: PackedState) -> Option<Word> {
        match self.two_words.reserve() {
            true => self.word(last, PackedKind::TWO_WORDS),
            false => None,
        }
    }

    /// Returns the time until which a word matters to the longest rule that charged it.
    pub(super) fn matters_until(&self, word: Word, now: StoreTime) -> Timestamp {
        match self.end(word) {
            NEVER => Timestamp::MAX,
            end => now.instant_of(end),
        }
    }

    /// Returns the packed kind of a word.
    pub(super) fn packed_kind(&self, word: Word) -> PackedKind {
        self.packed_kinds.get(word.packed_kind())
    }

    /// Returns the time at which a word expires, on the scale of packed states.
    #[inline]
    pub(super) fn end(&self, word: Word) -> u64 {
        let packed_kind = self.packed_kind(word);
        if packed_kind.is_in_flight() {
            return if word.packed().held() > 0 { NEVER } else { 0 };
        }
        word.packed().get().saturating_add(packed_kind.lasts())
    }

    /// Returns `true` if an evicted packed state could still matter, whichever kind it had.
    pub(super) fn can_matter(&self, packed: PackedState, now: StoreTime) -> bool {
        packed.get().saturating_add(self.packed_kinds.longest()) > now.packed().get()
    }

    fn is_expired(&self, seen: &Seen, now: StoreTime) -> bool {
        self.end(seen.word) <= now.packed().get()
    }
}

/// The kinds of a table's packed states.
///
/// Rules travel with the calls, so a slot itself must contain the kind of its packed state, which
/// determines its expiry. Three bits of its word are the number of one of these kinds. Each
/// different kind takes a number of its own while there are any. After that, kinds of buckets share
/// the last number, and are kept as long as the longest of them. Other kinds get no number, and
/// their states are in the [map](super::map).
///
/// Invariant: numbers are taken in ascending order, except for the last one. The kind of a number
/// never changes, except that the kind of the last number may become a longer one.
struct PackedKinds([AtomicU64; KINDS]);

impl PackedKinds {
    fn new() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Returns `true` if no word was ever created.
    #[inline]
    fn is_untouched(&self) -> bool {
        // Relaxed: a thread that has locked the shard of a key sees all that was done under that
        // lock before.
        self.0[0].load(Ordering::Relaxed) == 0
    }

    /// Returns the kind of a number.
    #[inline]
    fn get(&self, number: u8) -> PackedKind {
        // Relaxed: a word is stored with Release, by a claim or by a charge without a lock, after
        // its kind was seen to be at least as long as the kind of its rule. A word is loaded with
        // Acquire before its kind is read. And a kind never becomes a different or shorter one.
        PackedKind::of_number(self.0[usize::from(number) % KINDS].load(Ordering::Relaxed))
    }

    /// Returns the longest time for which a packed state of any kind matters.
    fn longest(&self) -> u64 {
        // Relaxed: as in `get`, a thread that has seen an evicted word sees its kind.
        let lasts = |packed_kind: &AtomicU64| {
            PackedKind::of_number(packed_kind.load(Ordering::Relaxed)).lasts()
        };
        self.0.iter().map(lasts).max().unwrap_or(0)
    }

    /// Returns the number of a kind, or `None` if no number is left for it.
    fn number(&self, packed_kind: PackedKind) -> Option<u8> {
        let (last, own) = self.0.split_last()?;
        for (number, taken) in own.iter().enumerate() {
            // Relaxed: kinds are independent of each other. For their order with words, see `get`.
            let mut found = taken.load(Ordering::Relaxed);
            if found == 0 {
                let wanted = packed_kind.number();
                let swapped =
                    taken.compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed);
                found = swapped.err().unwrap_or(wanted);
            }
            if found == packed_kind.number() {
                return Some(number as u8);
            }
        }
        // Among kinds of buckets, a longer one has a greater value.
        packed_kind.is_bucket().then(|| {
            last.fetch_max(packed_kind.number(), Ordering::Relaxed);
            (KINDS - 1) as u8
        })
    }
}
