//! The counters of a store of the script class.

use crate::store::engine::stats;

stats! {
    /// Counters of a [`Script`](super::Script) store and its clones since it was built.
    ///
    /// ```
    /// use tollgate::store::ScriptStats;
    ///
    /// /// Calls of each request: more than one if calls come while others are in flight.
    /// fn calls_per_request(stats: &ScriptStats) -> u64 {
    ///     stats.calls / stats.requests.max(1)
    /// }
    /// # assert_eq!(calls_per_request(&ScriptStats::default()), 0);
    /// ```
    pub struct ScriptStats {
        counted {
            /// Requests that were sent to decide.
            requests,
            /// Calls in those requests.
            calls,
            /// States that could not be read and counted as none.
            healed,
        }
        given {
            /// Settlements that gave nothing back because [too many](crate::LeakyBucket#calls-that-are-cancelled) did before, and those
            /// that failed or whose answer was lost, including those that no caller waited for. They may have been
            /// made, so none is repeated.
            unsettled: u64,
        }
    }
    struct Counters;
}
