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

mod report;

use std::sync::Arc;

use self::report::DryRunCounters;
pub use self::report::DryRunReport;
use crate::{decision::Decision, error::Error, key::Key};

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

    /// Returns `true` if decisions about this key have no effect.
    #[inline]
    pub(crate) fn is_dry(&self, key: &Key) -> bool {
        match self.enforced_percent {
            0 => true,
            100.. => false,
            percent => percentile(key) >= percent,
        }
    }

    /// Returns `true` if a request without a key proceeds: no percentage selects it.
    pub(crate) fn spares_missing_keys(&self) -> bool {
        self.enforced_percent < 100
    }

    /// Counts a decision without effect. `live` is the decision of the limit that it is compared
    /// with.
    #[inline]
    pub(crate) fn count(&self, key: &Key, decision: &Decision, live: Option<&Decision>) {
        self.counters.count(key, decision, live);
    }

    /// Counts a request without a key, which is not refused.
    pub(crate) fn count_missing_key(&self) {
        self.counters.count_missing_key();
    }

    /// Returns the counts so far.
    pub(crate) fn report(&self) -> DryRunReport {
        self.counters.report()
    }
}

/// Returns the percentile of a key, from 0 to 99, equal on every node.
// From the high bits, so that it is independent of a choice by `digest() % n`.
fn percentile(key: &Key) -> u8 {
    ((u128::from(key.digest()) * 100) >> u64::BITS) as u8
}
