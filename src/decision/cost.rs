//! The cost of a request.

use std::{fmt, num::NonZeroU64};

/// The units that a request spends: at least 1.
///
/// To look without spending, use `look`; there is no cost of 0. A cost above a rule's capacity is always refused.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, Timestamp, TokenBucket, pace::Pacer};
///
/// // An upload costs a unit for each started kilobyte.
/// let cost = |bytes: u64| Cost::new(bytes.div_ceil(1000)).unwrap_or(Cost::ONE);
/// let pacer = Pacer::new(TokenBucket::per_minute(100));
/// let decision = pacer.spend(Timestamp::default(), cost(39_500)).unwrap();
/// assert_eq!(decision.remaining(), Some(60));
/// ```
#[doc(alias("weight", "tokens", "quantity"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(NonZeroU64);

impl Cost {
    /// One unit: the default.
    pub const ONE: Self = Self(NonZeroU64::MIN);

    /// Creates a cost of `units` units; `None` for 0.
    pub const fn new(units: u64) -> Option<Self> {
        match NonZeroU64::new(units) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// Returns the number of units.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl Default for Cost {
    /// One unit.
    fn default() -> Self {
        Self::ONE
    }
}

impl From<NonZeroU64> for Cost {
    fn from(units: NonZeroU64) -> Self {
        Self(units)
    }
}

impl From<Cost> for NonZeroU64 {
    fn from(cost: Cost) -> Self {
        cost.0
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
