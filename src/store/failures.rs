//! What a store could not do: counted, and told to its operator.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::{Ask, Error, Settlement};
use crate::policy::Policy;

/// The policies of a call that outlive it.
pub(super) type Policies = SmallVec<[Policy; 1]>;

pub(super) fn asked<Rule>(asks: &[Ask<'_, Rule>]) -> Policies {
    asks.iter().map(|ask| ask.policy().clone()).collect()
}

pub(super) fn settled<Rule>(settlements: &[Settlement<'_, Rule>]) -> Policies {
    let policies = settlements.iter().map(|settlement| settlement.policy);
    policies.cloned().collect()
}

/// Why a call was not answered, as far as that decides what is answered instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// The store failed.
    Failed,
    /// It lost every race: the store is there.
    Contended,
    /// The store cannot decide this call, and may decide any other.
    Unsupported,
}

/// Counts of one store, and the log of its failures (feature `tracing`).
#[derive(Debug)]
pub(super) struct Failures {
    failures: AtomicU64,
    contentions: AtomicU64,
    unsupported: AtomicU64,
    #[cfg(feature = "tracing")]
    log: super::failure_log::FailureLog,
}

impl Failures {
    /// Of a store at this address; `consequence` tells an operator what happens to requests meanwhile.
    pub(super) fn new(address: Option<&str>, consequence: &'static str) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = (address, consequence);
        Self {
            failures: AtomicU64::default(),
            contentions: AtomicU64::default(),
            unsupported: AtomicU64::default(),
            #[cfg(feature = "tracing")]
            log: super::failure_log::FailureLog::new(address, consequence),
        }
    }

    // Relaxed throughout: counts are read for a report and order nothing.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(super) fn contentions(&self) -> u64 {
        self.contentions.load(Ordering::Relaxed)
    }

    pub(super) fn unsupported(&self) -> u64 {
        self.unsupported.load(Ordering::Relaxed)
    }

    /// Counts and logs why a call was not answered.
    pub(super) fn note<'a>(
        &self,
        error: &Error,
        policies: impl IntoIterator<Item = &'a Policy>,
    ) -> Noted {
        if error.is_contended() {
            self.contentions.fetch_add(1, Ordering::Relaxed);
            return Noted::Contended;
        }
        if error.is_unsupported() {
            self.unsupported.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "tracing")]
            self.log.tell_unsupported(error, policies);
            return Noted::Unsupported;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        #[cfg(feature = "tracing")]
        self.log.tell(error, policies, failures);
        #[cfg(not(feature = "tracing"))]
        let _ = (failures, policies);
        Noted::Failed
    }
}
