//! The counters of a dry run.

use std::sync::atomic::{AtomicU64, Ordering};

use super::DryRunReport;
use crate::{
    decision::{Decision, Verdict},
    key::Key,
    observe::DistinctKeys,
    striped::Striped,
};

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
