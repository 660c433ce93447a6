//! The counters of a dry run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::DryRunReport;
use crate::{
    decision::{Decision, Verdict},
    key::Key,
    observe::DistinctKeys,
};

/// The counters of a dry run. A request writes one of them, and the sketches if it would have been refused.
#[derive(Debug, Default)]
pub(super) struct DryRunCounters {
    stripes: [Stripe; STRIPES],
    missing_key: AtomicU64,
    refused_keys: DistinctKeys,
    refused_alone_keys: DistinctKeys,
}

/// Number of copies of each counter.
const STRIPES: usize = 16;

/// Counters on a cache line of their own: up to 16 threads never write the same line.
// Relaxed throughout: counts that are read for a report order nothing.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
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
        let stripe = &self.stripes[STRIPE.with(|stripe| *stripe)];
        let live = match live.and_then(refuses) {
            None => NONE,
            Some(false) => ADMITTED,
            Some(true) => REFUSED,
        };
        match refuses(decision) {
            None => add(&stripe.undecided),
            Some(false) => {
                add(&stripe.admitted[live]);
                if decision.would_delay() {
                    add(&stripe.delayed);
                }
            }
            Some(true) => {
                add(&stripe.refused[live]);
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
        let sum = |counter: fn(&Stripe) -> &AtomicU64| {
            let counts = self.stripes.iter().map(|stripe| read(counter(stripe)));
            counts.fold(0, u64::wrapping_add)
        };
        let both_admitted = sum(|stripe| &stripe.admitted[ADMITTED]);
        let admitted_alone = sum(|stripe| &stripe.admitted[REFUSED]);
        let both_refused = sum(|stripe| &stripe.refused[REFUSED]);
        let refused_alone = sum(|stripe| &stripe.refused[ADMITTED]);
        DryRunReport {
            admitted: sum(|stripe| &stripe.admitted[NONE]) + both_admitted + admitted_alone,
            delayed: sum(|stripe| &stripe.delayed),
            refused: sum(|stripe| &stripe.refused[NONE]) + both_refused + refused_alone,
            refused_keys: self.refused_keys.estimate(),
            undecided: sum(|stripe| &stripe.undecided),
            missing_key: read(&self.missing_key),
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

thread_local! {
    /// The index of the stripe that this thread writes.
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
