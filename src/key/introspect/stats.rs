//! The counters of a layer.

use crate::store::stats;

stats! {
    /// Counters of an [`Introspect`](super::Introspect) layer and its clones since it was built.
    ///
    /// ```
    /// use tollgate::key::introspect::IntrospectStats;
    ///
    /// /// The share of tokens that were answered from the cache, in percent.
    /// fn hit_rate(stats: &IntrospectStats) -> u64 {
    ///     100 * stats.hits / (stats.hits + stats.lookups + stats.shared).max(1)
    /// }
    /// # assert_eq!(hit_rate(&IntrospectStats::default()), 0);
    /// ```
    pub struct IntrospectStats {
        counted {
            /// Requests whose token was answered from the cache.
            hits,
            /// Look-ups that were started.
            lookups,
            /// Requests that waited for a look-up that another request had started.
            shared,
            /// Look-ups that failed: all of the next three, and other errors.
            failed,
            /// Look-ups without an answer within the deadline.
            timeouts,
            /// Look-ups with an answer that could not be read.
            invalid_answers,
            /// Look-ups that ended by a panic, or with their runtime.
            aborted,
            /// Look-ups of active tokens whose `exp` had passed by this node's clock. They count as inactive; if there are many, a clock is wrong.
            expired,
            /// Requests whose token was not looked up, because too many others were: `stale` or `unavailable`.
            crowded,
            /// Requests that were answered by claims older than their lifetime, because the look-up failed, or too many others were made.
            stale,
            /// Requests that were refused with 503, because their token could not be checked.
            unavailable,
            /// Requests that were passed on although their token could not be checked.
            unchecked,
            /// Requests that were refused with 401, because their token is not active.
            inactive,
            /// Requests that were refused with 401, because their `Authorization` contains no valid token.
            malformed,
            /// Requests without a token, refused with 401 or passed on.
            anonymous,
        }
        given {
            /// Active tokens in the cache, including those whose lifetime has ended.
            cached: u64,
            /// Inactive tokens in the cache, including those whose lifetime has ended.
            cached_inactive: u64,
            /// Look-ups in flight.
            in_flight: u64,
        }
    }
    struct Counters;
}
