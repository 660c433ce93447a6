//! What a mark says, and for how long.

use super::packed_state::PackedState;

/// What a [`PackedState`] says, and for how long it matters: what a store keeps beside it.
///
/// | mark of | it is | it matters |
/// |---|---|---|
/// | a bucket | when the bucket was last empty | as long as that bucket takes to fill |
/// | a queue | when the queue is idle again | until then |
/// | a window | when the window began, and a tick for each unit that was counted | as long as the window |
/// | a debt | any of these: each rule reads it as its own | – |
// In two bits the kind, that of buckets being the highest: of two shapes of buckets, the greater is the longer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedKind(u64);

/// What a [`PackedState`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Debt,
    Queue,
    /// Of so many ticks.
    Window(u64),
    Bucket,
}

const KIND_SHIFT: u32 = 62;
const LASTS: u64 = (1 << KIND_SHIFT) - 1;
const QUEUE: u64 = 1 << KIND_SHIFT;
const WINDOW: u64 = 2 << KIND_SHIFT;
const BUCKET: u64 = 3 << KIND_SHIFT;

impl PackedKind {
    /// What was owed by a key of which no more is known.
    pub const DEBT: Self = Self(0);

    pub(super) const QUEUE: Self = Self(QUEUE);

    /// A bucket that fills in so many ticks, at most [`PackedState::LONGEST`].
    #[inline]
    pub(super) const fn bucket(full: u64) -> Self {
        debug_assert!(full <= PackedState::LONGEST);
        Self(BUCKET | full)
    }

    /// A window of so many ticks, at most [`PackedState::LONGEST`].
    #[inline]
    pub(super) const fn window(period: u64) -> Self {
        debug_assert!(period <= PackedState::LONGEST);
        Self(WINDOW | period)
    }

    pub(super) const fn says(self) -> Says {
        match self.0 & !LASTS {
            BUCKET => Says::Bucket,
            WINDOW => Says::Window(self.lasts()),
            QUEUE => Says::Queue,
            _ => Says::Debt,
        }
    }

    /// How long after its instant a mark matters, in ticks.
    #[inline]
    pub const fn lasts(self) -> u64 {
        self.0 & LASTS
    }

    /// Whether it is one of a bucket; the marks of all of them say the same.
    #[inline]
    pub(crate) const fn is_bucket(self) -> bool {
        self.0 >= BUCKET
    }

    /// The shape of what rules of both shapes have charged, this one before the other.
    ///
    /// All buckets read one mark, and it matters to the longest of them. Of other shapes the last one replaces
    /// what was there before.
    #[inline]
    pub(crate) const fn or_longer(self, other: Self) -> Self {
        if self.is_bucket() && other.is_bucket() && self.lasts() > other.lasts() {
            self
        } else {
            other
        }
    }

    /// The shape as a number above zero; that of a longer bucket is greater.
    #[inline]
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// The shape of a [`number`](Self::number); that of a [debt](Self::DEBT) for 0.
    #[inline]
    pub(crate) const fn of_number(number: u64) -> Self {
        Self(number)
    }
}
