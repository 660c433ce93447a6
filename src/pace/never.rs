//! What can never be waited for.

use std::{error::Error, fmt};

use crate::decision::Cost;

/// A cost that will never pass, so that waiting for it would have no end.
///
/// Nothing was spent. From a stream it brings back the item, which is neither dropped nor let through.
pub struct NeverReady<T = ()> {
    item: T,
    cost: Cost,
    limit: Option<u64>,
}

impl NeverReady {
    pub(super) fn new(cost: Cost, limit: Option<u64>) -> Self {
        let item = ();
        Self { item, cost, limit }
    }

    pub(super) fn with<T>(self, item: T) -> NeverReady<T> {
        let Self { cost, limit, .. } = self;
        NeverReady { item, cost, limit }
    }
}

impl<T> NeverReady<T> {
    /// What was to be spent.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The greatest cost in units that could ever pass, where the rule tells.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The item of the stream whose cost it was.
    pub fn into_item(self) -> T {
        self.item
    }
}

impl<T> fmt::Display for NeverReady<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cost = self.cost.get();
        match self.limit {
            Some(limit) if limit < cost => write!(
                f,
                "a cost of {cost} can never pass: expected at most {limit}, the capacity of the rule; \
                 split the work, or choose a larger capacity"
            ),
            _ => write!(
                f,
                "a cost of {cost} will never pass again: expected a rule that tells when to retry; \
                 choose one that refills, or go on with a new pacer"
            ),
        }
    }
}

impl<T> fmt::Debug for NeverReady<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NeverReady({self})")
    }
}

impl<T> Error for NeverReady<T> {}
