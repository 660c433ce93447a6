//! The connection, and its coming back.

use std::{fmt, sync::LazyLock, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, RedisError, RedisResult, aio::MultiplexedConnection,
    cluster_async::ClusterConnection, sentinel::SentinelClient,
};
use tokio::{sync::Mutex, time::timeout};

use super::Program;
use crate::store::Error;

/// How to reach the server.
pub(super) enum Source {
    Single(Client),
    Sentinel(Box<Mutex<SentinelClient>>),
}

pub(super) enum Link {
    /// One server; the connection is made anew after it has failed.
    One {
        source: Source,
        current: Mutex<Current>,
        response_timeout: Duration,
    },
    /// The client of a cluster comes back by itself.
    Cluster(ClusterConnection),
}

#[derive(Default)]
pub(super) struct Current {
    connection: Option<MultiplexedConnection>,
    /// How many there were: a failure drops the connection that failed, not a later one.
    number: u64,
}

impl Link {
    pub(super) fn one(source: Source, response_timeout: Duration) -> Self {
        Self::One {
            source,
            current: Mutex::default(),
            response_timeout,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) async fn query<T: redis::FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::Cluster(connection) => command.query_async(&mut connection.clone()).await,
            Self::One {
                source,
                current,
                response_timeout,
            } => {
                let (mut connection, number) =
                    connected(source, current, *response_timeout).await?;
                let answer = command.query_async(&mut connection).await;
                if answer.as_ref().is_err_and(is_over) {
                    let mut current = current.lock().await;
                    if current.number == number {
                        current.connection = None;
                    }
                }
                answer
            }
        }
    }
}

/// The connection that all calls share; made by whoever finds none.
async fn connected(
    source: &Source,
    current: &Mutex<Current>,
    response_timeout: Duration,
) -> RedisResult<(MultiplexedConnection, u64)> {
    let mut current = current.lock().await;
    if let Some(connection) = &current.connection {
        return Ok((connection.clone(), current.number));
    }
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(response_timeout))
        .set_response_timeout(Some(response_timeout));
    let connecting = async {
        match source {
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
    let connection = match timeout(response_timeout.saturating_mul(2), connecting).await {
        Ok(connection) => connection?,
        Err(_) => {
            let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Err(error.into());
        }
    };
    current.number += 1;
    current.connection = Some(connection.clone());
    Ok((connection, current.number))
}

/// Whether the connection is of no use any more: it is broken, its server silent, or no master.
fn is_over(error: &RedisError) -> bool {
    error.is_timeout()
        || error.is_io_error()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
}

pub(super) fn error(error: RedisError) -> Error {
    if error.is_timeout() {
        Error::timeout()
    } else if is_over(&error) || error.is_connection_refusal() || error.is_cluster_error() {
        Error::unavailable(error)
    } else {
        Error::other(error)
    }
}

/// The digest by which a server knows a program.
pub(super) fn digest(program: Program) -> &'static str {
    static DIGESTS: LazyLock<[(Program, String); 2]> = LazyLock::new(|| {
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
            Self::One { .. } => "One",
            Self::Cluster(_) => "Cluster",
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
