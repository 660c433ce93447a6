//! A server that can be reached by TLS.

use std::{fs, time::Duration};

use crate::servers::{Redis, RedisOptions, free_port, wait_until};

/// A running server with a second port, for TLS; killed when dropped.
#[derive(Debug)]
pub(crate) struct TlsRedis {
    pub(crate) server: Redis,
    port: u16,
    /// The certificate that the server shows, which vouches for itself, as PEM.
    pub(crate) certificate: String,
    /// The key of it.
    pub(crate) key: String,
}

impl TlsRedis {
    /// A Redis that trusts its own certificate alone, and asks its clients for it where `asks_clients`.
    pub(crate) fn start(asks_clients: bool) -> Self {
        Self::start_of(Redis::options(), asks_clients)
    }

    /// A cluster of this one node, which has all slots.
    pub(crate) fn start_cluster() -> Self {
        let options = Redis::options()
            .set("cluster-enabled", "yes")
            .set("cluster-announce-ip", "127.0.0.1")
            .set("tls-cluster", "yes");
        let alone = Self::start_of(options, false);
        alone
            .server
            .command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        wait_until("a cluster of one", Duration::from_secs(5), || {
            let info = alone.server.command(&["CLUSTER", "INFO"]);
            let is_well = info.contains("cluster_state:ok");
            is_well.then_some(()).ok_or(info)
        });
        alone
    }

    fn start_of(options: RedisOptions, asks_clients: bool) -> Self {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let own = rcgen::generate_simple_self_signed(names).unwrap();
        let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
        let port = free_port();
        let asks = if asks_clients { "yes" } else { "no" };
        let server = options.start_as(|folder| {
            let file = |name: &str, text: &str| {
                let path = folder.join(name);
                fs::write(&path, text).unwrap();
                path.to_str().expect("a path in UTF-8").to_owned()
            };
            let (certificate, key) = (file("cert.pem", &certificate), file("key.pem", &key));
            let port = port.to_string();
            let settings = [
                ("--tls-port", port.as_str()),
                ("--tls-cert-file", &certificate),
                ("--tls-key-file", &key),
                ("--tls-ca-cert-file", &certificate),
                ("--tls-auth-clients", asks),
            ];
            let words = settings.map(|(name, value)| [name.to_owned(), value.to_owned()]);
            words.into_iter().flatten().collect()
        });
        Self {
            server,
            port,
            certificate,
            key,
        }
    }

    /// `rediss://localhost:port`.
    pub(crate) fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port)
    }

    /// `rediss-cluster://localhost:port`.
    pub(crate) fn cluster_url(&self) -> String {
        format!("rediss-cluster://localhost:{}", self.port)
    }
}
