//! The counts of a dry run, for its operator.

/// The counts of a [dry run](crate::Limit::dry_run) since its limit was made, over all layers and
/// services that share it.
///
/// Contains the keys for which the limit has no effect: under
/// [`enforce_for(30)`](crate::Limit::enforce_for) the other 70 %. A request is counted when it is
/// decided. A request that is refused before the store is asked, because another limit of the layer
/// finds no key, is not decided.
///
/// The last five counts compare the limit with [another one](crate::Limit::compared_with) of its
/// layer, and are 0 without one. Requests that one of both did not decide are not compared: the
/// store could not decide, or the request is exempt.
///
/// ```
/// use tollgate::{DryRunReport, RateLimitLayer, TokenBucket};
///
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).dry_run();
/// assert_eq!(layer.dry_run_report("default"), Some(DryRunReport::default()));
/// ```
// The counters are read one after the other, so requests in progress may be in some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DryRunReport {
    /// Requests that the limit would have admitted, at once or after a delay.
    pub admitted: u64,
    /// Requests that the limit would have delayed. They are `admitted`, too.
    pub delayed: u64,
    /// Requests that the limit would have refused.
    pub refused: u64,
    /// Distinct keys of which a request would have been refused: exact up to 1,023, and with a
    /// standard error of 3.2 % above.
    pub refused_keys: u64,
    /// Requests about which the store could not decide.
    pub undecided: u64,
    /// Requests without a key, which the limit would have refused.
    pub missing_key: u64,
    /// Requests that both limits admit.
    pub both_admitted: u64,
    /// Requests that both limits refuse.
    pub both_refused: u64,
    /// Requests that this limit would have admitted, and the other one refused.
    pub admitted_alone: u64,
    /// Requests that this limit would have refused, and the other one admitted.
    pub refused_alone: u64,
    /// Distinct keys of the requests in `refused_alone`, as exact as `refused_keys`.
    pub refused_alone_keys: u64,
}
