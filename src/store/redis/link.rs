//! The connection, and its coming back.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    panic::resume_unwind,
    pin::pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, RedisResult,
    aio::{ConnectionManager, MultiplexedConnection},
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};
use tokio::{sync::Mutex, task::JoinError, time::timeout};

use super::{Program, failure::is_over, sentinel::Sentinels};

/// How to reach the server.
pub(super) enum Source {
    Single(Box<Client>),
    Sentinels(Box<Sentinels>),
}

pub(super) enum Link {
    /// One server; the connection is made anew after it has failed.
    One(Arc<One>),
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
    current: Arc<Mutex<Current>>,
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

impl Current {
    fn shared(&self) -> Option<(MultiplexedConnection, u64)> {
        Some((self.connection.clone()?, self.number))
    }
}

impl Link {
    pub(super) fn one(source: Source, response_timeout: Duration) -> Self {
        Self::One(Arc::new(One {
            source,
            response_timeout,
            current: Arc::default(),
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
    async fn query<T: FromRedisValue>(self: &Arc<Self>, command: &Cmd) -> RedisResult<T> {
        match self.send(command).await {
            // The server had closed the connection while nobody used it: no second attempt, but the first.
            (Err(error), false) if error.is_connection_dropped() => {
                Box::pin(self.send(command)).await.0
            }
            (answer, _) => answer,
        }
    }

    /// Sends a command; the answer, and whether it may have been sent.
    async fn send<T: FromRedisValue>(self: &Arc<Self>, command: &Cmd) -> (RedisResult<T>, bool) {
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
    async fn connected(self: &Arc<Self>) -> RedisResult<(MultiplexedConnection, u64)> {
        let failures = self.failures.load(Ordering::Acquire);
        if let Some(shared) = self.current.lock().await.shared() {
            return Ok(shared);
        }
        let mut current = Arc::clone(&self.current).lock_owned().await;
        if let Some(shared) = current.shared() {
            return Ok(shared);
        }
        if let Some(failure) = &current.failure {
            if self.failures.load(Ordering::Acquire) != failures {
                return Err(failure.clone());
            }
        }
        let one = Arc::clone(self);
        // A task of its own: a call may be given up sooner than a connection is made, and so may the next one.
        let connecting = tokio::spawn(async move {
            match one.connect().await {
                Ok(connection) => {
                    current.number += 1;
                    current.connection = Some(connection.clone());
                    Ok((connection, current.number))
                }
                Err(error) => {
                    current.failure = Some(error.clone());
                    one.failures.fetch_add(1, Ordering::Release);
                    Err(error)
                }
            }
        });
        match connecting.await.map_err(JoinError::try_into_panic) {
            Ok(connected) => connected,
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(ended)) => Err(io::Error::other(ended).into()),
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
                Source::Sentinels(sentinels) => sentinels.connect(&config).await,
            }
        };
        // The sentinels are asked first, which takes a while of its own.
        let connected = timeout(self.response_timeout.saturating_mul(2), connecting).await;
        connected.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
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
