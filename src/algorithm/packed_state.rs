//! States that are one instant, so that a word holds them.

use super::ticks::PER_NANO;
use crate::time::Timestamp;

/// A state that is one instant: for a token bucket, the instant at which it was last empty. Its [`PackedKind`](super::packed::PackedKind) is the
/// meaning for other rules, and the time for which it matters.
///
/// Counted in ticks of a third of a nanosecond on the scale of one store: 0 to 2⁶² − 1. A store can keep a packed state in a word of
/// 64 bits, and replace it without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackedState(u64);

impl PackedState {
    /// The latest packed state.
    pub const MAX: Self = Self((1 << 62) - 1);
    /// The ticks in a nanosecond.
    pub const PER_NANO: u64 = PER_NANO;
    /// The longest time for which a rule's packed states may matter, in ticks: two years.
    pub const LONGEST: u64 = 2 * 365 * 86_400_000_000_000 * Self::PER_NANO;

    /// Creates the packed state `ticks` ticks after the scale's beginning, or [`MAX`](Self::MAX).
    #[inline]
    pub const fn new(ticks: u64) -> Self {
        if ticks < Self::MAX.0 {
            Self(ticks)
        } else {
            Self::MAX
        }
    }

    /// Creates a packed state that fits into a word of a table, of at most 60 bits.
    #[inline]
    pub(crate) const fn of_60_bits(ticks: u64) -> Self {
        debug_assert!(ticks <= Self::MAX.0);
        Self(ticks)
    }

    /// Returns the ticks since the scale's beginning.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the packed state this many ticks later, or earlier; within the scale.
    #[inline]
    #[must_use]
    pub const fn shifted(self, ticks: i64) -> Self {
        Self::new(self.0.saturating_add_signed(ticks))
    }

    /// Returns the packed state of a bucket that holds `level`, 0 to [`LONGEST`](Self::LONGEST), at this moment.
    #[inline]
    pub(super) const fn before(self, level: i64) -> Self {
        // Every moment has that much of the scale before it.
        Self(self.0 - level as u64)
    }

    /// Returns the packed state this many ticks later, up to [`LONGEST`](Self::LONGEST) after a moment.
    #[inline]
    pub(super) const fn after(self, ticks: u64) -> Self {
        // Every moment has that much of the scale after it.
        Self(self.0 + ticks)
    }

    /// Returns the ticks from `earlier` to this one; below zero if that is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> i64 {
        // Both are below 2^62.
        self.0 as i64 - earlier.0 as i64
    }
}

/// A state of two buckets: when each was last empty.
pub type TwoWords = [PackedState; 2];

/// An instant on a store's timeline, and as a packed state on its scale.
#[derive(Clone, Copy, Debug)]
pub struct StoreTime {
    at: Timestamp,
    packed: PackedState,
    /// The Unix epoch on the scale, in two's complement.
    epoch: u64,
}

impl StoreTime {
    /// Creates the moment `at`, on the scale of a store that was made at `made` or before.
    ///
    /// The scale begins two years before `made`, so that every bucket that matters lies on it, and goes on for two
    /// years after the latest moment.
    #[inline]
    pub const fn new(at: Timestamp, made: Timestamp) -> Self {
        let mut nanos = at.nanos_since(made);
        const LATEST: u64 = (PackedState::MAX.0 - 2 * PackedState::LONGEST) / PackedState::PER_NANO;
        if nanos > LATEST {
            nanos = LATEST;
        }
        let packed = PackedState(nanos * PackedState::PER_NANO + PackedState::LONGEST);
        let epoch =
            PackedState::LONGEST.wrapping_sub(made.as_nanos().wrapping_mul(PackedState::PER_NANO));
        Self { at, packed, epoch }
    }

    /// Returns the instant.
    #[inline]
    pub const fn at(self) -> Timestamp {
        self.at
    }

    /// Returns the instant as a packed state.
    #[inline]
    pub const fn packed(self) -> PackedState {
        self.packed
    }

    /// Returns the instant of a packed state on the scale, in ticks, rounded up to a nanosecond.
    pub(crate) fn instant_of(self, packed: u64) -> Timestamp {
        let per_nano = i128::from(PackedState::PER_NANO);
        let ahead = i128::from(packed) - i128::from(self.packed.0);
        let nanos = i128::from(self.at.as_nanos()) + (ahead + per_nano - 1).div_euclid(per_nano);
        Timestamp::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// Returns the ticks from the Unix epoch to a packed state that is not before it, modulo 2⁶⁴; independent of the instant.
    #[inline]
    pub(super) const fn since_epoch(self, packed: PackedState) -> u64 {
        packed.0.wrapping_sub(self.epoch)
    }

    /// Returns the packed state `ticks` ticks after an instant, if it lies on the scale.
    pub(crate) fn packed_after(self, at: Timestamp, ticks: i64) -> Option<PackedState> {
        let since = i128::from(at.as_nanos()) - i128::from(self.at.as_nanos());
        let shift = since * i128::from(PackedState::PER_NANO) + i128::from(ticks);
        let packed = u64::try_from(i128::from(self.packed.0) + shift).ok()?;
        (packed <= PackedState::MAX.0).then_some(PackedState(packed))
    }
}
