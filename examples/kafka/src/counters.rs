//! Counters of an aggregator, and of a node.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of an [`Aggregator`](crate::Aggregator), also while it runs. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AggregatorCounters {
    pub(crate) inner: Arc<AggregatorCounts>,
}

#[derive(Debug, Default)]
pub(crate) struct AggregatorCounts {
    pub(crate) partitions: Count,
    pub(crate) taken_in: Count,
    pub(crate) unreadable: Count,
    pub(crate) repeated: Count,
    pub(crate) redelivered: Count,
    pub(crate) forgotten_nodes: Count,
    pub(crate) removed: Count,
    pub(crate) failed: Count,
}

impl AggregatorCounters {
    /// Returns how many partitions the aggregator adds up now.
    pub fn partitions(&self) -> u64 {
        self.inner.partitions.get()
    }

    /// Returns how many changes were taken in.
    pub fn taken_in(&self) -> u64 {
        self.inner.taken_in.get()
    }

    /// Returns how many changes and totals could not be read, and how many changes were of keys
    /// whose state a newer release wrote. They are left out.
    pub fn unreadable(&self) -> u64 {
        self.inner.unreadable.get()
    }

    /// Returns how many changes their nodes had produced before, because no acknowledgement
    /// arrived. They are left out.
    pub fn repeated(&self) -> u64 {
        self.inner.repeated.get()
    }

    /// Returns how many changes the brokers had delivered before. They are left out.
    pub fn redelivered(&self) -> u64 {
        self.inner.redelivered.get()
    }

    /// Returns how often a total had too many nodes, so that the last number of one was given up.
    /// If that node repeats its last change, it counts twice.
    pub fn forgotten_nodes(&self) -> u64 {
        self.inner.forgotten_nodes.get()
    }

    /// Returns how many keys were removed from the topic of totals, because they are like new.
    pub fn removed(&self) -> u64 {
        self.inner.removed.get()
    }

    /// Returns how often the brokers could not be read or written. What was to be written then was
    /// written later.
    pub fn failed(&self) -> u64 {
        self.inner.failed.get()
    }
}

#[derive(Debug, Default)]
pub(crate) struct NodeCounts {
    pub(crate) given_up: Count,
    pub(crate) outdated: Count,
    pub(crate) unreadable: Count,
    pub(crate) failed: Count,
    pub(crate) unsettled: Count,
}
