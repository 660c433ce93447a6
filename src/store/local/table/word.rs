//! The 64 bits of a slot.

use crate::algorithm::packed::{PackedState, TwoWords};

/// A packed state, the number of its [kind](super::packed_kinds), and a bit that is set while a thread holds the slot.
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
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    pub(super) fn bits(self) -> u64 {
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
    pub(super) fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    pub(super) fn held(self) -> Self {
        Self(self.0 | HELD)
    }

    /// Returns the word with the next packed state.
    pub(super) fn next(self) -> Option<Self> {
        Self::new(self.packed().shifted(1), self.packed_kind())
    }
}
