//! Settings of a store of counters in memcached.

use std::{fmt, time::Duration};

use super::{MemcachedConnectionBuilder, MemcachedCounters};
use crate::{
    algorithm::Counted,
    store::{CountersBuilder, Error},
    time::{Clock, SystemClock},
};

/// Builder of a [`MemcachedCounters`] store, returned by [`MemcachedCounters::builder`](crate::store::Counters::builder).
///
/// | setting | default |
/// |---|---|
/// | [`prefix`](Self::prefix) | `tollgate` |
/// | [`response_timeout`](Self::response_timeout) | 1 s |
/// | [`connections`](Self::connections) | 1 |
/// | [`clocks_apart`](Self::clocks_apart) | 1 s |
/// | [`clock`](Self::clock) | the system's clock |
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{SlidingWindow, store::MemcachedCounters};
///
/// # async fn run() -> Result<(), tollgate::store::Error> {
/// let store = MemcachedCounters::<SlidingWindow>::builder("memcached://cache.internal")
///     .prefix("shop")
///     .response_timeout(Duration::from_millis(200))
///     .clocks_apart(Duration::from_millis(50))
///     .connect()
///     .await?;
/// # let _ = store; Ok(()) }
/// ```
#[must_use = "a builder does nothing until `connect` or `connect_lazy`"]
pub struct MemcachedCountersBuilder<Rule, K = SystemClock> {
    connection: MemcachedConnectionBuilder,
    store: CountersBuilder<(), Rule, K>,
}

impl<Rule, K: Clone> Clone for MemcachedCountersBuilder<Rule, K> {
    fn clone(&self) -> Self {
        Self {
            connection: self.connection.clone(),
            store: self.store.clone(),
        }
    }
}

impl<Rule, K> fmt::Debug for MemcachedCountersBuilder<Rule, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcachedCountersBuilder")
            .field("connection", &self.connection)
            .field("store", &self.store)
            .finish()
    }
}

impl<Rule> MemcachedCountersBuilder<Rule> {
    pub(super) fn new(url: String) -> Self {
        Self {
            connection: MemcachedConnectionBuilder::new(url),
            store: CountersBuilder::new(()),
        }
    }
}

impl<Rule, K> MemcachedCountersBuilder<Rule, K> {
    /// Sets the prefix of all counters; `tollgate` by default.
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

    /// Sets the greatest difference between the clocks of two hosts that share the counters; 1 s by default.
    ///
    /// See [`CountersBuilder::clocks_apart`].
    pub fn clocks_apart(mut self, apart: Duration) -> Self {
        self.store = self.store.clocks_apart(apart);
        self
    }

    /// Sets the clock, which determines the slice that a call counts in; [`SystemClock`] by default.
    pub fn clock<C: Clock>(self, clock: C) -> MemcachedCountersBuilder<Rule, C> {
        MemcachedCountersBuilder {
            connection: self.connection,
            store: self.store.clock(clock),
        }
    }
}

impl<Rule: Counted, K: Clock> MemcachedCountersBuilder<Rule, K> {
    /// Connects, and checks that the server supports the necessary commands.
    ///
    /// # Errors
    ///
    /// See [`MemcachedConnectionBuilder::connect`].
    pub async fn connect(self) -> Result<MemcachedCounters<Rule, K>, Error> {
        let connection = self.connection.connect().await?;
        Ok(self.store.increment(connection).build())
    }

    /// Creates a store that connects on its first call, so that the program can start while memcached is down.
    ///
    /// Sends nothing yet, and needs no runtime. See [`MemcachedConnectionBuilder::connect_lazy`].
    ///
    /// ```
    /// use tollgate::{FixedWindow, prelude::*};
    ///
    /// # fn run() -> Result<(), tollgate::store::Error> {
    /// let memcached = MemcachedCounters::<FixedWindow>::builder("memcached://127.0.0.1").prefix("shop").connect_lazy()?;
    /// let layer = RateLimitLayer::new(FixedWindow::per_day(1000)).key(PeerIp::new()).store(memcached.fail_open());
    /// # let _ = layer; Ok(()) }
    /// # assert!(run().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// When the URL is invalid.
    pub fn connect_lazy(self) -> Result<MemcachedCounters<Rule, K>, Error> {
        let connection = self.connection.connect_lazy()?;
        Ok(self.store.increment(connection).build())
    }
}
