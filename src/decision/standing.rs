//! How a key stands: told outright, or worked out when somebody asks.

use std::time::Duration;

/// What remains, and the waits until there is more and until all is back.
///
/// Most decisions are made and never read: the common bucket leaves its level, and
/// the divisions wait for whoever writes a header.
#[derive(Clone, Copy)]
pub(super) enum Standing {
    Told(Told),
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
}

impl Standing {
    pub(super) const NONE: Self = Self::Told(Told {
        remaining: 0,
        reset_after: Duration::ZERO,
        more_after: Duration::ZERO,
    });

    #[inline]
    pub(super) const fn told(&self) -> Told {
        match self {
            Self::Told(told) => *told,
            Self::Filling(filling) => filling.told(),
        }
    }
}

impl Filling {
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
