//! The counts of the events of a layer.

/// The counts of the events of a layer, as [`EventCounters`](super::EventCounters) has them.
///
/// A layer with several limits reports each limit by itself, so one request may count several times.
///
/// ```
/// use tollgate::observe::EventCounts;
///
/// /// The share of decisions that were refusals, in percent.
/// fn refused(counts: &EventCounts) -> u64 {
///     100 * counts.refused / counts.decisions().max(1)
/// }
/// # assert_eq!(refused(&EventCounts::default()), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EventCounts {
    /// Requests that a limit admitted at once.
    pub admitted: u64,
    /// Requests that a limit admitted after a delay, including those that were dropped before their turn.
    pub delayed: u64,
    /// Requests that a limit refused.
    pub refused: u64,
    /// Requests that the store could not decide, and that a limit let proceed.
    pub undecided_admitted: u64,
    /// Requests that the store could not decide, and that a limit refused.
    pub undecided_refused: u64,
    /// Requests that all limits of the layer exempted.
    pub exempt: u64,
    /// Requests without a key.
    pub missing_key: u64,
    /// Charges that were corrected to their actual cost.
    pub settled: u64,
    /// Requests that a limit on a dry run would have refused.
    pub dry_run_refused: u64,
    /// Requests that a limit on a dry run would not have refused, including those that the store could not decide.
    pub dry_run_passed: u64,
}

impl EventCounts {
    /// Returns the number of decisions: admitted, delayed, refused and undecided. Limits on a dry run are not included.
    pub const fn decisions(&self) -> u64 {
        // Sums wrap as the counters do.
        self.admitted
            .wrapping_add(self.delayed)
            .wrapping_add(self.refused)
            .wrapping_add(self.undecided())
    }

    /// Returns the number of requests that the store could not decide, whether they proceeded or not.
    pub const fn undecided(&self) -> u64 {
        self.undecided_admitted.wrapping_add(self.undecided_refused)
    }
}
