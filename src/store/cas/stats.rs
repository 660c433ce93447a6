//! The counters of a store of the compare-and-swap class.

use crate::store::engine::stats;

stats! {
    /// Counters of an [`Optimistic`](super::Optimistic) store and its clones since it was built.
    ///
    /// ```
    /// use tollgate::store::CasStats;
    ///
    /// /// The share of swaps that lost a race against another process, in percent.
    /// fn contention(stats: &CasStats) -> u64 {
    ///     100 * stats.lost / stats.swaps.max(1)
    /// }
    /// # assert_eq!(contention(&CasStats::default()), 0);
    /// ```
    pub struct CasStats {
        counted {
            /// Loads sent.
            loads,
            /// Swaps sent.
            swaps,
            /// Swaps that lost their race.
            lost,
            /// Calls, settlements and resets that were given up as [contended](crate::store::Error::is_contended).
            contended,
            /// Values, and states in them, that could not be read and counted as no state, each time that they were read.
            healed,
            /// Values, and states in them, that a newer version of the program wrote, each time that they were read.
            newer,
        }
        given {
            /// Settlements that gave nothing back because [too many](crate::LeakyBucket#calls-that-are-cancelled) did before, and those that
            /// failed, or whose answer was lost. They may have been made, so none is repeated.
            unsettled: u64,
        }
    }
    struct Counters;
}
