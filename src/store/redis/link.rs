//! Questions to a server or a cluster, and the answers.

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use redis::{
    Client, Cmd,
    aio::{ConnectionLike, ConnectionManager, MultiplexedConnection},
    cluster_async::ClusterConnection,
};

use super::{
    Program, check,
    cluster::Cluster,
    shared::{Answer, Query, Shared},
    source::{Address, Server},
    watch::watched,
};
use crate::store::Error;

pub(super) enum Link {
    /// One server; the connection is made anew after it has failed.
    One(Arc<Shared>),
    /// Such a connection to each node.
    Cluster(Arc<Cluster>),
    /// What somebody else has made: the connection of a cluster comes back by itself,
    MadeCluster(ClusterConnection),
    /// and so does a manager.
    Managed(ConnectionManager),
    /// This one does not.
    Multiplexed(MultiplexedConnection),
}

impl Link {
    pub(super) fn one(server: Server) -> Self {
        Self::One(Shared::new(server, Box::new(|| ())))
    }

    pub(super) fn cluster(seeds: Vec<(Address, Client)>, response_timeout: Duration) -> Self {
        Self::Cluster(Cluster::new(seeds, response_timeout))
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_) | Self::MadeCluster(_))
    }

    /// The shard of a slot; 0 where there are none, or nobody has told.
    pub(super) fn shard(&self, slot: impl FnOnce() -> u16) -> u32 {
        match self {
            Self::Cluster(cluster) => cluster.shard(slot()),
            // How that of somebody else has its slots, it does not tell.
            Self::One(_) | Self::MadeCluster(_) | Self::Managed(_) | Self::Multiplexed(_) => 0,
        }
    }

    /// Connects where nobody has yet, and sees that the server can do what is asked of it.
    pub(super) async fn check(&self) -> Result<(), Error> {
        match self {
            Self::One(one) => one.connected().await.map(drop),
            Self::Cluster(cluster) => cluster.check().await,
            Self::MadeCluster(connection) => check::cluster(&mut connection.clone()).await,
            Self::Managed(connection) => check::server(&mut connection.clone()).await,
            Self::Multiplexed(connection) => check::server(&mut connection.clone()).await,
        }
    }

    /// Has the next call find another master, where this side makes connections: this server is none any more.
    pub(super) fn leave(&self) {
        match self {
            Self::One(one) => one.give_up_current(),
            Self::Cluster(cluster) => cluster.renew(),
            Self::MadeCluster(_) | Self::Managed(_) | Self::Multiplexed(_) => {}
        }
    }

    /// Sends a command about keys of that slot, and tells what the server answered.
    ///
    /// # Errors
    ///
    /// When there is no connection, and none can be made.
    ///
    /// # Cancellation
    ///
    /// Nothing is sent before there is a connection. What was sent is watched to its end, whoever drops the call.
    pub(super) async fn query(&self, slot: u16, command: Cmd) -> Result<Answer, Error> {
        let command = Arc::new(command);
        Ok(match self {
            Self::One(one) => {
                let is_asking = false;
                return one.query(Query { command, is_asking }).await;
            }
            Self::Cluster(cluster) => return cluster.query(slot, command).await,
            Self::MadeCluster(connection) => ask(connection.clone(), command).await,
            Self::Managed(connection) => ask(connection.clone(), command).await,
            Self::Multiplexed(connection) => ask(connection.clone(), command).await,
        })
    }
}

/// Asks over a connection that looks after itself: it, too, learns only from the answers to what was sent.
async fn ask(mut connection: impl ConnectionLike + Send + 'static, command: Arc<Cmd>) -> Answer {
    watched(async move { command.query_async(&mut connection).await }).await
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
