//! The address of a server, and connecting to it.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{net::TcpStream, time::timeout};

use super::{handshake::handshake, pipeline::Pipeline};
use crate::store::Error;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// A server, and the time that it may take.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) response_timeout: Duration,
}

impl Server {
    /// Makes a connection and checks the server, within the response timeout.
    pub(super) async fn connect(&self) -> Result<Pipeline, Error> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let Address { host, port } = &self.address;
        let connecting = async {
            let stream = TcpStream::connect((host.as_str(), *port)).await;
            let stream = stream.map_err(|error| {
                Error::unavailable(format!(
                    "{error}: expected memcached at {host}:{port}; check that it runs there and is reachable from this host"
                ))
            })?;
            // Commands are already combined into few writes here.
            stream.set_nodelay(true).map_err(Error::unavailable)?;
            let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
            handshake(Pipeline::new(stream, id, self.response_timeout)).await
        };
        let connected = timeout(self.response_timeout, connecting).await;
        connected.unwrap_or_else(|_| Err(Error::timeout()))
    }
}
