//! Counters of a store, and the public struct that shows them.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// Declares the public statistics of a store or a layer, and its counters, so that a count is one line.
///
/// Fields under `counted` have a [`Counter`] of their own; those under `given` are parameters of `read`.
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
