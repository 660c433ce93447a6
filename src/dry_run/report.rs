//! The counts of a dry run.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    decision::{Decision, Verdict},
    key::Key,
};

/// The counts of a [dry run](crate::Limit::dry_run) since its layer was made.
///
/// ```
/// use tollgate::{DryRunReport, RateLimitLayer, TokenBucket};
///
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).dry_run();
/// assert_eq!(layer.dry_run_report("default"), Some(DryRunReport::default()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DryRunReport {
    /// Requests that the limit would have admitted, at once or after a delay.
    pub admitted: u64,
    /// Requests that the limit would have refused.
    pub refused: u64,
    /// Requests about which the store could not decide.
    pub undecided: u64,
    /// Requests without a key, which the limit would have refused.
    pub missing_key: u64,
    /// Requests that the limit would have refused, and the limit that it is compared with did not.
    pub refused_alone: u64,
    /// Requests that the limit would have admitted, and the limit that it is compared with refused.
    pub admitted_alone: u64,
}

#[derive(Debug, Default)]
pub(super) struct DryRunCounters {
    admitted: AtomicU64,
    refused: AtomicU64,
    undecided: AtomicU64,
    missing_key: AtomicU64,
    refused_alone: AtomicU64,
    admitted_alone: AtomicU64,
}

impl DryRunCounters {
    pub(super) fn count(&self, _key: &Key, decision: &Decision, live: Option<&Decision>) {
        let live_refuses = live.map(|live| match live.verdict() {
            Verdict::DryRun { admitted } => !admitted,
            verdict => verdict == Verdict::Refuse,
        });
        match decision.verdict() {
            Verdict::DryRun { admitted: true } => {
                add(&self.admitted);
                if live_refuses == Some(true) {
                    add(&self.admitted_alone);
                }
            }
            Verdict::DryRun { admitted: false } => {
                add(&self.refused);
                if live_refuses == Some(false) {
                    add(&self.refused_alone);
                }
            }
            _ => add(&self.undecided),
        }
    }

    pub(super) fn count_missing_key(&self) {
        add(&self.missing_key);
    }

    pub(super) fn report(&self) -> DryRunReport {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DryRunReport {
            admitted: read(&self.admitted),
            refused: read(&self.refused),
            undecided: read(&self.undecided),
            missing_key: read(&self.missing_key),
            refused_alone: read(&self.refused_alone),
            admitted_alone: read(&self.admitted_alone),
        }
    }
}

// Relaxed: counts that are read for a report order nothing.
fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
