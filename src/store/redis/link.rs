//! Questions to a server or a cluster, and the answers.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, LazyLock, OnceLock},
};

use redis::{
    Cmd, FromRedisValue, RedisResult,
    aio::{ConnectionManager, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
};

use super::{Program, check, failure::is_over, shared::Shared, source::Server};
use crate::store::Error;

pub(super) enum Link {
    /// One server; the connection is made anew after it has failed.
    One(Arc<Shared<Server>>),
    /// The connection of a cluster comes back by itself, once it is made.
    Cluster(Arc<Cluster>),
    /// What somebody else has made: so does that of a cluster,
    MadeCluster(ClusterConnection),
    /// and so does a manager.
    Managed(ConnectionManager),
    /// This one does not.
    Multiplexed(MultiplexedConnection),
}

pub(super) struct Cluster {
    made: OnceLock<ClusterConnection>,
    shared: Arc<Shared<ClusterClient>>,
}

impl Link {
    pub(super) fn one(server: Server) -> Self {
        Self::One(Shared::new(server))
    }

    pub(super) fn cluster(client: ClusterClient) -> Self {
        Self::Cluster(Arc::new(Cluster {
            made: OnceLock::new(),
            shared: Shared::new(client),
        }))
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_) | Self::MadeCluster(_))
    }

    /// Connects where nobody has yet, and sees that the server can do what is asked of it.
    pub(super) async fn check(&self) -> Result<(), Error> {
        match self {
            Self::One(one) => one.connected().await.map(drop),
            Self::Cluster(cluster) => cluster.connection().await.map(drop),
            Self::MadeCluster(connection) => check::cluster(&mut connection.clone()).await,
            Self::Managed(connection) => check::server(&mut connection.clone()).await,
            Self::Multiplexed(connection) => check::server(&mut connection.clone()).await,
        }
    }

    /// Has the next call connect anew, where this side makes connections: to a server that is no master any more.
    pub(super) fn leave(&self) {
        if let Self::One(one) = self {
            one.give_up_current();
        }
    }

    /// Asks, and tells what the server answered.
    ///
    /// # Errors
    ///
    /// When there is no connection, and none can be made.
    pub(super) async fn query<T: FromRedisValue>(
        &self,
        command: &Cmd,
    ) -> Result<RedisResult<T>, Error> {
        Ok(match self {
            Self::One(one) => return query(one, command).await,
            Self::Cluster(cluster) => command.query_async(&mut cluster.connection().await?).await,
            Self::MadeCluster(connection) => command.query_async(&mut connection.clone()).await,
            Self::Managed(connection) => command.query_async(&mut connection.clone()).await,
            Self::Multiplexed(connection) => command.query_async(&mut connection.clone()).await,
        })
    }
}

impl Cluster {
    /// The connection, without a lock once there is one.
    async fn connection(&self) -> Result<ClusterConnection, Error> {
        if let Some(connection) = self.made.get() {
            return Ok(connection.clone());
        }
        let (connection, _) = self.shared.connected().await?;
        Ok(self.made.get_or_init(|| connection).clone())
    }
}

/// Asks one server.
async fn query<T: FromRedisValue>(
    one: &Arc<Shared<Server>>,
    command: &Cmd,
) -> Result<RedisResult<T>, Error> {
    match send(one, command).await? {
        // The server had closed the connection while nobody used it: no second attempt, but the first.
        (Err(error), false) if error.is_connection_dropped() => {
            Ok(Box::pin(send(one, command)).await?.0)
        }
        (answer, _) => Ok(answer),
    }
}

/// Sends a command to one server; the answer, and whether it may have been sent.
async fn send<T: FromRedisValue>(
    one: &Arc<Shared<Server>>,
    command: &Cmd,
) -> Result<(RedisResult<T>, bool), Error> {
    let (mut connection, number) = one.connected().await?;
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
        one.give_up(number);
    }
    Ok((answer, was_sent))
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
            Self::MadeCluster(_) => "MadeCluster",
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
