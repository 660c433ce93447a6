//! The kind of a packed state, and the time for which it matters.

use super::packed_state::PackedState;

/// The kind of a [`PackedState`], and the time for which it matters; a store keeps it beside the packed state.
///
/// | packed state of | it is | it matters |
/// |---|---|---|
/// | a bucket | when the bucket was last empty | as long as that bucket takes to fill |
/// | a queue | when the queue is idle again | until then |
/// | a window | when the window began, and a tick for each unit that was counted | as long as the window |
/// | a sliding window | when its newest slice began, and the counters of its slices in binary digits | as long as the window and a slice |
/// | a rule whose states take two words | the last tick at which the state matters; the state is beside it | until then |
/// | a debt | any of these but the last: each rule reads it as its own | – |
// The highest two bits are the kind, and that of buckets is the greatest: of two kinds of buckets, the greater one is longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedKind(u64);

/// The kind of a [`PackedState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Debt,
    Queue,
    /// Of this length in ticks.
    Window(u64),
    Slices(PackedSlices),
    Bucket,
}

/// The slices of a sliding window, all of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedSlices {
    /// The number of slices in the window: 1 to [`MAX_COUNT`](Self::MAX_COUNT).
    pub(super) count: u64,
    /// The length of a slice in ticks.
    pub(super) length: u64,
}

impl PackedSlices {
    pub(super) const MAX_COUNT: u64 = KIND_MASK >> COUNT_SHIFT;
}

const KIND_SHIFT: u32 = 62;
const KIND_MASK: u64 = (1 << KIND_SHIFT) - 1;
/// The number of slices of a sliding window lies below the kind, which is that of windows. It is 0 for all others.
const COUNT_SHIFT: u32 = 58;
const LASTS: u64 = (1 << COUNT_SHIFT) - 1;
const _: () = assert!(PackedState::LONGEST <= LASTS);
const QUEUE: u64 = 1 << KIND_SHIFT;
const WINDOW: u64 = 2 << KIND_SHIFT;
const BUCKET: u64 = 3 << KIND_SHIFT;

impl PackedKind {
    /// The usage of a key whose algorithm is not known.
    pub const DEBT: Self = Self(0);

    /// That of a state in two words.
    pub(crate) const TWO_WORDS: Self = Self(1);

    pub(super) const QUEUE: Self = Self(QUEUE);

    /// Creates the kind of a bucket that fills in `full` ticks, at most [`PackedState::LONGEST`].
    #[inline]
    pub(super) const fn bucket(full: u64) -> Self {
        debug_assert!(full <= PackedState::LONGEST);
        Self(BUCKET | full)
    }

    /// Creates the kind of a window of `period` ticks, at most [`PackedState::LONGEST`].
    #[inline]
    pub(super) const fn window(period: u64) -> Self {
        debug_assert!(period <= PackedState::LONGEST);
        Self(WINDOW | period)
    }

    /// Creates the kind of a sliding window that lasts, with a slice more, at most [`PackedState::LONGEST`].
    #[inline]
    pub(super) const fn slices(slices: PackedSlices) -> Self {
        let PackedSlices { count, length } = slices;
        let lasts = (count + 1) * length;
        debug_assert!(0 < count && count <= PackedSlices::MAX_COUNT);
        debug_assert!(lasts <= PackedState::LONGEST);
        Self(WINDOW | count << COUNT_SHIFT | lasts)
    }

    pub(super) const fn meaning(self) -> Meaning {
        match self.0 & !KIND_MASK {
            BUCKET => Meaning::Bucket,
            WINDOW => match (self.0 & KIND_MASK) >> COUNT_SHIFT {
                0 => Meaning::Window(self.lasts()),
                count => Meaning::Slices(PackedSlices {
                    count,
                    length: self.lasts() / (count + 1),
                }),
            },
            QUEUE => Meaning::Queue,
            _ => Meaning::Debt,
        }
    }

    /// Returns the time for which a packed state matters after its instant, in ticks.
    #[inline]
    pub const fn lasts(self) -> u64 {
        self.0 & LASTS
    }

    /// Returns `true` for a state in two words.
    #[inline]
    pub(crate) const fn is_two_words(self) -> bool {
        self.0 == Self::TWO_WORDS.0
    }

    /// Returns `true` for a bucket; the packed states of all buckets have the same meaning.
    #[inline]
    pub(crate) const fn is_bucket(self) -> bool {
        self.0 >= BUCKET
    }

    /// Returns `true` if this is the kind of a sliding window, and a rule of kind `other`, or without one, may count the same calls in
    /// other slices. That depends on the instant of the last write, which is not packed.
    pub(crate) fn is_counted_again_by(self, other: Option<Self>) -> bool {
        matches!(self.meaning(), Meaning::Slices(_)) && other != Some(self)
    }

    /// Returns the kind of a packed state that rules of both kinds have charged, this one first.
    ///
    /// All buckets read one packed state, which matters as long as it does to the longest of them. Of other kinds, the last one
    /// replaces the former.
    #[inline]
    pub(crate) const fn or_longer(self, other: Self) -> Self {
        if self.is_bucket() && other.is_bucket() && self.lasts() > other.lasts() {
            self
        } else {
            other
        }
    }

    /// Returns the kind as a number above zero; that of a longer bucket is greater.
    #[inline]
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// Returns the kind of a [`number`](Self::number); 0 is a [debt](Self::DEBT).
    #[inline]
    pub(crate) const fn of_number(number: u64) -> Self {
        Self(number)
    }
}
