//! Connections that the application has already.

use redis::{
    aio::{ConnectionManager, MultiplexedConnection},
    cluster_async::ClusterConnection,
};

use super::{Redis, RedisConnection, link::Link};
use crate::{
    algorithm::Scripted,
    store::{Error, Script},
};

impl<Rule> Script<RedisConnection, Rule> {
    /// Shares a connection that is there, and sees that its server can do what is asked of it.
    ///
    /// Of version 1 of the crate `redis`, from 1.2.4 on: a `ConnectionManager`, a `MultiplexedConnection`, or a `ClusterConnection`. How long
    /// it waits, and whether it comes back after it broke, is its own affair: a manager and a cluster's do, a multiplexed one
    /// does not. None of them leaves a connection that is merely silent, a half-open one or that to a frozen master, before the operating
    /// system does; a store that [connects by itself](Self::builder) does. A cluster's counts as one shard for a
    /// [circuit breaker](crate::store::CircuitBreakerConfig). For keys with another prefix, give a [`RedisConnection`] to [`Script::with_prefix`].
    ///
    /// # Errors
    ///
    /// When nobody answers, or the server is too old.
    pub async fn over(connection: impl Into<RedisConnection>) -> Result<Redis<Rule>, Error>
    where
        Rule: Scripted<State: Send> + Send + 'static,
    {
        let connection = connection.into();
        connection.link.check().await?;
        Ok(Self::new(connection))
    }
}

impl From<ConnectionManager> for RedisConnection {
    fn from(connection: ConnectionManager) -> Self {
        Self::of(Link::Managed(connection))
    }
}

impl From<MultiplexedConnection> for RedisConnection {
    fn from(connection: MultiplexedConnection) -> Self {
        Self::of(Link::Multiplexed(connection))
    }
}

impl From<ClusterConnection> for RedisConnection {
    fn from(connection: ClusterConnection) -> Self {
        Self::of(Link::MadeCluster(connection))
    }
}

impl RedisConnection {
    fn of(link: Link) -> Self {
        let address = None;
        Self { link, address }
    }
}
