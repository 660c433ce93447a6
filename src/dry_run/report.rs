//! The counts of a dry run.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    decision::{Decision, Verdict},
    key::Key,
    observe::DistinctKeys,
    striped::Striped,
};

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

/// The counters of a dry run. A request writes one of them, and the sketches if it would have been
/// refused.
#[derive(Debug, Default)]
pub(super) struct DryRunCounters {
    decisions: Striped<DecisionCounters>,
    missing_key: AtomicU64,
    refused_keys: DistinctKeys,
    refused_alone_keys: DistinctKeys,
}

/// The counters of decisions.
// Relaxed throughout: counts that are read for a report order nothing.
#[derive(Debug, Default)]
struct DecisionCounters {
    /// By the decision of the other limit: none, admitted, refused.
    admitted: [AtomicU64; 3],
    refused: [AtomicU64; 3],
    delayed: AtomicU64,
    undecided: AtomicU64,
}

/// Indices by the decision of the other limit.
const NONE: usize = 0;
const ADMITTED: usize = 1;
const REFUSED: usize = 2;

impl DryRunCounters {
    /// Counts a decision. `live` is that of the limit that it is compared with.
    #[inline]
    pub(super) fn count(&self, key: &Key, decision: &Decision, live: Option<&Decision>) {
        let counters = self.decisions.of_this_thread();
        let live = match live.and_then(refuses) {
            None => NONE,
            Some(false) => ADMITTED,
            Some(true) => REFUSED,
        };
        match refuses(decision) {
            None => add(&counters.undecided),
            Some(false) => {
                add(&counters.admitted[live]);
                if decision.would_delay() {
                    add(&counters.delayed);
                }
            }
            Some(true) => {
                add(&counters.refused[live]);
                self.add_refused_key(key, live == ADMITTED);
            }
        }
    }

    // Not inlined, so that the path of an admission stays short.
    #[inline(never)]
    fn add_refused_key(&self, key: &Key, alone: bool) {
        self.refused_keys.add(key);
        if alone {
            self.refused_alone_keys.add(key);
        }
    }

    pub(super) fn count_missing_key(&self) {
        add(&self.missing_key);
    }

    pub(super) fn report(&self) -> DryRunReport {
        let sum = |counter: fn(&DecisionCounters) -> &AtomicU64| self.decisions.sum(counter);
        let both_admitted = sum(|counters| &counters.admitted[ADMITTED]);
        let admitted_alone = sum(|counters| &counters.admitted[REFUSED]);
        let both_refused = sum(|counters| &counters.refused[REFUSED]);
        let refused_alone = sum(|counters| &counters.refused[ADMITTED]);
        DryRunReport {
            admitted: sum(|counters| &counters.admitted[NONE]) + both_admitted + admitted_alone,
            delayed: sum(|counters| &counters.delayed),
            refused: sum(|counters| &counters.refused[NONE]) + both_refused + refused_alone,
            refused_keys: self.refused_keys.estimate(),
            undecided: sum(|counters| &counters.undecided),
            missing_key: self.missing_key.load(Ordering::Relaxed),
            both_admitted,
            both_refused,
            admitted_alone,
            refused_alone,
            refused_alone_keys: self.refused_alone_keys.estimate(),
        }
    }
}

/// Returns `true` if a limit refuses, or would refuse on its dry run; `None` if it did not decide.
#[inline]
fn refuses(decision: &Decision) -> Option<bool> {
    match decision.verdict() {
        Verdict::Allow | Verdict::Delay(_) => Some(false),
        Verdict::Refuse => Some(true),
        Verdict::DryRun { admitted } => Some(!admitted),
        Verdict::Undecided { .. } => None,
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
