//! A dry run: its settings and its counters.

use std::sync::Arc;

use super::{DryRunReport, Enforcement, counters::DryRunCounters};
use crate::{decision::Decision, error::Error, key::Key, policy::Policy};

/// A limit that decides and counts, without effect on requests. Made by
/// [`Limit::dry_run`](crate::Limit::dry_run).
///
/// Clones share the counts.
///
/// ```
/// use tollgate::{Cost, DryRun, FixedRule, Limit, TokenBucket, key::Global};
///
/// let limit: Limit<TokenBucket, FixedRule, Global, Cost, DryRun> = Limit::new(TokenBucket::per_second(10)).dry_run();
/// # let _ = limit;
/// ```
#[derive(Clone, Debug, Default)]
pub struct DryRun {
    /// The percentage of keys whose decisions have effect, from 0 to 100.
    enforced_percent: u8,
    shown: bool,
    beside: Option<Policy>,
    counters: Arc<DryRunCounters>,
}

impl DryRun {
    /// Sets the percentage of keys whose decisions have effect.
    ///
    /// # Errors
    ///
    /// When it is above 100.
    pub(crate) fn enforce_for(self, percent: u8) -> Result<Self, Error> {
        if percent > 100 {
            return Err(Error::new(format!(
                "a limit enforced for {percent} % of the keys: expected 0 to 100; 0 is a dry run, 100 enforces the limit"
            )));
        }
        Ok(Self {
            enforced_percent: percent,
            ..self
        })
    }

    /// Shows the decisions in the rate limit fields of responses.
    pub(crate) fn shown(self) -> Self {
        Self {
            shown: true,
            ..self
        }
    }

    /// Compares the decisions with those of another limit of the layer.
    pub(crate) fn beside(self, live: Policy) -> Self {
        Self {
            beside: Some(live),
            ..self
        }
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

    /// Returns `true` if responses and outcomes contain the decisions.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown
    }

    /// Returns the policy of the limit that this one is compared with.
    pub(crate) fn live(&self) -> Option<&Policy> {
        self.beside.as_ref()
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

impl Enforcement for DryRun {
    const MAY_BE_DRY: bool = true;

    fn dry_run(&self) -> Option<&DryRun> {
        Some(self)
    }

    fn into_dry_run(self) -> DryRun {
        DryRun {
            enforced_percent: 0,
            ..self
        }
    }
}

/// Returns the percentile of a key, from 0 to 99, equal on every node.
// From the high bits, so that it is independent of a choice by `digest() % n`.
fn percentile(key: &Key) -> u8 {
    ((u128::from(key.digest()) * 100) >> u64::BITS) as u8
}
