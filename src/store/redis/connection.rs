//! A connection to Redis, made by a URL or by the application.

use redis::{
    aio::{ConnectionManager, MultiplexedConnection},
    cluster_async::ClusterConnection,
};

use super::transport::Transport;
use crate::store::Error;

/// A connection to a server, to the master that sentinels report, or to a cluster.
///
/// [`Redis::connect`](crate::store::Script::connect) makes one by itself. Convert an existing connection of the crate `redis` to
/// set the prefix of its keys:
///
/// ```no_run
/// use tollgate::{TokenBucket, store::{Redis, RedisConnection}};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = redis::Client::open("redis://127.0.0.1")?;
/// let connection = RedisConnection::from(client.get_connection_manager().await?);
/// let store = Redis::<TokenBucket>::with_prefix(connection, "shop");
/// # let _ = store; Ok(()) }
/// ```
#[derive(Debug)]
pub struct RedisConnection {
    pub(super) transport: Transport,
    /// The address in the URL, without passwords; `None` for a connection of the application.
    pub(super) address: Option<Box<str>>,
}

impl RedisConnection {
    /// Connects if necessary, and checks that the server can run the scripts.
    pub(super) async fn check(&self) -> Result<(), Error> {
        self.transport.check().await
    }

    fn of_application(transport: Transport) -> Self {
        Self {
            transport,
            address: None,
        }
    }
}

impl From<ConnectionManager> for RedisConnection {
    fn from(connection: ConnectionManager) -> Self {
        Self::of_application(Transport::ConnectionManager(connection))
    }
}

impl From<MultiplexedConnection> for RedisConnection {
    fn from(connection: MultiplexedConnection) -> Self {
        Self::of_application(Transport::MultiplexedConnection(connection))
    }
}

impl From<ClusterConnection> for RedisConnection {
    fn from(connection: ClusterConnection) -> Self {
        Self::of_application(Transport::ClusterConnection(connection))
    }
}
