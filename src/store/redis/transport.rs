//! The kinds of connections that a command can be sent over.

use std::{fmt, sync::Arc, time::Duration};

use redis::{
    Client, Cmd,
    aio::{ConnectionLike, ConnectionManager, MultiplexedConnection},
    cluster_async,
};

use super::{
    cluster::Cluster,
    detach_on_drop::detach_on_drop,
    handshake,
    query::{Query, Reply},
    server::{HostPort, Server},
    shared_connection::SharedConnection,
};
use crate::store::Error;

/// A connection of this crate (`Server`, `Cluster`) or of the application.
pub(super) enum Transport {
    /// One server; reconnects after a failure.
    Server(Arc<SharedConnection>),
    /// A cluster, with a connection to each node.
    Cluster(Arc<Cluster>),
    /// A cluster connection of the application; reconnects by itself.
    ClusterConnection(cluster_async::ClusterConnection),
    /// A connection manager of the application; reconnects by itself.
    ConnectionManager(ConnectionManager),
    /// A connection of the application; does not reconnect.
    MultiplexedConnection(MultiplexedConnection),
}

impl Transport {
    pub(super) fn server(server: Server) -> Self {
        Self::Server(SharedConnection::new(server, Box::new(|| ())))
    }

    pub(super) fn cluster(seeds: Vec<(HostPort, Client)>, response_timeout: Duration) -> Self {
        Self::Cluster(Cluster::new(seeds, response_timeout))
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_) | Self::ClusterConnection(_))
    }

    /// Returns the shard of a slot; 0 without shards, or when they are not known.
    pub(super) fn shard(&self, slot: impl FnOnce() -> u16) -> u32 {
        match self {
            Self::Cluster(cluster) => cluster.shard(slot()),
            // A cluster connection of the application does not expose its slot map.
            Self::Server(_)
            | Self::ClusterConnection(_)
            | Self::ConnectionManager(_)
            | Self::MultiplexedConnection(_) => 0,
        }
    }

    /// Connects if necessary, and checks that the server can run the scripts.
    pub(super) async fn check(&self) -> Result<(), Error> {
        match self {
            Self::Server(connection) => connection.get().await.map(drop),
            Self::Cluster(cluster) => cluster.check().await,
            Self::ClusterConnection(connection) => {
                handshake::cluster(&mut connection.clone()).await
            }
            Self::ConnectionManager(connection) => handshake::server(&mut connection.clone()).await,
            Self::MultiplexedConnection(connection) => {
                handshake::server(&mut connection.clone()).await
            }
        }
    }

    /// Makes the next call look for the master again, because this server is none any more. Has no effect on connections of the
    /// application.
    pub(super) fn give_up(&self) {
        match self {
            Self::Server(connection) => connection.give_up(),
            Self::Cluster(cluster) => cluster.renew(),
            Self::ClusterConnection(_)
            | Self::ConnectionManager(_)
            | Self::MultiplexedConnection(_) => {}
        }
    }

    /// Sends a command for keys of a slot, and returns the server's reply.
    ///
    /// # Errors
    ///
    /// When there is no connection, and none can be made.
    ///
    /// # Cancellation
    ///
    /// Nothing is sent before there is a connection. A command that was sent is watched until its reply or its timeout.
    pub(super) async fn query(&self, slot: u16, command: Cmd) -> Result<Reply, Error> {
        let command = Arc::new(command);
        Ok(match self {
            Self::Server(connection) => return connection.query(Query::new(command)).await,
            Self::Cluster(cluster) => return cluster.query(slot, command).await,
            Self::ClusterConnection(connection) => send(connection.clone(), command).await,
            Self::ConnectionManager(connection) => send(connection.clone(), command).await,
            Self::MultiplexedConnection(connection) => send(connection.clone(), command).await,
        })
    }
}

/// Sends a command over a connection of the application. It is detached too, because such a connection notices its end only by the
/// replies to commands.
async fn send(mut connection: impl ConnectionLike + Send + 'static, command: Arc<Cmd>) -> Reply {
    detach_on_drop(async move { command.query_async(&mut connection).await }).await
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Server",
            Self::Cluster(_) => "Cluster",
            Self::ClusterConnection(_) => "ClusterConnection",
            Self::ConnectionManager(_) => "ConnectionManager",
            Self::MultiplexedConnection(_) => "MultiplexedConnection",
        })
    }
}
