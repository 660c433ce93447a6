//! A server with a TLS port.

use std::time::Duration;

use crate::servers::{Redis, RedisOptions, Tls, free_port, wait_until};

/// A running server with a second port for TLS. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct TlsRedis {
    pub(crate) server: Redis,
    pub(crate) tls: Tls,
}

/// Returns a port and a self-signed certificate.
pub(crate) fn tls(asks_clients: bool) -> Tls {
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let own = rcgen::generate_simple_self_signed(names).unwrap();
    Tls {
        port: free_port(),
        certificate: own.cert.pem(),
        key: own.signing_key.serialize_pem(),
        asks_clients,
    }
}

impl TlsRedis {
    /// Starts a Redis that trusts only its own certificate, and requires it from clients if
    /// `asks_clients`.
    pub(crate) fn start(asks_clients: bool) -> Self {
        Self::start_of(Redis::options(), asks_clients)
    }

    /// Starts a cluster of one node with all slots.
    pub(crate) fn start_cluster() -> Self {
        let options = Redis::options()
            .set("cluster-enabled", "yes")
            .set("cluster-announce-ip", "127.0.0.1")
            // The default is the TLS port plus 10,000, which may be in use.
            .set("cluster-port", &free_port().to_string())
            .set("tls-cluster", "yes");
        let alone = Self::start_of(options, false);
        alone
            .server
            .command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        alone.settle();
        alone
    }

    /// Waits until the cluster of one node reports that it is ready.
    pub(crate) fn settle(&self) {
        wait_until("a cluster of one", Duration::from_secs(5), || {
            let info = self.server.command(&["CLUSTER", "INFO"]);
            let is_well = info.contains("cluster_state:ok");
            is_well.then_some(()).ok_or(info)
        });
    }

    fn start_of(options: RedisOptions, asks_clients: bool) -> Self {
        Self::start_with(options, tls(asks_clients))
    }

    /// Starts a server with this certificate.
    pub(crate) fn start_with(options: RedisOptions, tls: Tls) -> Self {
        let server = options.start_as(|folder| tls.arguments(folder));
        Self { server, tls }
    }

    /// Returns `rediss://localhost:port`.
    pub(crate) fn url(&self) -> String {
        format!("rediss://localhost:{}", self.tls.port)
    }

    /// Returns `rediss-cluster://localhost:port`.
    pub(crate) fn cluster_url(&self) -> String {
        format!("rediss-cluster://localhost:{}", self.tls.port)
    }
}
