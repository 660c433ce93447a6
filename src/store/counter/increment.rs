//! What a store must be able to do, to be one of the counter class.

use std::{future::Future, time::Duration};

use crate::store::Error;

/// Adds to numbers, and tells what they come to: all that a store's author writes.
///
/// A counter that is not there is 0. No counter wraps: a total that would pass 2⁶⁴ − 1 stays there, and one
/// that would fall below 0 is 0. Every total was true at one instant of the call, and every addition is
/// seen by all additions after it: of two that add to one counter, one is told the sum of both.
///
/// There is no clock in it: which counter is added to depends on the time, which has to be known before the store is
/// asked.
///
/// # Cancellation
///
/// Futures may be dropped at any time; an amount that was sent may have been added or subtracted.
pub trait Increment: Send + Sync + 'static {
    /// Adds `amount`, at least 1, to the counter under `key`, and tells its total after that; then reads
    /// those that lie `beside` it, often none.
    ///
    /// A counter that is not there is made, in the same step: of two calls that both make it, neither is
    /// lost. It must stay for `keep` from then on at least, and should expire at some time after; what is
    /// added later need not lengthen that. What lies beside must be read *after* the amount was added, or
    /// two calls for neighbouring counters can each miss the other. One round trip, where the store can.
    ///
    /// # Errors
    ///
    /// When nobody can tell the total. The amount may have been added all the same.
    fn add(
        &self,
        key: &[u8],
        amount: u64,
        keep: Duration,
        beside: &[Box<[u8]>],
    ) -> impl Future<Output = Result<Totals, Error>> + Send;

    /// Takes back `amount`, at least 1, of the counter under `key`: to 0 at the lowest. Makes none.
    ///
    /// # Errors
    ///
    /// When nobody can tell whether it was taken back.
    fn subtract(&self, key: &[u8], amount: u64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Reads the totals of counters, in the order of their keys. One round trip, where the store can.
    ///
    /// # Errors
    ///
    /// When one of them cannot be read, also because what lies there is no number.
    fn read(&self, keys: &[Box<[u8]>]) -> impl Future<Output = Result<Vec<u64>, Error>> + Send;

    /// Forgets counters.
    ///
    /// # Errors
    ///
    /// When one of them may still be there.
    fn remove(&self, keys: &[Box<[u8]>]) -> impl Future<Output = Result<(), Error>> + Send;

    /// The address of the server, for the log of its failures, as [`Backend::address`](crate::store::Backend::address).
    fn address(&self) -> Option<&str> {
        None
    }
}

/// What an addition came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Of the counter that was added to, the addition included.
    pub total: u64,
    /// Of those beside it, in their order, read after the addition.
    pub beside: Vec<u64>,
}
