//! Settings of a store that compares and swaps in memcached.

use std::{fmt, time::Duration};

use super::{Memcached, MemcachedConnectionBuilder};
use crate::{
    algorithm::{Algorithm, Codec},
    backoff::Backoff,
    store::{Error, OptimisticBuilder},
    time::{Clock, SystemClock},
};

/// Builder of a [`Memcached`] store, returned by [`Memcached::builder`](crate::store::Optimistic::builder).
///
/// | setting | default |
/// |---|---|
/// | [`prefix`](Self::prefix) | `tollgate` |
/// | [`response_timeout`](Self::response_timeout) | 1 s |
/// | [`connections`](Self::connections) | 1 |
/// | [`attempts`](Self::attempts) | 32 |
/// | [`deadline`](Self::deadline) | 1 s |
/// | [`backoff`](Self::backoff) | 0 to 1 ms, doubling up to 64 ms |
/// | [`clock`](Self::clock) | the system's clock |
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{TokenBucket, store::Memcached};
///
/// # async fn run() -> Result<(), tollgate::store::Error> {
/// let store = Memcached::<TokenBucket>::builder("memcached://cache.internal")
///     .prefix("shop")
///     .response_timeout(Duration::from_millis(200))
///     .deadline(Duration::from_millis(80))
///     .connect()
///     .await?;
/// # let _ = store; Ok(()) }
/// ```
#[must_use = "a builder does nothing until `connect` or `connect_lazy`"]
pub struct MemcachedBuilder<Rule, K = SystemClock> {
    connection: MemcachedConnectionBuilder,
    store: OptimisticBuilder<(), Rule, K>,
}

impl<Rule, K: Clone> Clone for MemcachedBuilder<Rule, K> {
    fn clone(&self) -> Self {
        Self {
            connection: self.connection.clone(),
            store: self.store.clone(),
        }
    }
}

impl<Rule, K: fmt::Debug> fmt::Debug for MemcachedBuilder<Rule, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcachedBuilder")
            .field("connection", &self.connection)
            .field("store", &self.store)
            .finish()
    }
}

impl<Rule> MemcachedBuilder<Rule> {
    pub(super) fn new(url: String) -> Self {
        Self {
            connection: MemcachedConnectionBuilder::new(url),
            store: OptimisticBuilder::new(()),
        }
    }
}

impl<Rule, K> MemcachedBuilder<Rule, K> {
    /// Sets the prefix of all keys; `tollgate` by default.
    ///
    /// Stores with different prefixes share nothing.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.store = self.store.prefix(prefix);
        self
    }

    /// Sets the time that the server may take to accept a connection, and to answer; 1 s by default.
    ///
    /// See [`MemcachedConnectionBuilder::response_timeout`].
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.connection = self.connection.response_timeout(time);
        self
    }

    /// Sets the number of connections; 1 by default, and at least 1.
    ///
    /// See [`MemcachedConnectionBuilder::connections`].
    pub fn connections(mut self, connections: usize) -> Self {
        self.connection = self.connection.connections(connections);
        self
    }

    /// Sets the number of races that a call may lose before it fails as [contended](Error::is_contended); 32 by default, and at
    /// least 1.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.store = self.store.attempts(attempts);
        self
    }

    /// Sets the time after which a call is given up; 1 s by default.
    ///
    /// See [`OptimisticBuilder::deadline`]. If it is shorter than the [`timeout`](crate::store::StoreExt::timeout) of a decision, a
    /// call that loses every race fails as contended, not as timed out.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.store = self.store.deadline(deadline);
        self
    }

    /// Sets the delays after lost races; `None` for no delay. By default they are drawn from 0 to 1 ms, 2 ms, …, 64 ms.
    ///
    /// See [`OptimisticBuilder::backoff`].
    pub fn backoff(mut self, backoff: impl Into<Option<Backoff>>) -> Self {
        self.store = self.store.backoff(backoff);
        self
    }

    /// Sets a seed for the delays, for tests. See [`OptimisticBuilder::seed`].
    pub fn seed(mut self, seed: u64) -> Self {
        self.store = self.store.seed(seed);
        self
    }

    /// Sets whether calls for one key are combined, for measurements; `true` by default. See [`OptimisticBuilder::combining`].
    pub fn combining(mut self, combining: bool) -> Self {
        self.store = self.store.combining(combining);
        self
    }

    /// Sets the clock; [`SystemClock`] by default.
    pub fn clock<L: Clock>(self, clock: L) -> MemcachedBuilder<Rule, L> {
        MemcachedBuilder {
            connection: self.connection,
            store: self.store.clock(clock),
        }
    }
}

impl<Rule, K> MemcachedBuilder<Rule, K>
where
    Rule: Algorithm<State: Codec + Send> + Send + Sync + 'static,
{
    /// Connects, and checks that the server supports the necessary commands.
    ///
    /// # Errors
    ///
    /// See [`MemcachedConnectionBuilder::connect`].
    pub async fn connect(self) -> Result<Memcached<Rule, K>, Error> {
        let connection = self.connection.connect().await?;
        Ok(self.store.data(connection).build())
    }

    /// Creates a store that connects on its first call, so that the program can start while memcached is down.
    ///
    /// Sends nothing yet, and needs no runtime. See [`MemcachedConnectionBuilder::connect_lazy`].
    ///
    /// ```
    /// use tollgate::prelude::*;
    ///
    /// # fn run() -> Result<(), tollgate::store::Error> {
    /// let memcached = Memcached::<TokenBucket>::builder("memcached://127.0.0.1").prefix("shop").connect_lazy()?;
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(memcached.fail_open());
    /// # let _ = layer; Ok(()) }
    /// # assert!(run().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// When the URL is invalid.
    pub fn connect_lazy(self) -> Result<Memcached<Rule, K>, Error> {
        let connection = self.connection.connect_lazy()?;
        Ok(self.store.data(connection).build())
    }
}
