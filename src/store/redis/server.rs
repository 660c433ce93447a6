//! Connects to a server, or to the master that sentinels report.

use std::{io, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, RedisResult, aio::MultiplexedConnection,
};
use tokio::time::timeout;

use super::sentinel::Sentinels;

/// A host and a port.
pub(super) type HostPort = (String, u16);

/// One server, and the time that it may take.
pub(super) struct Server {
    pub(super) location: ServerLocation,
    pub(super) response_timeout: Duration,
}

/// A server's address, or the sentinels that report it.
pub(super) enum ServerLocation {
    Address(Box<Client>),
    Sentinels(Box<Sentinels>),
}

impl Server {
    /// Makes a connection, within twice the response timeout.
    pub(super) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
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
    pub(super) fn description(&self) -> String {
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
