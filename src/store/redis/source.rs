//! How a server, or the master that sentinels name, is reached.

use std::{io, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, RedisResult, aio::MultiplexedConnection,
};
use tokio::time::timeout;

use super::sentinel::Sentinels;

/// A host and a port.
pub(super) type Address = (String, u16);

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

impl Server {
    /// Makes a connection, or gives up by itself.
    pub(super) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = config(self.response_timeout);
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

    /// What should be where, in words.
    pub(super) fn place(&self) -> String {
        match &self.by {
            By::Address(client) => format!("Redis at {}", client.get_connection_info().addr()),
            By::Sentinels(sentinels) => sentinels.place(),
        }
    }
}

/// The time limits of a connection.
pub(super) fn config(response_timeout: Duration) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(response_timeout))
        .set_response_timeout(Some(response_timeout))
}

/// A client that logs in as `like` does, and by TLS if that does, at another address.
pub(super) fn at(like: &Client, (host, port): Address) -> RedisResult<Client> {
    let info = like.get_connection_info().clone();
    let there = match info.addr().clone() {
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
    Client::open(info.set_addr(there))
}
