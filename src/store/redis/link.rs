//! The connection, and its coming back.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult,
    aio::{ConnectionManager, MultiplexedConnection},
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
    sentinel::SentinelClient,
};
use tokio::{sync::Mutex, time::timeout};

use super::Program;
use crate::store::Error;

/// How to reach the server.
pub(super) enum Source {
    Single(Box<Client>),
    Sentinel(Box<Mutex<SentinelClient>>),
}

pub(super) enum Link {
    /// One server; the connection is made anew after it has failed.
    One(Box<One>),
    /// The client of a cluster comes back by itself.
    Cluster(ClusterConnection),
    /// So does a manager, which somebody else has made.
    Managed(ConnectionManager),
    /// This one does not.
    Multiplexed(MultiplexedConnection),
}

pub(super) struct One {
    source: Source,
    response_timeout: Duration,
    current: Mutex<Current>,
    /// How many attempts to connect have failed.
    failures: AtomicU64,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// How many there were: a failure drops the connection that failed, not a later one.
    number: u64,
    /// Why the last attempt to connect failed.
    failure: Option<RedisError>,
}

impl Link {
    pub(super) fn one(source: Source, response_timeout: Duration) -> Self {
        Self::One(Box::new(One {
            source,
            response_timeout,
            current: Mutex::default(),
            failures: AtomicU64::new(0),
        }))
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::Cluster(connection) => command.query_async(&mut connection.clone()).await,
            Self::One(one) => one.query(command).await,
            Self::Managed(connection) => command.query_async(&mut connection.clone()).await,
            Self::Multiplexed(connection) => command.query_async(&mut connection.clone()).await,
        }
    }

    /// Asks one server, whichever it is, where a cluster would ask all of them.
    pub(super) async fn query_any<T: FromRedisValue>(&self, command: Cmd) -> RedisResult<T> {
        match self {
            Self::Cluster(connection) => {
                let any = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                let answer = connection.clone().route_command(command, any).await?;
                Ok(redis::from_redis_value(answer)?)
            }
            _ => self.query(&command).await,
        }
    }
}

impl One {
    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match self.send(command).await {
            // The server had closed the connection while nobody used it: no second attempt, but the first.
            (Err(error), false) if error.is_connection_dropped() => self.send(command).await.0,
            (answer, _) => answer,
        }
    }

    /// Sends a command; the answer, and whether it may have been sent.
    async fn send<T: FromRedisValue>(&self, command: &Cmd) -> (RedisResult<T>, bool) {
        let (mut connection, number) = match self.connected().await {
            Ok(connected) => connected,
            Err(error) => return (Err(error), true),
        };
        let mut was_sent = false;
        let answer = {
            let mut query = pin!(command.query_async(&mut connection));
            poll_fn(|cx| {
                let polled = query.as_mut().poll(cx);
                // A closed connection tells so at once; whatever was sent takes a while to be answered.
                was_sent |= polled.is_pending();
                polled
            })
            .await
        };
        if answer.as_ref().is_err_and(is_over) {
            let mut current = self.current.lock().await;
            if current.number == number {
                current.connection = None;
            }
        }
        (answer, was_sent)
    }

    /// The connection that all calls share; made by whoever finds none. Who waited while somebody else's
    /// attempt failed has tried as well: a thousand callers do not wait for a thousand attempts in a row.
    async fn connected(&self) -> RedisResult<(MultiplexedConnection, u64)> {
        let failures = self.failures.load(Ordering::Acquire);
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok((connection.clone(), current.number));
        }
        if let Some(failure) = &current.failure {
            if self.failures.load(Ordering::Acquire) != failures {
                return Err(failure.clone());
            }
        }
        match self.connect().await {
            Ok(connection) => {
                current.number += 1;
                current.connection = Some(connection.clone());
                Ok((connection, current.number))
            }
            Err(error) => {
                current.failure = Some(error.clone());
                self.failures.fetch_add(1, Ordering::Release);
                Err(error)
            }
        }
    }

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.response_timeout))
            .set_response_timeout(Some(self.response_timeout));
        let connecting = async {
            match &self.source {
                Source::Single(client) => {
                    client
                        .get_multiplexed_async_connection_with_config(&config)
                        .await
                }
                Source::Sentinel(client) => {
                    let mut client = client.lock().await;
                    client.get_async_connection_with_config(&config).await
                }
            }
        };
        // The sentinels are asked first, which takes a while of its own.
        let connected = timeout(self.response_timeout.saturating_mul(2), connecting).await;
        connected.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
    }
}

/// Whether the connection is of no use any more: it is broken, its server silent, or no master.
fn is_over(error: &RedisError) -> bool {
    error.is_timeout()
        || error.is_io_error()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
        // What a program meets is an error of the program up to Redis 6, which tells the cause.
        || error.detail().is_some_and(|detail| detail.contains("-READONLY "))
}

/// Whether it is the server that cannot do anything now, rather than this command that it cannot do.
fn is_outage(error: &RedisError) -> bool {
    is_over(error)
        || error.is_connection_refusal()
        || error.is_cluster_error()
        || matches!(error.code(), Some("LOADING" | "BUSY"))
        || error.kind() == ErrorKind::MasterNameNotFoundBySentinel
}

pub(super) fn error(error: RedisError) -> Error {
    if error.is_timeout() {
        Error::timeout()
    } else if is_outage(&error) {
        Error::unavailable(error)
    } else {
        Error::other(error)
    }
}

/// The digest by which a server knows a program.
pub(super) fn digest(program: Program) -> &'static str {
    static DIGESTS: LazyLock<[(Program, String); Program::ALL.len()]> = LazyLock::new(|| {
        Program::ALL.map(|program| {
            let script = redis::Script::new(program.source());
            (program, script.get_hash().to_owned())
        })
    });
    let known = DIGESTS.iter().find(|(known, _)| *known == program);
    known.map_or("", |(_, digest)| digest)
}

/// The slot of a key that holds a hash tag, of 16,384 (Redis Cluster specification, "Hash tags"): CRC-16/XMODEM.
pub(super) fn slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')? + 1;
        let len = key[open..].iter().position(|byte| *byte == b'}')?;
        (len > 0).then(|| &key[open..open + len])
    };
    let crc = tag().unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            crc << 1 ^ if crc >> 15 == 1 { 0x1021 } else { 0 }
        })
    });
    crc % 16_384
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One(_) => "One",
            Self::Cluster(_) => "Cluster",
            Self::Managed(_) => "Managed",
            Self::Multiplexed(_) => "Multiplexed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::slot;

    #[test]
    fn slots_are_those_of_the_specification() {
        // The reference value of CRC-16/XMODEM.
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"a:{123456789}:b"), slot(b"{123456789}"));
        assert_eq!(slot(b"a:{123456789}:b"), 0x31c3);
    }
}
