//! What a slot remembers, in 64 bits.

use crate::algorithm::packed::PackedState;

/// A mark, the number of its [shape](super::shapes), and whether somebody holds the slot.
///
/// | bits | |
/// |---|---|
/// | 63 to 4 | the mark |
/// | 3 to 1 | the shape |
/// | 0 | held |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word(u64);

const HELD: u64 = 1;
const SHAPE: u64 = 0b1110;
const MARK_SHIFT: u32 = 4;

/// How many shapes there can be.
pub(crate) const SHAPES: usize = 8;

impl Word {
    /// The latest mark that fits: twelve years after the scale's beginning.
    pub(crate) const LAST: u64 = u64::MAX >> MARK_SHIFT;

    /// A word that nobody holds; `None` for a mark that does not fit.
    #[inline]
    pub(crate) fn new(mark: PackedState, shape: u8) -> Option<Self> {
        let word = mark.get() << MARK_SHIFT | u64::from(shape) << 1 & SHAPE;
        (mark.get() <= Self::LAST).then_some(Self(word))
    }

    /// The same with a mark up to [`LAST`](Self::LAST).
    #[inline]
    pub(super) fn at(self, mark: PackedState) -> Self {
        debug_assert!(mark.get() <= Self::LAST);
        Self(mark.get() << MARK_SHIFT | self.0 & SHAPE)
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
    pub(crate) fn mark(self) -> PackedState {
        PackedState::of_60_bits(self.0 >> MARK_SHIFT)
    }

    #[inline]
    pub(crate) fn shape(self) -> u8 {
        ((self.0 & SHAPE) >> 1) as u8
    }

    #[inline]
    pub(super) fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    pub(super) fn held(self) -> Self {
        Self(self.0 | HELD)
    }

    /// The word with the next mark.
    pub(super) fn next(self) -> Option<Self> {
        Self::new(self.mark().shifted(1), self.shape())
    }
}
