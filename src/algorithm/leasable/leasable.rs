//! The trait of rules whose units can be granted ahead of their use.

use std::time::Duration;

use super::Validity;
use crate::{algorithm::Algorithm, decision::Decision, error::Error};

/// A rule whose units a store can grant to a node, which spends them later: a [lease](crate::store::StoreExt::leased).
///
/// Granted units may be spent for some time, the hold. The store runs a [stricter rule](Self::held), so that all nodes together never exceed
/// this one. What that costs depends on the rule:
///
/// | rule | the store runs | granted units end |
/// |---|---|---|
/// | [`TokenBucket`](crate::TokenBucket) | a burst that is smaller by what is refilled during the hold | one by one, the hold after their position on the bucket's [time axis](crate::Charge::position) |
/// | [`FixedWindow`](crate::FixedWindow) | the same | with the window |
/// | [`SlidingWindow`](crate::SlidingWindow) | the same | with the slice in which they were granted |
/// | [`SlidingLog`](crate::algorithm::SlidingLog) | a window that is longer by the hold | together, after the hold |
/// | a pair of them, and an [`AnyRule`](crate::AnyRule) of them | each of the members as above | as soon as under one of the members |
///
/// No unit of a window outlives the hold either way: a node asks for what it needs during the hold. Queues and warm-ups delay, and a
/// cascade or a marker tells classes apart, so their units cannot be granted ahead.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{AnyRule, TokenBucket, algorithm::Leasable};
///
/// let rule = TokenBucket::per_second(10).burst(20);
/// assert_eq!(rule.usual_hold(), Duration::from_millis(200));
/// assert_eq!(rule.held(rule.usual_hold(), 1)?, TokenBucket::per_second(10).burst(18));
///
/// let queue: AnyRule = "leaky-bucket 10/s queue=5".parse()?;
/// assert!(queue.held(Duration::from_millis(200), 1).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "units of the rule `{Self}` cannot be leased",
    note = "leases are for `TokenBucket`, `FixedWindow`, `SlidingWindow`, `SlidingLog`, pairs of them, and `AnyRule`; for another rule leave \
            `.leased(…)` out, so that the store decides each call"
)]
pub trait Leasable: Algorithm + PartialEq {
    /// Returns the hold that is used if none is set: a tenth of the time in which the whole limit is refilled.
    fn usual_hold(&self) -> Duration;

    /// Returns the rule that the store runs if units are held for `hold`, and calls cost up to `max_cost` units.
    ///
    /// # Errors
    ///
    /// When that leaves less than `max_cost` units, or units of this rule cannot be leased.
    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error>;

    /// Returns how long the units of a grant are valid. The decision is that of the [stricter rule](Self::held), which is this one.
    fn validity(&self, granted: &Decision, hold: Duration) -> Validity;

    /// Returns the rule if a pair can lease it together with others.
    ///
    /// # Errors
    ///
    /// When its validity is not known from a decision of both.
    #[doc(hidden)]
    fn held_in_pair(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        self.held(hold, max_cost)
    }
}
