//! How a key stands: told outright, or worked out when somebody asks.

use std::time::Duration;

use super::Position;
use crate::clock::Timestamp;

/// What remains, and the waits until there is more and until all is back.
///
/// Most decisions are made and never read: the common bucket leaves its level, and
/// the divisions wait for whoever writes a header.
#[derive(Clone, Copy)]
pub(super) enum Standing {
    /// And where the charge lies, if that is told.
    Told(Told, Option<Position>),
    Filling(Filling),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) remaining: u64,
    pub(crate) reset_after: Duration,
    pub(crate) more_after: Duration,
}

/// A bucket that gains a token every `interval`, in thirds of a nanosecond of filling.
#[derive(Clone, Copy)]
pub(crate) struct Filling {
    /// Below zero in debt, at most `full`.
    pub(crate) level: i64,
    /// Above zero.
    pub(crate) interval: u64,
    /// Below 2⁶².
    pub(crate) full: u64,
    /// Nanoseconds until the clock has caught up with the last write.
    pub(crate) stalled: u64,
    /// Nanoseconds that were given back to the key, or [`NO_POSITION`](Self::NO_POSITION).
    pub(crate) given_back: u64,
}

impl Standing {
    pub(super) const NONE: Self = Self::of(Told {
        remaining: 0,
        reset_after: Duration::ZERO,
        more_after: Duration::ZERO,
    });

    #[inline]
    pub(super) const fn of(told: Told) -> Self {
        Self::Told(told, None)
    }

    #[inline]
    pub(super) const fn told(&self) -> Told {
        match self {
            Self::Told(told, _) => *told,
            Self::Filling(filling) => filling.told(),
        }
    }
}

impl Standing {
    /// Where the charge of a decision at `at` lies.
    pub(super) const fn position(&self, at: Timestamp) -> Option<Position> {
        match self {
            Self::Told(_, position) => *position,
            Self::Filling(filling) => filling.position(at),
        }
    }
}

impl Filling {
    /// Instead of what was given back: what fills is not one bucket whose charges have a position.
    pub(crate) const NO_POSITION: u64 = u64::MAX;

    const fn position(&self, at: Timestamp) -> Option<Position> {
        if self.given_back == Self::NO_POSITION {
            return None;
        }
        // Two's complement: a debt of up to 2^63 is added.
        let lacking = self.full.wrapping_sub(self.level as u64) / 3;
        let end = at
            .as_nanos()
            .saturating_add(self.stalled)
            .saturating_add(lacking);
        Some(Position::new(end, self.given_back))
    }

    #[inline]
    const fn told(&self) -> Told {
        let held = if self.level > 0 { self.level as u64 } else { 0 };
        let remaining = held / self.interval;
        if self.level == self.full as i64 {
            let (reset_after, more_after) = (Duration::ZERO, Duration::ZERO);
            return Told {
                remaining,
                reset_after,
                more_after,
            };
        }
        Told {
            remaining,
            reset_after: self.wait(self.full),
            more_after: self.wait((remaining + 1) * self.interval),
        }
    }

    /// The wait until the level is at `target`, below 2⁶² and above it.
    #[inline]
    pub(crate) const fn wait(&self, target: u64) -> Duration {
        // Two's complement: a debt of up to 2^63 is added.
        let lacking = target.wrapping_sub(self.level as u64).div_ceil(3);
        Duration::from_nanos(self.stalled.saturating_add(lacking))
    }
}

impl PartialEq for Standing {
    fn eq(&self, other: &Self) -> bool {
        self.told() == other.told()
    }
}

impl Eq for Standing {}
