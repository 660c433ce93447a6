//! The error of a cost that can never pass.

use std::{error::Error, fmt};

use crate::decision::Cost;

/// The error of waiting for a cost that can never pass.
///
/// Nothing was spent. In a stream it contains the item.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, TokenBucket, pace::{NeverReady, Pacer}};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let pacer = Pacer::new(TokenBucket::per_second(10));
/// let never: NeverReady = pacer.until_ready_for(Cost::new(11).unwrap()).await.unwrap_err();
/// assert_eq!(never.limit(), Some(10));
/// # }
/// ```
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
    /// Returns the cost that was asked for.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the capacity of the rule: the greatest cost in units that can ever pass.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Returns the item of the stream.
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
                "a cost of {cost} will never pass again: expected a rule that refills; \
                 choose another rule, or a new pacer"
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
