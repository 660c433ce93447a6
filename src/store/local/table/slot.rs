//! How threads share a slot: its key and its word.
//!
//! A known key is read and advanced without a lock: a compare-exchange of the word. Whoever changes
//! whose slot it is holds it meanwhile, by a bit in the word.
//!
//! Invariants:
//!
//! 1. The key changes only while the word is held, by the thread that holds it.
//! 2. As long as a slot is one key's, its packed state only grows; and it is handed over or vacated only
//!    with a packed state above the last one. So no word that one key had comes back under another one,
//!    and a word that is what it was proves that the slot is whose it was.
//! 3. A vacated slot keeps its packed state: the floor for whoever comes next.
//! 4. Nobody waits for a slot while holding another one that is not a key's whose shard the
//!    thread has locked.

use super::word::Word;
use crate::sync::{AtomicU64, Ordering};

/// The key of a slot that is nobody's.
pub(crate) const NO_KEY: u64 = 0;

/// One key's place: the two words that belong together.
#[derive(Clone, Copy)]
pub(crate) struct TableSlot<'a> {
    key: &'a AtomicU64,
    word: &'a AtomicU64,
}

/// What somebody else's slot looks like.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) key: u64,
    pub(crate) word: Word,
}

impl<'a> TableSlot<'a> {
    #[inline]
    pub(crate) fn new(key: &'a AtomicU64, word: &'a AtomicU64) -> Self {
        Self { key, word }
    }

    /// Whose the slot seems to be: to be confirmed by [`read`](Self::read).
    #[inline]
    pub(crate) fn key(self) -> u64 {
        // Acquire: whoever sees that a key is gone sees what its eviction left behind
        // ([`Claim::hand_over`]'s store).
        self.key.load(Ordering::Acquire)
    }

    /// The word of `key`; `None` if the slot is not that key's, or held.
    #[inline]
    pub(crate) fn read(self, key: u64) -> Option<Word> {
        // Acquire: the key that is read next is at least as new as the word.
        let word = Word::from_bits(self.word.load(Ordering::Acquire));
        // Acquire: the word that `is_still` reads afterwards is at least as new as this key.
        let owner = self.key.load(Ordering::Acquire);
        (owner == key && !word.is_held()).then_some(word)
    }

    /// Whether the word is still the one that [`read`](Self::read) gave: then the slot was the
    /// key's when its key was looked at, and the word its state at that moment.
    #[inline]
    pub(crate) fn is_still(self, word: Word) -> bool {
        // Relaxed: the key's load before it is an Acquire. Had that load seen the key of a later
        // owner, this one would see at least the held word that was stored before that key.
        self.word.load(Ordering::Relaxed) == word.bits()
    }

    /// Replaces the word that [`read`](Self::read) gave, unless anything has changed since.
    #[inline]
    pub(crate) fn advance(self, from: Word, to: Word) -> bool {
        debug_assert!(to.packed() > from.packed() && !to.is_held());
        // A read-modify-write sees the newest word, so by invariant 2 the slot is still the key's; and
        // it continues the release sequence of the hand-over that made it so. Release: whoever reads
        // this word finds its kind at least as long as the rule that charged it (`PackedKinds::get`).
        let (from, to) = (from.bits(), to.bits());
        let swapped = self
            .word
            .compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
        swapped.is_ok()
    }

    /// Whose the slot is and what it remembers; `None` while somebody holds it.
    pub(crate) fn see(self) -> Option<Seen> {
        // As in `read` and `is_still`.
        let word = Word::from_bits(self.word.load(Ordering::Acquire));
        let key = self.key.load(Ordering::Acquire);
        (!word.is_held() && self.is_still(word)).then_some(Seen { key, word })
    }

    /// Holds the slot, if it is as it was seen.
    pub(crate) fn claim(self, seen: Seen) -> Option<Claim<'a>> {
        let (from, to) = (seen.word.bits(), seen.word.held().bits());
        // Acquire: what the last holder did before it let go is seen.
        self.word
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            // Lazily: a claim that is made lets go of the slot, so none is made of what was not held.
            .then(|| Claim { slot: self, seen })
    }
}

/// A slot that this thread holds. Let go as it was, if nothing else is done with it.
pub(crate) struct Claim<'a> {
    slot: TableSlot<'a>,
    seen: Seen,
}

impl Claim<'_> {
    /// What it remembered when it was claimed.
    pub(crate) fn word(&self) -> Word {
        self.seen.word
    }

    /// Gives the slot to another key, with a packed state above the last one; until it is let go, nobody else
    /// sees its word.
    pub(crate) fn hand_over(mut self, key: u64, word: Word) -> Self {
        debug_assert!(word.packed() > self.seen.word.packed());
        // Release: whoever looks for the former key and does not find it sees what it owes.
        self.slot.key.store(key, Ordering::Release);
        self.seen = Seen { key, word };
        self
    }

    /// Makes the slot nobody's.
    pub(crate) fn vacate(mut self) {
        self.slot.key.store(NO_KEY, Ordering::Release);
        // Nobody's word is none that the key had: invariant 2. At the end of the scale there is no
        // such word, and the slot stays held for good.
        self.seen.word = self.seen.word.next().unwrap_or(self.seen.word.held());
    }

    /// Remembers a later packed state of the same key.
    pub(crate) fn advance(mut self, word: Word) {
        debug_assert!(word.packed() >= self.seen.word.packed());
        self.seen.word = word;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Release: the key that was stored before is seen by whoever reads this word.
        self.slot
            .word
            .store(self.seen.word.bits(), Ordering::Release);
    }
}
