//! Stores that can add to counters and return the totals.
//!
//! | file | |
//! |---|---|
//! | `mod` | the trait that connects the store to a server |
//! | `store` | the store and its counters |
//! | `builder` | its settings |
//! | `decide` | adds, decides by the total, and takes back; corrections and resets |
//! | `slices` | the counters of a key, their totals, and the decision that follows |
//! | `sync` | deltas of nodes that decide by themselves, and the count of nodes |

mod builder;
mod decide;
mod slices;
mod store;
mod sync;

use std::{
    future::{Future, ready},
    time::Duration,
};

pub use self::{
    builder::CounterStoreBuilder,
    store::{CounterStats, CounterStore},
};
use crate::{store::StoreError, time::Timestamp};

/// Adds to counters and returns their totals.
///
/// [`CounterStore`](CounterStore#a-store-of-your-own) makes a store of it, and its page has a whole
/// example in a map.
///
/// A counter that does not exist is 0. No counter wraps: a total that would exceed 2⁶⁴ − 1 stays at
/// that number, and one that would fall below 0 is 0. Additions to a counter are atomic: of two
/// calls that add to it, one returns the sum of both.
///
/// The time determines the counter, so it is known before the store is asked: decisions use the
/// clock of this process. [`now`](Self::now) is for counting nodes only.
///
/// # Cancellation
///
/// Futures may be dropped at any time; an amount that was sent may have been added or subtracted.
pub trait Increment: Send + Sync + 'static {
    /// Adds `amount`, at least 1, to the counter under `key`, and returns its new total; then reads
    /// the counters `beside` it, often none.
    ///
    /// A counter that does not exist is created in the same step: if two calls create it, both
    /// amounts count. It must stay for at least `keep` from then on, and should expire some time
    /// later. Later additions need not postpone that. The counters beside it must be read *after*
    /// the amount was added, or two calls for neighbouring counters can each miss the other. If
    /// possible, all of this takes one round trip.
    ///
    /// # Errors
    ///
    /// Fails if the total is not known. The amount may have been added all the same.
    fn add(
        &self,
        key: &[u8],
        amount: u64,
        keep: Duration,
        beside: &[Box<[u8]>],
    ) -> impl Future<Output = Result<Totals, StoreError>> + Send;

    /// Takes back `amount`, at least 1, from the counter under `key`, down to 0 at the lowest.
    /// Creates no counter.
    ///
    /// # Errors
    ///
    /// Fails if it is not known whether the amount was taken back.
    fn subtract(
        &self,
        key: &[u8],
        amount: u64,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the totals of counters, in the order of their keys, of which no two are equal. One
    /// round trip, where the store can.
    ///
    /// # Errors
    ///
    /// Fails if one of them cannot be read, also because its value is no number.
    fn read(&self, keys: &[Box<[u8]>])
    -> impl Future<Output = Result<Vec<u64>, StoreError>> + Send;

    /// Removes counters.
    ///
    /// # Errors
    ///
    /// Fails if one of them may still be there.
    fn remove(&self, keys: &[Box<[u8]>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the time by the store's clock, to within a second or two; `None`, the default, if
    /// the store has none.
    ///
    /// [Nodes are counted](crate::store::driver::NodeCounts) by it. Without it, a node whose clock
    /// is ahead or behind counts those alone that are like it. It is asked for once in a
    /// [period](crate::store::driver::NodeCounts::PERIOD) and policy, so it should be derived from
    /// an answer that is up to a minute old, without a round trip.
    ///
    /// # Errors
    ///
    /// Fails if the clock is not known, for example because the store cannot be reached.
    fn now(&self) -> impl Future<Output = Result<Option<Timestamp>, StoreError>> + Send {
        ready(Ok(None))
    }

    /// Returns the address of the server, for the log of its failures, as
    /// [`Backend::address`](crate::store::Backend::address).
    fn address(&self) -> Option<&str> {
        None
    }
}

/// The totals after an addition, as [`Increment::add`] returns them.
///
/// ```
/// use tollgate::store::driver::Totals;
///
/// // 3 were added to a counter of 4; the one beside it is 9.
/// let totals = Totals { total: 7, beside: vec![9] };
/// # let _ = totals;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The total of the counter that was added to, with the addition.
    pub total: u64,
    /// The totals of the counters beside it, in their order, read after the addition.
    pub beside: Vec<u64>,
}
