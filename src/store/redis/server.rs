//! One connection to a server that all calls share, and the checks of a new one.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard},
    task::Poll,
    time::Duration,
};

use redis::{
    Arg, AsyncConnectionConfig, Client, Cmd, ConnectionAddr, RedisResult, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};
use tokio::time::timeout;

use super::{
    error::{connect_error, ends_connection, store_error, takes_no_writes},
    sentinel::Sentinels,
};
use crate::{
    locks::lock,
    store::{
        Program, StoreError,
        engine::{SingleFlight, detach_on_drop},
    },
    time::{Clock, SystemClock, Timestamp},
};

/// A connection to one server, made by the first call and again after it was lost.
pub(super) struct SharedConnection {
    server: RedisServer,
    current: Mutex<CurrentConnection>,
    connecting: SingleFlight,
    on_loss: OnLoss,
}

/// Called after a connection was given up, or could not be made, even if no caller waits for it any
/// more.
type OnLoss = Box<dyn Fn() + Send + Sync>;

struct CurrentConnection {
    connection: Option<MultiplexedConnection>,
    /// Number of connections so far. It keeps a late failure from dropping a newer connection.
    generation: u64,
    /// When the connection was made.
    since: Timestamp,
}

/// Minimum age at which a connection to a server that is not a master is dropped. Otherwise each
/// write that the server rejects would make a connection, until this machine runs out of ports, or
/// the sentinels are overloaded.
const MIN_AGE: Duration = Duration::from_millis(100);

impl SharedConnection {
    /// Creates a connection that is made by the first call.
    pub(super) fn new(server: RedisServer, on_loss: OnLoss) -> Arc<Self> {
        let current = CurrentConnection {
            connection: None,
            generation: 0,
            since: Timestamp::default(),
        };
        Arc::new(Self {
            connecting: SingleFlight::new(server.response_timeout),
            server,
            current: Mutex::new(current),
            on_loss,
        })
    }

    fn current(&self) -> MutexGuard<'_, CurrentConnection> {
        lock(&self.current)
    }

    fn existing(&self) -> Option<(MultiplexedConnection, u64)> {
        let current = self.current();
        Some((current.connection.clone()?, current.generation))
    }

    /// Returns the connection and its generation, and connects first if there is none.
    pub(super) async fn get(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64), StoreError> {
        if let Some(existing) = self.existing() {
            return Ok(existing);
        }
        let shared = Arc::clone(self);
        let connect = async move {
            let connected = shared.connect().await;
            if connected.is_err() {
                (shared.on_loss)();
            }
            connected
        };
        // Boxed, as it is rare and large: every call would carry it otherwise.
        let existing = || self.existing();
        Box::pin(self.connecting.get_or_try_init(existing, connect)).await
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, u64), StoreError> {
        let connection = self.server.connect().await;
        let mut connection =
            connection.map_err(|error| connect_error(error, &self.server.description()))?;
        if self.current().generation == 0 {
            handshake(&mut connection).await?;
        }
        let mut current = self.current();
        current.generation += 1;
        current.connection = Some(connection.clone());
        current.since = SystemClock::default().now();
        Ok((connection, current.generation))
    }

    /// Drops the connection, so that the next call reconnects, unless it is new.
    pub(super) fn give_up(&self) {
        let now = SystemClock::default().now();
        let mut current = self.current();
        if now.saturating_since(current.since) >= MIN_AGE {
            current.connection = None;
        }
    }

    /// Drops the connection if it still is of that generation.
    fn give_up_generation(&self, generation: u64) {
        {
            let mut current = self.current();
            if current.generation == generation {
                current.connection = None;
            }
        }
        (self.on_loss)();
    }

    /// Sends a command and returns the reply.
    ///
    /// # Errors
    ///
    /// When there is no connection, and none can be made.
    ///
    /// # Cancellation
    ///
    /// A query that is dropped before there is a connection is not sent. One that was sent is
    /// watched until its reply or its timeout.
    pub(super) async fn query(self: &Arc<Self>, query: Query) -> Result<Reply, StoreError> {
        match self.send(query.clone()).await? {
            // The server had closed the idle connection, so nothing was sent: this is not a second
            // attempt.
            (Err(error), false) if error.is_connection_dropped() => {
                Ok(Box::pin(self.send(query)).await?.0)
            }
            (reply, _) => Ok(reply),
        }
    }

    /// Sends a query; returns the reply, and `true` if the query may have been sent.
    async fn send(self: &Arc<Self>, query: Query) -> Result<(Reply, bool), StoreError> {
        let (connection, generation) = self.get().await?;
        let shared = Arc::clone(self);
        // A deadline drops a call long before the response timeout of its connection. If the query
        // ended with the call, a dead connection would go unnoticed as long as calls do not
        // overlap.
        let sent = detach_on_drop(async move {
            let mut was_sent = false;
            let reply = {
                let mut query = pin!(query.run(connection));
                poll_fn(|cx| {
                    let polled = query.as_mut().poll(cx);
                    // A closed connection fails on the first poll; a query that was sent is pending
                    // at least once.
                    was_sent |= polled.is_pending();
                    polled
                })
                .await
            };
            if reply.as_ref().is_err_and(ends_connection) {
                shared.give_up_generation(generation);
            }
            (reply, was_sent)
        });
        Ok(sent.await)
    }
}

/// The reply of a server.
pub(super) type Reply = RedisResult<Vec<u8>>;

/// A command for one server.
#[derive(Clone)]
pub(super) struct Query {
    command: Arc<Cmd>,
    /// `true` after an `ASK` redirection: the slot of the key is migrating to that server.
    pub(super) asking: bool,
    /// `true` if only the first key of the script may be declared.
    pub(super) declares_one: bool,
}

impl Query {
    pub(super) fn new(command: Arc<Cmd>) -> Self {
        Self {
            command,
            asking: false,
            declares_one: false,
        }
    }

    /// Returns the command as it is sent.
    fn command(&self) -> Cmd {
        if self.declares_one {
            with_one_key(&self.command)
        } else {
            (*self.command).clone()
        }
    }

    async fn run(self, mut connection: MultiplexedConnection) -> Reply {
        if !self.asking {
            return self.command.query_async(&mut connection).await;
        }
        // In one pipeline: `ASKING` applies to the next command of the connection, which many calls
        // share.
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(self.command());
        let both: Vec<RedisResult<Value>> =
            both.ignore_errors().query_async(&mut connection).await?;
        let mut last = Ok(Value::Nil);
        for reply in both {
            last = reply;
            if last.is_err() {
                break;
            }
        }
        Ok(redis::from_redis_value(last?)?)
    }
}

/// Converts `EVALSHA script n key… argument` to `EVALSHA script 1 key argument key…`. The scripts
/// take undeclared keys as further arguments.
fn with_one_key(command: &Cmd) -> Cmd {
    let arguments: Vec<&[u8]> = command
        .args_iter()
        .filter_map(|argument| match argument {
            Arg::Simple(bytes) => Some(bytes),
            _ => None,
        })
        .collect();
    let [name, script, _, first, keys @ .., argument] = &arguments[..] else {
        return command.clone();
    };
    let mut one = Cmd::new();
    one.arg(name).arg(script).arg(1).arg(first).arg(argument);
    keys.iter().for_each(|key| {
        one.arg(key);
    });
    one
}

/// A host and a port.
pub(super) type HostPort = (String, u16);

/// A server, and its response timeout.
pub(super) struct RedisServer {
    pub(super) location: ServerLocation,
    pub(super) response_timeout: Duration,
}

/// A server's address, or the sentinels that report it.
pub(super) enum ServerLocation {
    Address(Box<Client>),
    Sentinels(Box<Sentinels>),
}

impl RedisServer {
    /// Makes a connection, within twice the response timeout.
    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = connection_config(self.response_timeout);
        let connecting = async {
            match &self.location {
                ServerLocation::Address(client) => {
                    client
                        .get_multiplexed_async_connection_with_config(&config)
                        .await
                }
                ServerLocation::Sentinels(sentinels) => sentinels.connect(&config).await,
            }
        };
        // Twice, because the sentinels are asked first.
        let connected = timeout(self.response_timeout.saturating_mul(2), connecting).await;
        connected.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    /// Describes the server for an error message, such as `Redis at 127.0.0.1:6379`.
    fn description(&self) -> String {
        match &self.location {
            ServerLocation::Address(client) => {
                format!("Redis at {}", client.get_connection_info().addr())
            }
            ServerLocation::Sentinels(sentinels) => sentinels.description(),
        }
    }
}

/// Returns a configuration with the same timeout for connecting and for each reply.
pub(super) fn connection_config(response_timeout: Duration) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(response_timeout))
        .set_response_timeout(Some(response_timeout))
}

/// Returns a client for another address, with the login and the TLS settings of `client`.
pub(super) fn with_address(client: &Client, (host, port): HostPort) -> RedisResult<Client> {
    let info = client.get_connection_info().clone();
    let address = match info.addr().clone() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure,
            tls_params,
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    Client::open(info.set_addr(address))
}

/// The first version of Redis whose scripts may write after they have read the clock.
const OLDEST: [u64; 2] = [5, 0];

/// A script that reads the clock and then writes, without changing anything.
const PROBE: &str = "redis.call('TIME') return redis.call('SETRANGE', KEYS[1], 0, '')";

/// Checks a server and loads the scripts.
///
/// Takes two round trips: a server closes the connection of an unauthenticated client that sends
/// scripts with its first request.
pub(super) async fn handshake(connection: &mut impl ConnectionLike) -> Result<(), StoreError> {
    let info: RedisResult<String> = info_server().query_async(connection).await;
    if let Some(version) = check_info(&info.map_err(store_error)?)? {
        probe(connection, &version).await?;
    }
    let mut load = redis::pipe();
    for program in Program::ALL {
        load.cmd("SCRIPT").arg("LOAD").arg(program.source());
    }
    // Errors one by one: the error of a whole pipeline would be a list.
    let loaded = load.ignore_errors().query_async(connection).await;
    let loaded: Vec<RedisResult<String>> = loaded.map_err(store_error)?;
    let mut loaded = loaded.into_iter();
    loaded.try_for_each(|loaded| loaded.map(drop).map_err(store_error))
}

/// Checks one node of a cluster, chosen at random.
///
/// Nodes get the scripts with their first calls, so a node that is down does not keep the store
/// from connecting.
pub(super) async fn handshake_cluster(
    connection: &mut ClusterConnection,
) -> Result<(), StoreError> {
    let any = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
    let reply = connection.route_command(info_server(), any).await;
    let info = reply.and_then(|value| Ok(redis::from_redis_value::<String>(value)?));
    match check_info(&info.map_err(store_error)?)? {
        Some(version) => probe(connection, &version).await,
        None => Ok(()),
    }
}

/// Tests the scripts on a server whose version is too low or unknown. Compatible servers, such as
/// Kvrocks, report a version of their own.
async fn probe(connection: &mut impl ConnectionLike, version: &str) -> Result<(), StoreError> {
    let mut probe = redis::cmd("EVAL");
    let probe = probe.arg(PROBE).arg(1).arg("tollgate:probe");
    let error = match probe.query_async::<i64>(connection).await {
        Ok(_) => return Ok(()),
        // It cannot be tested; calls will report it.
        Err(error) if takes_no_writes(&error) => return Ok(()),
        Err(error) => store_error(error),
    };
    Err(StoreError::other(format!(
        "the Redis server has version {version}, and its scripts cannot write after they have read the clock ({error}): expected Redis {}.{} or \
         later, or a server that can; update it",
        OLDEST[0], OLDEST[1],
    )))
}

fn info_server() -> Cmd {
    redis::cmd("INFO").arg("server").clone()
}

/// Checks the reply to `INFO server`. Returns the version if it is too low or unknown, so that the
/// scripts must be tested.
fn check_info(info: &str) -> Result<Option<String>, StoreError> {
    let text = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    let text = text.map_or("unknown", str::trim);
    let version: Vec<u64> = text
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect();
    if info.contains("redis_mode:sentinel") {
        return Err(StoreError::other(
            "the server in the URL is a sentinel, which holds no data: expected `redis-sentinel://host:26379/name`; use that form, \
             with the name of a master that it monitors",
        ));
    }
    Ok((version[..] < OLDEST[..]).then(|| text.to_owned()))
}

/// Waits for the first of several futures, removes it, and returns its output; `None` without
/// futures.
pub(super) async fn next_ready<T>(
    futures: &mut Vec<Pin<Box<impl Future<Output = T>>>>,
) -> Option<T> {
    poll_fn(|cx| {
        for n in 0..futures.len() {
            if let Poll::Ready(value) = futures[n].as_mut().poll(cx) {
                drop(futures.swap_remove(n));
                return Poll::Ready(Some(value));
            }
        }
        if futures.is_empty() {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    })
    .await
}
