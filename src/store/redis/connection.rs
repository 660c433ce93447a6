//! A connection to Redis, made by a URL or by the application, which runs the scripts.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use redis::{
    Cmd,
    aio::{ConnectionLike, ConnectionManager, MultiplexedConnection},
    cluster_async::ClusterConnection,
};

use super::{
    cluster::{Cluster, hash_slot},
    error,
    server::{Query, Reply, SharedConnection, handshake, handshake_cluster},
};
use crate::store::{Evaluate, Program, StoreError, engine::detach_on_drop};

/// A connection to a server, to the master that sentinels report, or to a cluster.
///
/// [`Redis::connect`](crate::store::driver::ScriptStore::connect) makes one by itself. Convert an
/// existing connection of the crate `redis` to set the prefix of its keys:
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
    fn of_application(transport: Transport) -> Self {
        Self {
            transport,
            address: None,
        }
    }

    /// Returns the hash slot of a key; 0 outside of a cluster.
    fn slot(&self, key: &[u8]) -> u16 {
        match self.transport {
            Transport::Cluster(_) | Transport::ClusterConnection(_) => hash_slot(key),
            _ => 0,
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

impl Evaluate for RedisConnection {
    fn group(&self, key: &[u8]) -> u32 {
        u32::from(self.slot(key))
    }

    fn shard(&self, key: &dyn Fn() -> Box<[u8]>) -> u32 {
        self.transport.shard(|| hash_slot(&key()))
    }

    async fn evaluate(
        &self,
        program: Program,
        keys: Vec<Box<[u8]>>,
        argument: Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let command = |name: &str, script: &str| {
            let data = keys.iter().map(|key| key.len()).sum::<usize>() + argument.len();
            let mut command = Cmd::with_capacity(keys.len() + 4, script.len() + data + 16);
            command.arg(name).arg(script).arg(keys.len());
            for key in &keys {
                command.arg(&key[..]);
            }
            command.arg(&argument[..]);
            command
        };
        let slot = keys.first().map_or(0, |key| self.slot(key));
        let by_digest = command("EVALSHA", digest(program));
        match self.transport.query(slot, by_digest).await? {
            // A server that restarted, or whose scripts were flushed: `EVAL` loads the script as
            // well.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let with_source = command("EVAL", program.source());
                Box::pin(self.transport.query(slot, with_source)).await?
            }
            reply => reply,
        }
        .map_err(error::store_error)
    }

    fn unwritten(&self, why: &str) -> StoreError {
        let error = error::write_error(why);
        if error::ends_connection(&error) {
            self.transport.give_up();
        }
        error::unwritten(error)
    }

    fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }
}

/// Returns the SHA-1 digest by which a server identifies a script.
fn digest(program: Program) -> &'static str {
    static DIGESTS: [OnceLock<String>; Program::ALL.len()] =
        [const { OnceLock::new() }; Program::ALL.len()];
    DIGESTS[program.index()].get_or_init(|| {
        let script = redis::Script::new(program.source());
        script.get_hash().to_owned()
    })
}

/// A connection of this crate (`Server`, `Cluster`) or of the application.
pub(super) enum Transport {
    /// One server; reconnects after a failure.
    Server(Arc<SharedConnection>),
    /// A cluster, with a connection to each node.
    Cluster(Arc<Cluster>),
    /// A cluster connection of the application; reconnects by itself.
    ClusterConnection(ClusterConnection),
    /// A connection manager of the application; reconnects by itself.
    ConnectionManager(ConnectionManager),
    /// A connection of the application; does not reconnect.
    MultiplexedConnection(MultiplexedConnection),
}

impl Transport {
    /// Returns the shard of a slot; 0 without shards, or before they are known.
    fn shard(&self, slot: impl FnOnce() -> u16) -> u32 {
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
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Server(connection) => connection.get().await.map(drop),
            Self::Cluster(cluster) => cluster.check().await,
            Self::ClusterConnection(connection) => handshake_cluster(&mut connection.clone()).await,
            Self::ConnectionManager(connection) => handshake(&mut connection.clone()).await,
            Self::MultiplexedConnection(connection) => handshake(&mut connection.clone()).await,
        }
    }

    /// Gives up a server that is no longer a master, so that the next call looks for the master
    /// again. Has no effect on connections of the application.
    fn give_up(&self) {
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
    /// Nothing is sent before there is a connection. A command that was sent is watched until its
    /// reply or its timeout.
    async fn query(&self, slot: u16, command: Cmd) -> Result<Reply, StoreError> {
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

/// Sends a command over a connection of the application. It is detached too, because such a
/// connection notices its end only by the replies to commands.
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
