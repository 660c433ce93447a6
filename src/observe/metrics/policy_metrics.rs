//! The metrics of one policy.

use std::{sync::OnceLock, time::Duration};

use metrics::{Counter, Histogram, Label};

use super::families::{DELAY, DRY_RUN, REQUESTS, SETTLED_UNITS};
use crate::decision::{Decision, Verdict};

/// The registered metrics of one policy. Those of rare features are registered when first needed.
#[derive(Debug)]
pub(super) struct PolicyMetrics {
    label: Label,
    admitted: Counter,
    delayed: Counter,
    refused: Counter,
    undecided_admitted: Counter,
    undecided_refused: Counter,
    delay: OnceLock<Histogram>,
    settled: OnceLock<Settled>,
    dry_run: OnceLock<DryRun>,
}

#[derive(Debug)]
struct Settled {
    returned: Counter,
    added: Counter,
}

#[derive(Debug)]
struct DryRun {
    admitted: Counter,
    delayed: Counter,
    refused: Counter,
    undecided: Counter,
}

impl PolicyMetrics {
    /// Registers the metrics of the policy of this name.
    pub(super) fn new(policy: &str) -> Self {
        let label = Label::new("policy", policy.to_owned());
        let outcome = |outcome| {
            let outcome = Label::from_static_parts("outcome", outcome);
            REQUESTS.counter(vec![label.clone(), outcome])
        };
        Self {
            admitted: outcome("admitted"),
            delayed: outcome("delayed"),
            refused: outcome("refused"),
            undecided_admitted: outcome("undecided_admitted"),
            undecided_refused: outcome("undecided_refused"),
            delay: OnceLock::new(),
            settled: OnceLock::new(),
            dry_run: OnceLock::new(),
            label,
        }
    }

    #[inline]
    pub(super) fn admitted(&self) {
        self.admitted.increment(1);
    }

    pub(super) fn delayed(&self, wait: Duration) {
        self.delayed.increment(1);
        let delay = self
            .delay
            .get_or_init(|| DELAY.histogram(vec![self.label.clone()]));
        delay.record(wait);
    }

    #[inline]
    pub(super) fn refused(&self) {
        self.refused.increment(1);
    }

    pub(super) fn undecided(&self, decision: &Decision) {
        let counter = if decision.is_admitted() {
            &self.undecided_admitted
        } else {
            &self.undecided_refused
        };
        counter.increment(1);
    }

    pub(super) fn settled(&self, charged: u64, actual: u64) {
        let settled = self.settled.get_or_init(|| {
            let direction = |direction| {
                let direction = Label::from_static_parts("direction", direction);
                SETTLED_UNITS.counter(vec![self.label.clone(), direction])
            };
            Settled {
                returned: direction("returned"),
                added: direction("added"),
            }
        });
        settled.returned.increment(charged.saturating_sub(actual));
        settled.added.increment(actual.saturating_sub(charged));
    }

    pub(super) fn dry_run(&self, decision: &Decision) {
        let dry_run = self.dry_run.get_or_init(|| {
            let verdict = |verdict| {
                let verdict = Label::from_static_parts("verdict", verdict);
                DRY_RUN.counter(vec![self.label.clone(), verdict])
            };
            DryRun {
                admitted: verdict("admitted"),
                delayed: verdict("delayed"),
                refused: verdict("refused"),
                undecided: verdict("undecided"),
            }
        });
        let counter = match decision.verdict() {
            Verdict::Allow | Verdict::DryRun { admitted: true } => &dry_run.admitted,
            Verdict::Delay(_) => &dry_run.delayed,
            Verdict::Refuse | Verdict::DryRun { admitted: false } => &dry_run.refused,
            Verdict::Undecided { .. } => &dry_run.undecided,
        };
        counter.increment(1);
    }
}
