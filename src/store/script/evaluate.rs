//! The trait that the author of a store implements.

use std::future::Future;

use super::Program;
use crate::store::Error;

/// Runs a program beside the data.
///
/// [`Script`](super::Script) makes a store of it, which runs every rule that is [`Scripted`](crate::algorithm::Scripted). The programs need Lua
/// 5.1 with the libraries of Redis (`redis`, `cmsgpack` and `struct`).
///
/// # Examples
///
/// Two connections that take turns:
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use tollgate::{TokenBucket, store::{Error, Evaluate, Program, Script}};
///
/// struct Spread<E> {
///     connections: [E; 2],
///     next: AtomicUsize,
/// }
///
/// impl<E: Evaluate> Evaluate for Spread<E> {
///     async fn evaluate(
///         &self,
///         program: Program,
///         keys: Vec<Box<[u8]>>,
///         argument: Vec<u8>,
///     ) -> Result<Vec<u8>, Error> {
///         let next = self.next.fetch_add(1, Ordering::Relaxed) % 2;
///         self.connections[next].evaluate(program, keys, argument).await
///     }
/// }
///
/// fn store<E: Evaluate>(connections: [E; 2]) -> Script<impl Evaluate, TokenBucket> {
///     Script::new(Spread { connections, next: AtomicUsize::new(0) })
/// }
/// ```
///
/// # Cancellation
///
/// Futures may be dropped at any time; a program that was sent may have run.
pub trait Evaluate: Send + Sync + 'static {
    /// Returns the group of a key, such as its slot in a cluster. A request is about keys of one group. By default there is one
    /// group.
    fn group(&self, key: &[u8]) -> u32 {
        let _ = key;
        0
    }

    /// Runs the program on the keys, which are of one group, with one argument, and returns the
    /// string of bytes that it answers.
    ///
    /// # Errors
    ///
    /// Fails if the program could not be run to its end.
    fn evaluate(
        &self,
        program: Program,
        keys: Vec<Box<[u8]>>,
        argument: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, Error>> + Send;

    /// Returns the error of a program's first write that the server did not take, by its text: the server is full, or takes no
    /// writes. Nothing was written then. By default, the error is [`unwritten`](Error::unwritten).
    fn unwritten(&self, why: &str) -> Error {
        Error::unwritten(why)
    }

    /// Returns the part of the store that holds a key and can fail by itself, such as a shard of a cluster, for
    /// [`Backend::shard`](crate::store::Backend::shard). 0 by default.
    ///
    /// `key` builds the key, which allocates: call it only if there are several parts.
    fn shard(&self, key: &dyn Fn() -> Box<[u8]>) -> u32 {
        let _ = key;
        0
    }

    /// Returns the address of the server, for the log of its failures, as [`Backend::address`](crate::store::Backend::address).
    fn address(&self) -> Option<&str> {
        None
    }
}
