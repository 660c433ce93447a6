//! Shared access to a slot: its key and its word.
//!
//! The state of a key is read without a lock, and advanced by a compare-exchange of the word. A
//! thread that changes the key of a slot holds the slot meanwhile, by a bit in the word.
//!
//! Invariants:
//!
//! 1. The key changes only while the word is held, by the thread that holds it.
//! 2. The packed state of a slot only grows while the slot belongs to one key. When the slot
//!    changes hands or is vacated, its packed state becomes greater than before. So a word of one
//!    key never reappears under another key, and an unchanged word proves that the slot still
//!    belongs to the same key.
//! 3. A vacated slot keeps its packed state, which is a lower bound for the state of the next key.
//! 4. The exception to 2 and 3: when a key has moved to a new set, its former slot becomes as if
//!    unused. So a thread that relies on an unchanged word checks afterwards that no set was added,
//!    or that the slot still has the same key.
//! 5. A state in two words is written only by the thread that holds its slot. The word beside it
//!    tells when it expires, and becomes greater with each change.
//! 6. While a thread waits for a slot, it holds only slots of keys whose shards it has locked.
//!
//! Loom checks this on the file as it is (`tests/models`). A refund, which would make a state
//! shrink, moves the key to another slot, or to the map if there is none. The state of calls in
//! flight does not shrink, as it begins with an instant; only a thread that holds the slot changes
//! it.

use crate::{
    algorithm::packed::{PackedState, TwoWords},
    sync::{AtomicU64, Ordering},
};

/// The key of a free slot.
pub(crate) const NO_KEY: u64 = 0;

/// The key and the word of a slot.
#[derive(Clone, Copy)]
pub(crate) struct TableSlot<'a> {
    /// Among all slots of the table.
    pub(super) index: usize,
    pub(super) key: &'a AtomicU64,
    pub(super) word: &'a AtomicU64,
}

/// The contents of a slot at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) key: u64,
    pub(crate) word: Word,
}

impl<'a> TableSlot<'a> {
    /// Returns the key that the slot seems to belong to. [`read`](Self::read) confirms it.
    #[inline]
    pub(crate) fn key(self) -> u64 {
        // Acquire: a thread that sees that a key is gone also sees the debt that its eviction
        // recorded (the store in [`Claim::hand_over`]).
        self.key.load(Ordering::Acquire)
    }

    /// Begins to fetch the cache line of the word.
    #[inline]
    pub(crate) fn fetch_word(self) {
        // The value does not matter. A load of an atomic is never left out.
        let _ = self.word.load(Ordering::Relaxed);
    }

    /// Returns the word of `key`, or `None` if the slot belongs to another key or is held.
    #[inline]
    pub(crate) fn read(self, key: u64) -> Option<Word> {
        // Acquire: the key that is read next is at least as new as the word.
        let word = Word::from_bits(self.word.load(Ordering::Acquire));
        // Acquire: the word that `is_still` reads afterwards is at least as new as this key.
        let owner = self.key.load(Ordering::Acquire);
        (owner == key && !word.is_held()).then_some(word)
    }

    /// Returns `true` if the word is still the one that [`read`](Self::read) returned. Then the
    /// slot belonged to the key when its key was loaded, and the word was its state at that moment,
    /// provided that no set was added meanwhile (invariant 4).
    #[inline]
    pub(crate) fn is_still(self, word: Word) -> bool {
        // Acquire: a thread that sees the word of a key that came after a moved key sees the new
        // number of sets. The load of the key before it is an Acquire, too. If that load had seen a
        // later key, this load would see at least the held word that was stored before that key.
        self.word.load(Ordering::Acquire) == word.bits()
    }

    /// Replaces the word that [`read`](Self::read) returned. Returns `false` if it has changed
    /// since.
    ///
    /// If no set was added meanwhile, the word was the state of the key (invariant 4).
    #[inline]
    pub(crate) fn advance(self, from: Word, to: Word) -> bool {
        debug_assert!(to.packed() > from.packed() && !to.is_held());
        // A read-modify-write sees the latest word, and continues the release sequence of the
        // hand-over to this key. Release: a thread that reads this word finds its kind at least as
        // long as that of the rule that charged it (`PackedKinds::get`). Acquire: as in `is_still`.
        let (from, to) = (from.bits(), to.bits());
        let swapped = self
            .word
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        swapped.is_ok()
    }

    /// Returns the key and the word of the slot, or `None` while it is held.
    pub(crate) fn see(self) -> Option<Seen> {
        // As in `read` and `is_still`.
        let word = Word::from_bits(self.word.load(Ordering::Acquire));
        let key = self.key.load(Ordering::Acquire);
        (!word.is_held() && self.is_still(word)).then_some(Seen { key, word })
    }

    /// Fills a slot of a set that is not in use yet. Other threads see it after the set is in use.
    pub(crate) fn fill(self, key: u64, word: Word) {
        // Relaxed: putting the set into use is a Release.
        self.key.store(key, Ordering::Relaxed);
        self.word.store(word.bits(), Ordering::Relaxed);
    }

    /// Claims the slot if it has not changed since it was seen.
    pub(crate) fn claim(self, seen: Seen) -> Option<Claim<'a>> {
        let (from, to) = (seen.word.bits(), seen.word.held().bits());
        // Acquire: sees everything that the last holder did before it released the slot.
        let claim = self
            .word
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            // Lazily: dropping a claim releases the slot, so none may exist for a slot that is not
            // held.
            .then(|| Claim { slot: self, seen })?;
        // Invariant 4.
        (self.key() == seen.key).then_some(claim)
    }
}

/// A slot that this thread holds. Dropping it releases the slot, unchanged unless a method was
/// called.
pub(crate) struct Claim<'a> {
    slot: TableSlot<'a>,
    seen: Seen,
}

impl Claim<'_> {
    /// Returns the key of the slot, or [`NO_KEY`].
    pub(crate) fn key(&self) -> u64 {
        self.seen.key
    }

    /// Returns the word of the slot when it was claimed or handed over.
    pub(crate) fn word(&self) -> Word {
        self.seen.word
    }

    /// Returns the number of the slot among all slots of the table.
    pub(crate) fn index(&self) -> usize {
        self.slot.index
    }

    /// Gives the slot to another key, with a packed state above the last one. Other threads do not
    /// see the word until the slot is released.
    pub(crate) fn hand_over(mut self, key: u64, word: Word) -> Self {
        debug_assert!(word.packed() > self.seen.word.packed());
        // Release: a thread that looks for the former key and does not find it sees the recorded
        // debt.
        self.slot.key.store(key, Ordering::Release);
        self.seen = Seen { key, word };
        self
    }

    /// Makes the slot free.
    pub(crate) fn vacate(mut self) {
        self.slot.key.store(NO_KEY, Ordering::Release);
        // The word of a free slot is none that the key had (invariant 2). At the end of the scale
        // there is no such word, and the slot stays held for good.
        self.seen.word = self.seen.word.next().unwrap_or(self.seen.word.held());
    }

    /// Makes the slot of a key that has moved as if unused.
    pub(crate) fn leave(mut self) {
        self.slot.key.store(NO_KEY, Ordering::Release);
        self.seen.word = Word::UNUSED;
    }

    /// Stores a later packed state of the same key.
    pub(crate) fn advance(mut self, word: Word) {
        debug_assert!(word.packed() >= self.seen.word.packed());
        self.seen.word = word;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Release: a thread that reads this word sees the key that was stored before.
        self.slot
            .word
            .store(self.seen.word.bits(), Ordering::Release);
    }
}

/// A packed state, the number of its [kind](super::PackedKinds), and a bit that is set while a
/// thread holds the slot.
///
/// | bits | |
/// |---|---|
/// | 63 to 4 | the packed state |
/// | 3 to 1 | the kind |
/// | 0 | held |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word(u64);

/// The new contents of a slot: its word, and its state if that is in two words.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    pub(crate) word: Word,
    pub(crate) state: Option<TwoWords>,
}

impl From<Word> for Words {
    fn from(word: Word) -> Self {
        Self { word, state: None }
    }
}

const HELD: u64 = 1;
const KIND: u64 = 0b1110;
const STATE_SHIFT: u32 = 4;

/// The maximum number of kinds.
pub(crate) const KINDS: usize = 8;

impl Word {
    /// The latest packed state that fits: twelve years after the start of the scale.
    pub(crate) const LAST: u64 = u64::MAX >> STATE_SHIFT;

    /// The word of a slot that was never used.
    pub(crate) const UNUSED: Self = Self(0);

    /// Creates a word that is not held. Returns `None` if the packed state does not fit.
    #[inline]
    pub(crate) fn new(packed: PackedState, packed_kind: u8) -> Option<Self> {
        let word = packed.get() << STATE_SHIFT | u64::from(packed_kind) << 1 & KIND;
        (packed.get() <= Self::LAST).then_some(Self(word))
    }

    /// Returns this word with another packed state, up to [`LAST`](Self::LAST).
    #[inline]
    pub(super) fn at(self, packed: PackedState) -> Self {
        debug_assert!(packed.get() <= Self::LAST);
        Self(packed.get() << STATE_SHIFT | self.0 & KIND)
    }

    #[inline]
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn packed(self) -> PackedState {
        PackedState::of_60_bits(self.0 >> STATE_SHIFT)
    }

    #[inline]
    pub(crate) fn packed_kind(self) -> u8 {
        ((self.0 & KIND) >> 1) as u8
    }

    #[inline]
    fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    fn held(self) -> Self {
        Self(self.0 | HELD)
    }

    /// Returns the word with the next packed state.
    pub(super) fn next(self) -> Option<Self> {
        Self::new(self.packed().shifted(1), self.packed_kind())
    }
}
