//! The trait of rules that counters run.

use super::Slicing;
use crate::{algorithm::Algorithm, error::Error, time::Timestamp};

/// A rule that counters can run: its state is the number of admitted units in each slice of time.
///
/// The totals of counters become the rule's own state, and [`Algorithm::step`] decides on that state as in any other store.
///
/// # Laws
///
/// Beside those of [`Algorithm`]:
///
/// - A call at `now` counts in the slice of `now`, and only that slice and the [older](Slicing::older) ones before it count then.
/// - An admission adds its cost to the counter of its slice, a settlement corrects the counter of the slice
///   that was charged, and nothing else changes a counter.
/// - The more a counter holds, the less passes.
#[diagnostic::on_unimplemented(
    message = "the rule `{Self}` cannot be run by counters, which only add and tell the total",
    label = "not a window that can be counted",
    note = "counters run `FixedWindow`, `SlidingWindow`, and `CountedRule`, which `CountedRule::try_from(rule)` makes of an \
            `AnyRule`; for another rule take a store that compares and swaps (`Optimistic`), one that runs a script \
            (`Redis`), or `Local`",
    note = "counters cannot keep the longest of several instants, so they keep no blocks of keys (`with_blocks`)"
)]
pub trait Counted: Algorithm {
    /// Returns the slices of time that are counted.
    ///
    /// # Errors
    ///
    /// When the windows do not depend on time alone, as those that begin with a key's first call.
    fn slicing(&self) -> Result<Slicing, Error>;

    /// Returns the state of a key with these totals: the first one is of the slice of `at`, the next ones of the
    /// [older](Slicing::older) slices before it. The last write was at `at`.
    ///
    /// Totals that are not given are 0. `None` is a key that has counted nothing.
    fn state_of_totals(&self, totals: &[u64], at: Timestamp) -> Option<Self::State>;
}
