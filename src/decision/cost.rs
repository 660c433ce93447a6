//! The cost of a request.

use std::num::NonZeroU64;

/// What one request spends, in units: at least 1.
///
/// Looking without spending is `look`, never a cost of 0. A cost above a rule's
/// capacity is refused always, and disturbs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(NonZeroU64);

impl Cost {
    /// One unit: the default.
    pub const ONE: Self = Self(NonZeroU64::MIN);

    /// `units` units; `None` for 0.
    pub const fn new(units: u64) -> Option<Self> {
        match NonZeroU64::new(units) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// The number of units.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl From<NonZeroU64> for Cost {
    fn from(units: NonZeroU64) -> Self {
        Self(units)
    }
}
