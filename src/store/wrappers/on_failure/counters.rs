//! Counts and logs the errors of a store.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::{
    policy::Policy,
    store::{Ask, Error, Settlement},
};

/// The policies of one call, owned.
pub(super) type Policies = SmallVec<[Policy; 1]>;

pub(super) fn policies_of_asks<Rule>(asks: &[Ask<'_, Rule>]) -> Policies {
    asks.iter().map(|ask| ask.policy().clone()).collect()
}

pub(super) fn policies_of_settlements<Rule>(settlements: &[Settlement<'_, Rule>]) -> Policies {
    let policies = settlements.iter().map(|settlement| settlement.policy);
    policies.cloned().collect()
}

/// The kinds of errors that are answered differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The store failed.
    Failed,
    /// The store works, but lost every race for a key.
    Contended,
    /// The store cannot decide this call, but may decide others.
    Unsupported,
}

/// Counters of one store's errors, and their log (feature `tracing`).
#[derive(Debug)]
pub(super) struct FailureCounters {
    failures: AtomicU64,
    unwritten: AtomicU64,
    contentions: AtomicU64,
    unsupported: AtomicU64,
    #[cfg(feature = "tracing")]
    log: super::log::FailureLog,
}

impl FailureCounters {
    /// Creates the counters of a store at `address`. `consequence` is the part of the log line that describes what happens to
    /// requests.
    pub(super) fn new(address: Option<&str>, consequence: &'static str) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = (address, consequence);
        Self {
            failures: AtomicU64::default(),
            unwritten: AtomicU64::default(),
            contentions: AtomicU64::default(),
            unsupported: AtomicU64::default(),
            #[cfg(feature = "tracing")]
            log: super::log::FailureLog::new(address, consequence),
        }
    }

    // Relaxed throughout: the counts are for reports and order nothing.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(super) fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    pub(super) fn contentions(&self) -> u64 {
        self.contentions.load(Ordering::Relaxed)
    }

    pub(super) fn unsupported(&self) -> u64 {
        self.unsupported.load(Ordering::Relaxed)
    }

    /// Logs that the store has answered a call, if a failure is the last that was logged.
    #[inline]
    pub(super) fn answered(&self) {
        #[cfg(feature = "tracing")]
        self.log.log_answer(|| self.failures());
    }

    /// Counts and logs the error of a call.
    pub(super) fn record<'a>(
        &self,
        error: &Error,
        policies: impl IntoIterator<Item = &'a Policy>,
    ) -> FailureKind {
        if error.is_contended() {
            self.contentions.fetch_add(1, Ordering::Relaxed);
            return FailureKind::Contended;
        }
        if error.is_unsupported() {
            self.unsupported.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "tracing")]
            self.log.log_unsupported(error, policies);
            return FailureKind::Unsupported;
        }
        if error.is_unwritten() {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        #[cfg(feature = "tracing")]
        self.log.log_failure(error, policies, failures);
        #[cfg(not(feature = "tracing"))]
        let _ = (failures, policies);
        FailureKind::Failed
    }
}
