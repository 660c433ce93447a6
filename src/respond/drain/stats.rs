//! The counters of a responder that reads on.

use crate::store::stats;

stats! {
    /// Counters of a [`DrainBodies`](super::DrainBodies) and its clones since it was made.
    ///
    /// `started` is the sum of `finished`, `failed`, `given_up` and `in_flight`.
    ///
    /// ```
    /// use tollgate::respond::DrainStats;
    ///
    /// /// Uploads that were refused, and whose clients may have seen a reset instead.
    /// fn without_answer(stats: &DrainStats) -> u64 {
    ///     stats.given_up + stats.crowded + stats.no_runtime
    /// }
    /// # assert_eq!(without_answer(&DrainStats::default()), 0);
    /// ```
    pub struct DrainStats {
        counted {
            /// Bodies whose reading began.
            started,
            /// Bodies that were read to their end.
            finished,
            /// Bodies that ended with an error, as when the client hangs up, with a panic, or with their runtime.
            failed,
            /// Bodies that were dropped after 30 s, 5 s without a byte, or 32 MiB.
            given_up,
            /// Bodies that were dropped unread, because 256 others were being read.
            crowded,
            /// Bodies that were dropped unread, because the call was outside of a runtime of tokio.
            no_runtime,
        }
        given {
            /// Bodies that are being read.
            in_flight: u64,
        }
    }
    struct Counters;
}
