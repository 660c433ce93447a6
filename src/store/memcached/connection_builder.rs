//! Settings of a connection to memcached.

use std::{sync::Arc, time::Duration};

use super::{MemcachedConnection, pool::Pool, server::Server, url};
use crate::store::Error;

/// Builder of a [`MemcachedConnection`], returned by [`MemcachedConnection::builder`].
///
/// It is needed only for a connection that several stores share. [`Memcached::builder`](crate::store::Memcached) and
/// [`MemcachedCounters::builder`](crate::store::MemcachedCounters) have the same settings and those of the store.
///
/// | setting | default |
/// |---|---|
/// | [`response_timeout`](Self::response_timeout) | 1 s |
/// | [`connections`](Self::connections) | 1 |
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{TokenBucket, store::{Memcached, MemcachedConnection}};
///
/// # async fn run() -> Result<(), tollgate::store::Error> {
/// let connection = MemcachedConnection::builder("memcached://cache.internal")
///     .response_timeout(Duration::from_millis(200))
///     .connect()
///     .await?;
/// let store = Memcached::<TokenBucket>::new(connection);
/// # let _ = store; Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `connect` or `connect_lazy`"]
pub struct MemcachedConnectionBuilder {
    url: String,
    response_timeout: Duration,
    connections: usize,
}

impl MemcachedConnectionBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            response_timeout: Duration::from_secs(1),
            connections: 1,
        }
    }

    /// Sets the time that the server may take to accept a connection, and to answer; 1 s by default.
    ///
    /// After that the connection is closed, and all calls that wait on it fail. Choose it longer than the
    /// [`timeout`](crate::store::StoreExt::timeout) of a decision.
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = time;
        self
    }

    /// Sets the number of connections; 1 by default, and at least 1.
    ///
    /// One connection carries any number of concurrent calls. Several use several threads of the server and several cores here.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Connects, and checks that the server supports the necessary commands.
    ///
    /// # Errors
    ///
    /// Those of [`connect_lazy`](Self::connect_lazy); and when the server does not answer, is too old, or was started without
    /// compare-and-swap (`-C`).
    pub async fn connect(self) -> Result<MemcachedConnection, Error> {
        let connection = self.connect_lazy()?;
        connection.pool.get().await?;
        Ok(connection)
    }

    /// Creates connections that are made by the first calls, so that the program can start while memcached is down.
    ///
    /// Sends nothing yet, and needs no runtime. The first call on each connection connects and checks the server; concurrent
    /// calls wait for the same attempt, which continues if they are dropped. If it fails, each of them gets the error that
    /// [`connect`](Self::connect) would return, and the next call tries again. A server that is too old therefore does not stop
    /// the program: monitor [`failures`](crate::store::OnFailure::failures).
    ///
    /// ```
    /// use tollgate::{TokenBucket, store::{Memcached, MemcachedConnection, StoreExt}};
    ///
    /// # fn run() -> Result<(), tollgate::store::Error> {
    /// let connection = MemcachedConnection::builder("memcached://127.0.0.1").connect_lazy()?;
    /// let store = Memcached::<TokenBucket>::new(connection).fail_open();
    /// # let _ = store; Ok(()) }
    /// # assert!(run().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// When the URL is invalid.
    pub fn connect_lazy(self) -> Result<MemcachedConnection, Error> {
        let server = Server {
            address: url::address(&self.url).map_err(Error::other)?,
            response_timeout: self.response_timeout,
        };
        let pool = Arc::new(Pool::new(server, self.connections));
        Ok(MemcachedConnection { pool })
    }
}
