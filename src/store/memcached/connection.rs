//! The connections to one memcached server.

use std::sync::{Arc, atomic::Ordering};

use super::{MemcachedConnectionBuilder, pool::Pool};
use crate::store::Error;

/// The connections to one memcached server, for several stores that share them. A single store [connects by
/// itself](super::Memcached).
///
/// Clones share the connections, even among stores of both kinds:
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{FixedWindow, TokenBucket};
/// use tollgate::store::{Memcached, MemcachedConnection, MemcachedCounters};
///
/// # async fn run() -> Result<(), tollgate::store::Error> {
/// let connection = MemcachedConnection::builder("memcached://127.0.0.1:11211")
///     .response_timeout(Duration::from_millis(200))
///     .connections(2)
///     .connect()
///     .await?;
/// let buckets = Memcached::<TokenBucket>::builder_on(connection.clone()).prefix("shop").build();
/// let windows = MemcachedCounters::<FixedWindow>::new(connection);
/// # let _ = (buckets, windows); Ok(()) }
/// ```
///
/// Calls are pipelined: one connection carries any number of them, and the responses arrive in the order of the commands. The
/// response to a dropped call is read and discarded.
#[derive(Clone, Debug)]
pub struct MemcachedConnection {
    pub(super) pool: Arc<Pool>,
}

impl MemcachedConnection {
    /// Returns a builder for the server of a URL, `memcached://host:port`; the default port is 11211.
    pub fn builder(url: impl Into<String>) -> MemcachedConnectionBuilder {
        MemcachedConnectionBuilder::new(url.into())
    }

    /// Connects to the server of a [URL](Self::builder), with default settings.
    ///
    /// # Errors
    ///
    /// See [`MemcachedConnectionBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Creates a connection that is made by the first call, with default settings.
    ///
    /// # Errors
    ///
    /// See [`MemcachedConnectionBuilder::connect_lazy`].
    pub fn connect_lazy(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder(url).connect_lazy()
    }

    /// Returns the number of counters whose value was not a number and was removed. Clones share the count.
    pub fn healed(&self) -> u64 {
        self.pool.healed.load(Ordering::Relaxed)
    }
}
