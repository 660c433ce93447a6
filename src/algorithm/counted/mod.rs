//! What a store that can only add, and tell the total, needs of a rule.

mod rule;
mod slicing;

use super::Algorithm;
use crate::{error::Error, time::Timestamp};

pub use self::{rule::CountedRule, slicing::Slicing};

/// A rule that counters can run: its state is what was admitted in each slice of time.
///
/// The totals of counters become the rule's own state, and [`Algorithm::step`] decides from that as it does
/// anywhere: there is one place for the numbers of a decision.
///
/// # Laws
///
/// Beside those of [`Algorithm`]:
///
/// - A call at `now` counts in the slice of `now`, and what counts then is that slice and the
///   [older](Slicing::older) ones before it, nothing else.
/// - An admission adds its cost to the counter of its slice, a settlement corrects the counter of the slice
///   that was charged, and nothing else changes a counter.
/// - The more a counter holds, the less passes.
#[diagnostic::on_unimplemented(
    message = "the rule `{Self}` cannot be run by counters, which only add and tell the total",
    label = "not a window that can be counted",
    note = "counters run `FixedWindow`, `SlidingWindow`, and `CountedRule`, which `CountedRule::try_from(rule)` makes of an \
            `AnyRule`; for another rule take a store that compares and swaps (`Optimistic`), one that runs a script \
            (`Redis`), or `Local`"
)]
pub trait Counted: Algorithm {
    /// How time is cut into slices that are counted.
    ///
    /// # Errors
    ///
    /// When windows of this kind cannot be named by the time, as those that begin with a key's first call.
    fn slicing(&self) -> Result<Slicing, Error>;

    /// The state of a key that has counted so much in the slice of `at` (the first total), and in each of the
    /// [older](Slicing::older) ones before it; written last at `at`.
    ///
    /// Totals that are not given are 0. `None` is a key that has counted nothing.
    fn state_of_totals(&self, totals: &[u64], at: Timestamp) -> Option<Self::State>;
}
