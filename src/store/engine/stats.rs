//! Counters of a store, the public struct that shows them, and the count of settlements that
//! failed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

#[cfg(feature = "tokio")]
use super::spawn_detached;
#[cfg(feature = "tokio")]
use crate::store::{BoxFuture, Check, Error};

/// A counter that the clones of a store or a layer share.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    // Relaxed throughout: a count is read for a report and orders nothing.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Adds one, and returns the count with it.
    pub(crate) fn increment(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares the public statistics of a store or a layer, and its counters, so that a count is one
/// line.
///
/// Fields under `counted` have a [`Counter`] of their own; those under `given` are parameters of
/// `read`.
#[cfg(feature = "tokio")]
macro_rules! stats {
    (
        $(#[$stats_attr:meta])*
        pub struct $Stats:ident {
            counted { $($(#[$counted_attr:meta])* $counted:ident,)* }
            given { $($(#[$given_attr:meta])* $given:ident: $Given:ty,)* }
        }
        $(#[$counters_attr:meta])*
        struct $Counters:ident;
    ) => {
        $(#[$stats_attr])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $Stats {
            $($(#[$counted_attr])* pub $counted: u64,)*
            $($(#[$given_attr])* pub $given: $Given,)*
        }

        $(#[$counters_attr])*
        #[derive(Debug, Default)]
        pub(super) struct $Counters {
            $(pub(super) $counted: $crate::store::Counter,)*
        }

        impl $Counters {
            pub(super) fn read(&self, $($given: $Given),*) -> $Stats {
                $Stats {
                    $($counted: self.$counted.get(),)*
                    $($given,)*
                }
            }
        }
    };
}

#[cfg(feature = "tokio")]
pub(crate) use stats;

/// A counter of settlements that failed or may have failed. Clones share it.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Unsettled(Arc<AtomicU64>);

impl Unsettled {
    // Relaxed throughout: the count is for reports and orders nothing.
    pub(in crate::store) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts settlements that were made, but refunded nothing.
    pub(in crate::store) fn add(&self, settlements: u64) {
        self.0.fetch_add(settlements, Ordering::Relaxed);
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
    ) -> Check<BoxFuture<Result<(), Error>>>
    where
        F: Future<Output = Result<(), Error>> + Send,
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
        self.count.0.fetch_add(self.left, Ordering::Relaxed);
    }
}
