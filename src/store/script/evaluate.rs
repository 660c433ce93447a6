//! What a store must be able to do, to be one of the script class.

use std::future::Future;

use super::Program;
use crate::store::Error;

/// Runs a program beside the data: all that a store's author writes.
///
/// # Cancellation
///
/// Futures may be dropped at any time; a program that was sent may have run.
pub trait Evaluate: Send + Sync + 'static {
    /// Which keys one call can be about: those of one group. All of them, by default; in a cluster
    /// the slot of a key.
    fn group(&self, key: &[u8]) -> u32 {
        let _ = key;
        0
    }

    /// Runs the program on the keys, which are of one group, with one argument; returns the
    /// string of bytes that it answers.
    ///
    /// # Errors
    ///
    /// When the program could not be run to its end.
    fn evaluate(
        &self,
        program: Program,
        keys: Vec<Box<[u8]>>,
        argument: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, Error>> + Send;

    /// Returns the error of a program's first write that the server did not take, by its text: the server is full, or takes no
    /// writes. Nothing was written then.
    fn unwritten(&self, why: &str) -> Error {
        Error::other(why)
    }

    /// Returns the part of the store that holds a key and can fail by itself, such as a shard of a cluster, for
    /// [`Backend::shard`](crate::store::Backend::shard). 0 by default.
    ///
    /// `key` builds the key, which allocates: call it only if there are several parts.
    fn shard(&self, key: &dyn Fn() -> Box<[u8]>) -> u32 {
        let _ = key;
        0
    }

    /// The address of the server, for the log of its failures, as [`Backend::address`](crate::store::Backend::address).
    fn address(&self) -> Option<&str> {
        None
    }
}
