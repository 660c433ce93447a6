//! How a local store is set up.

use std::sync::Arc;

use super::{Inner, Local, seed::Seed, stats::Counters, table::Table};
use crate::{
    algorithm::Algorithm,
    clock::{Clock, SystemClock},
};

/// Sets up a [`Local`] store.
///
/// ```
/// use tollgate::{TokenBucket, store::{AtCapacity, Local, LocalBuilder}};
///
/// let store: Local<TokenBucket> = LocalBuilder::new()
///     .capacity(100_000)
///     .at_capacity(AtCapacity::AdmitNewcomers)
///     .build();
/// assert_eq!(store.stats().capacity, 100_000);
/// ```
#[derive(Clone, Debug)]
pub struct LocalBuilder<C = SystemClock> {
    capacity: usize,
    at_capacity: AtCapacity,
    clock: C,
}

/// What happens to a new key when the store is full of keys that still matter.
///
/// Either way the decision is [undecided](crate::Verdict::Undecided): the client did not exceed its
/// quota. Keys that are known stay limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtCapacity {
    /// Newcomers are turned away, over HTTP with 503: the gate stays shut. The default.
    #[default]
    RefuseNewcomers,
    /// Newcomers pass without being counted: the service stays up, and a flood of new keys
    /// passes too.
    AdmitNewcomers,
}

impl Default for LocalBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalBuilder {
    /// A million keys, newcomers turned away beyond, and the system's clock.
    pub fn new() -> Self {
        Self {
            capacity: 1_000_000,
            at_capacity: AtCapacity::default(),
            clock: SystemClock::default(),
        }
    }
}

impl<C> LocalBuilder<C> {
    /// The greatest number of keys that are remembered at once; 0 remembers none.
    ///
    /// At a million keys a token bucket's key takes 77 bytes (measured by `benches/store.rs`).
    #[must_use]
    pub fn capacity(self, keys: usize) -> Self {
        Self {
            capacity: keys,
            ..self
        }
    }

    /// What happens to a new key when the store is full.
    #[must_use]
    pub fn at_capacity(self, choice: AtCapacity) -> Self {
        Self {
            at_capacity: choice,
            ..self
        }
    }

    /// Another clock than the system's.
    #[must_use]
    pub fn clock<D: Clock>(self, clock: D) -> LocalBuilder<D> {
        LocalBuilder {
            capacity: self.capacity,
            at_capacity: self.at_capacity,
            clock,
        }
    }

    /// The store, empty.
    pub fn build<A: Algorithm>(self) -> Local<A, C>
    where
        C: Clock,
    {
        let now = self.clock.now();
        Local {
            inner: Arc::new(Inner {
                table: Table::new(self.capacity, now),
                clock: self.clock,
                seed: Seed::random(),
                at_capacity: self.at_capacity,
                counters: Counters::default(),
            }),
        }
    }
}
