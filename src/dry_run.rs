//! Dry runs: limits that decide and count, without effect on requests.
//!
//! A dry run is asked separately from the live limits. In one question, all or nothing would couple
//! them: a refusal by the dry run would leave the live limits uncharged, and a refusal by a live
//! limit would leave the dry run uncharged, so that its counts would depend on the other rule. So
//! the store decides each dry run by itself, at the same time as the others, and both rules see the
//! same requests, as in `replay --compare`. What the store cannot decide is undecided, under every
//! policy, and compared with nothing.
//!
//! The request waits for the answer. A task that nobody awaits would need a runtime and a bound on
//! how many there may be, would lose the order of a client's requests, and could not compare the
//! two decisions of a request. The price is one more question to the store, and the latency of the
//! slower answer.
//!
//! Keys are selected (`enforce_for`) by the high bits of their digest, not by a remainder, so the
//! selection is independent of shards by `digest() % n`. The name of the limit is left out: several
//! limits at one percentage are enforced for the same clients.

use std::sync::Arc;

use crate::{
    decision::{Decision, Verdict},
    error::Error,
    key::Key,
    observe::DistinctKeys,
    stats::Counter,
    striped::Striped,
};

/// The percentage and the counts of a limit that decides and counts, without effect on requests.
///
/// Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct DryRun {
    /// The percentage of keys whose decisions have effect, from 0 to 100.
    enforced_percent: u8,
    counters: Arc<DryRunCounters>,
}

impl DryRun {
    /// Sets the percentage of keys whose decisions have effect.
    ///
    /// # Errors
    ///
    /// When it is above 100.
    pub(crate) fn enforce_for(&mut self, percent: u8) -> Result<(), Error> {
        if percent > 100 {
            return Err(Error::new(format!(
                "a limit enforced for {percent} % of the keys: expected 0 to 100; 0 is a dry run, 100 enforces the limit"
            )));
        }
        self.enforced_percent = percent;
        Ok(())
    }

    /// Counts where another dry run does.
    #[cfg(feature = "config")]
    pub(crate) fn count_in(&mut self, other: &Self) {
        self.counters = Arc::clone(&other.counters);
    }

    /// Returns `true` if decisions about this key have no effect.
    #[inline]
    pub(crate) fn is_dry(&self, key: &Key) -> bool {
        match self.enforced_percent {
            0 => true,
            100.. => false,
            percent => percentile(key) >= percent,
        }
    }

    /// Returns `true` if decisions about some keys have effect.
    pub(crate) fn has_effect(&self) -> bool {
        self.enforced_percent > 0
    }

    /// Returns `true` if a request without a key proceeds: no percentage selects it.
    pub(crate) fn spares_missing_keys(&self) -> bool {
        self.enforced_percent < 100
    }
}

/// Returns the percentile of a key, from 0 to 99, equal on every node.
// From the high bits, so that it is independent of a choice by `digest() % n`.
fn percentile(key: &Key) -> u8 {
    ((u128::from(key.digest()) * 100) >> u64::BITS) as u8
}

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
struct DryRunCounters {
    decisions: Striped<DecisionCounters>,
    missing_key: Counter,
    refused_keys: DistinctKeys,
    refused_alone_keys: DistinctKeys,
}

/// The counters of decisions.
#[derive(Debug, Default)]
struct DecisionCounters {
    /// By the decision of the other limit: none, admitted, refused.
    admitted: [Counter; 3],
    refused: [Counter; 3],
    delayed: Counter,
    undecided: Counter,
}

/// Indices by the decision of the other limit.
const NONE: usize = 0;
const ADMITTED: usize = 1;
const REFUSED: usize = 2;

impl DryRun {
    /// Counts a decision without effect. `live` is the decision of the limit that it is compared
    /// with.
    #[inline]
    pub(crate) fn count(&self, key: &Key, decision: &Decision, live: Option<&Decision>) {
        let counters = self.counters.decisions.of_this_thread();
        let live = match live.and_then(refuses) {
            None => NONE,
            Some(false) => ADMITTED,
            Some(true) => REFUSED,
        };
        match refuses(decision) {
            None => counters.undecided.add(1),
            Some(false) => {
                counters.admitted[live].add(1);
                if decision.would_delay() {
                    counters.delayed.add(1);
                }
            }
            Some(true) => {
                counters.refused[live].add(1);
                self.add_refused_key(key, live == ADMITTED);
            }
        }
    }

    // Not inlined, so that the path of an admission stays short.
    #[inline(never)]
    fn add_refused_key(&self, key: &Key, alone: bool) {
        self.counters.refused_keys.add(key);
        if alone {
            self.counters.refused_alone_keys.add(key);
        }
    }

    /// Counts a request without a key, which is not refused.
    pub(crate) fn count_missing_key(&self) {
        self.counters.missing_key.add(1);
    }

    /// Returns the counts so far.
    pub(crate) fn report(&self) -> DryRunReport {
        let all = &self.counters;
        let sum = |counter: fn(&DecisionCounters) -> &Counter| all.decisions.sum(counter);
        let both_admitted = sum(|counters| &counters.admitted[ADMITTED]);
        let admitted_alone = sum(|counters| &counters.admitted[REFUSED]);
        let both_refused = sum(|counters| &counters.refused[REFUSED]);
        let refused_alone = sum(|counters| &counters.refused[ADMITTED]);
        DryRunReport {
            admitted: sum(|counters| &counters.admitted[NONE]) + both_admitted + admitted_alone,
            delayed: sum(|counters| &counters.delayed),
            refused: sum(|counters| &counters.refused[NONE]) + both_refused + refused_alone,
            refused_keys: all.refused_keys.estimate(),
            undecided: sum(|counters| &counters.undecided),
            missing_key: all.missing_key.get(),
            both_admitted,
            both_refused,
            admitted_alone,
            refused_alone,
            refused_alone_keys: all.refused_alone_keys.estimate(),
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
