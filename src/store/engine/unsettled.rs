//! The count of settlements that failed.

use std::sync::Arc;

#[cfg(feature = "tokio")]
use super::spawn_detached;
use crate::stats::Counter;
#[cfg(feature = "tokio")]
use crate::store::{BoxFuture, Check, StoreError};

/// A counter of settlements that failed or may have failed. Clones share it.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Unsettled(Arc<Counter>);

impl Unsettled {
    pub(in crate::store) fn count(&self) -> u64 {
        self.0.get()
    }

    /// Counts settlements that were made, but refunded nothing.
    pub(in crate::store) fn add(&self, settlements: u64) {
        self.0.add(settlements);
    }

    /// Returns a guard for a number of settlements that begin now.
    pub(in crate::store) fn settling(&self, settlements: usize) -> SettlementGuard {
        SettlementGuard {
            count: self.clone(),
            left: settlements as u64,
        }
    }
}

/// A guard of settlements in flight. On drop it counts those that were not marked as made, so no
/// path can lose one uncounted.
#[derive(Debug)]
pub(in crate::store) struct SettlementGuard {
    count: Unsettled,
    left: u64,
}

impl SettlementGuard {
    /// Marks one settlement as made.
    // A method, so that a closure that calls it captures the guard and not the number alone.
    #[cfg(feature = "tokio")]
    fn made(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Marks all settlements as made, or as counted elsewhere.
    pub(in crate::store) fn all_made(mut self) {
        self.left = 0;
    }

    /// Makes the settlements one after the other, also if the returned future is dropped. One that
    /// fails does not keep the others from being made; the first error is returned.
    #[cfg(feature = "tokio")]
    pub(in crate::store) fn make_each<F>(
        mut self,
        settlements: impl IntoIterator<Item = F, IntoIter: Send + 'static>,
    ) -> Check<BoxFuture<Result<(), StoreError>>>
    where
        F: Future<Output = Result<(), StoreError>> + Send,
    {
        let settlements = settlements.into_iter();
        spawn_detached(async move {
            let mut result = Ok(());
            for settlement in settlements {
                let settled = settlement.await;
                if settled.is_ok() {
                    self.made();
                }
                result = result.and(settled);
            }
            result
        })
    }
}

impl Drop for SettlementGuard {
    fn drop(&mut self) {
        self.count.add(self.left);
    }
}
