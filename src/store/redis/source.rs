//! How a server, the master that sentinels name, or a cluster is reached.

use std::{io, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, RedisResult, aio::MultiplexedConnection, cluster::ClusterClient,
    cluster_async::ClusterConnection,
};
use tokio::time::timeout;

use super::{check, sentinel::Sentinels, shared::Source};
use crate::store::Error;

/// One server.
pub(super) struct Server {
    pub(super) by: By,
    pub(super) response_timeout: Duration,
}

/// How one finds it.
pub(super) enum By {
    Address(Box<Client>),
    Sentinels(Box<Sentinels>),
}

impl Source for Server {
    type Connection = MultiplexedConnection;

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.response_timeout))
            .set_response_timeout(Some(self.response_timeout));
        let connecting = async {
            match &self.by {
                By::Address(client) => {
                    client
                        .get_multiplexed_async_connection_with_config(&config)
                        .await
                }
                By::Sentinels(sentinels) => sentinels.connect(&config).await,
            }
        };
        // The sentinels are asked first, which takes a while of its own.
        let connected = timeout(self.response_timeout.saturating_mul(2), connecting).await;
        connected.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    fn place(&self) -> String {
        match &self.by {
            By::Address(client) => format!("Redis at {}", client.get_connection_info().addr()),
            By::Sentinels(sentinels) => sentinels.place(),
        }
    }

    async fn check(&self, connection: &mut MultiplexedConnection) -> Result<(), Error> {
        check::server(connection).await
    }
}

/// A cluster, by some of its nodes.
impl Source for ClusterClient {
    type Connection = ClusterConnection;

    async fn connect(&self) -> RedisResult<ClusterConnection> {
        self.get_async_connection().await
    }

    fn place(&self) -> String {
        "a cluster by one of the nodes in the URL".to_owned()
    }

    async fn check(&self, connection: &mut ClusterConnection) -> Result<(), Error> {
        check::cluster(connection).await
    }
}
