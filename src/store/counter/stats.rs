//! The counters of a store of the counter class.

use crate::store::engine::stats;

stats! {
    /// Counters of a [`Counters`](super::Counters) store and its clones since it was built.
    ///
    /// ```
    /// use tollgate::store::CounterStats;
    ///
    /// /// Refused calls that cost two writes, because nothing showed beforehand that they would be refused.
    /// fn surprises(stats: &CounterStats) -> u64 {
    ///     stats.taken_back + stats.left_behind
    /// }
    /// # assert_eq!(surprises(&CounterStats::default()), 0);
    /// ```
    pub struct CounterStats {
        counted {
            /// Additions, one for each ask that was not refused before.
            additions,
            /// Readings: for calls that were likely to be refused, for looks, and for slices that began meanwhile.
            readings,
            /// Additions that were refused and taken back.
            taken_back,
            /// Grants of less than was asked for: more was added, and taken back.
            cut,
            /// Additions that were refused, and those above a grant, that could not be taken back. They count until their slice no longer
            /// counts.
            left_behind,
            /// Units of background sync whose addition failed or was given up, each once. They may have been added, and are not added again.
            doubtful,
        }
        given {
            /// Settlements that failed, or whose answer was lost. They may have been made, so none is repeated.
            unsettled: u64,
        }
    }
    struct Counts;
}
