//! Settings of the connection of stores in memcached, and the address of a server in its URL.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    MemcachedConnection,
    pool::{MemcachedServer, Pool},
};
use crate::store::StoreError;

/// Builder of a [`MemcachedConnection`], returned by [`MemcachedConnection::builder`].
///
/// | setting | default |
/// |---|---|
/// | [`response_timeout`](Self::response_timeout) | 1 s |
/// | [`connections`](Self::connections) | 1 |
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{TokenBucket, store::{Memcached, MemcachedConnection}};
///
/// # async fn run() -> Result<(), tollgate::store::StoreError> {
/// let connection = MemcachedConnection::builder("memcached://cache.internal")
///     .response_timeout(Duration::from_millis(200))
///     .connect()
///     .await?;
/// let store = Memcached::<TokenBucket>::builder_on(connection)
///     .prefix("shop")
///     .deadline(Duration::from_millis(80))
///     .build();
/// # let _ = store; Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `connect` or `connect_lazy`"]
pub struct MemcachedConnectionBuilder {
    url: String,
    response_timeout: Duration,
    connections: usize,
}

impl MemcachedConnectionBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            response_timeout: Duration::from_secs(1),
            connections: 1,
        }
    }

    /// Sets the time that the server may take to accept a connection, and to answer; 1 s by
    /// default.
    ///
    /// After that the connection is closed, and all calls that wait on it fail. Choose it longer
    /// than the [`timeout`](crate::store::StoreExt::timeout) of a decision.
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = time;
        self
    }

    /// Sets the number of connections; 1 by default, and at least 1.
    ///
    /// One connection carries any number of concurrent calls. Several use several threads of the
    /// server and several cores here.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Connects, and checks that the server supports the necessary commands.
    ///
    /// # Errors
    ///
    /// Those of [`connect_lazy`](Self::connect_lazy); and when the server does not answer, is too
    /// old, or was started without compare-and-swap (`-C`).
    pub async fn connect(self) -> Result<MemcachedConnection, StoreError> {
        let connection = self.connect_lazy()?;
        connection.pool.get().await?;
        Ok(connection)
    }

    /// Creates connections that are made by the first calls, so that the program can start while
    /// memcached is down.
    ///
    /// Sends nothing yet, and needs no runtime. The first call on each connection connects and
    /// checks the server; concurrent calls wait for the same attempt, which continues if they are
    /// dropped. If it fails, each of them gets the error that [`connect`](Self::connect) would
    /// return, and the next call tries again. A server that is too old therefore does not stop the
    /// program: monitor [`failures`](crate::store::OnFailure::failures).
    ///
    /// ```
    /// use tollgate::{prelude::*, store::{Memcached, MemcachedConnection}};
    ///
    /// # fn run() -> Result<(), tollgate::store::StoreError> {
    /// let connection = MemcachedConnection::builder("memcached://127.0.0.1").connect_lazy()?;
    /// let memcached = Memcached::<TokenBucket>::builder_on(connection).prefix("shop").build();
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(10))
    ///     .key(PeerIp::new())
    ///     .store(memcached.fail_open());
    /// # let _ = layer; Ok(()) }
    /// # assert!(run().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// When the URL is invalid.
    pub fn connect_lazy(self) -> Result<MemcachedConnection, StoreError> {
        let server = MemcachedServer {
            address: address(&self.url).map_err(StoreError::other)?,
            response_timeout: self.response_timeout,
        };
        let pool = Arc::new(Pool::new(server, self.connections));
        Ok(MemcachedConnection { pool })
    }
}

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

/// The default port of memcached.
const DEFAULT_PORT: u16 = 11_211;

/// Parses `memcached://host:port`.
///
/// # Errors
///
/// A message with the URL, the problem and the expected form.
pub(super) fn address(url: &str) -> Result<Address, String> {
    let invalid = |problem: &str| {
        // The part before `@` may contain a password.
        let secret = url.rsplit_once('@');
        let shown = secret.map_or(url.into(), |(_, host)| format!("memcached://…@{host}"));
        format!(
            "the URL `{shown}` {problem}: expected `memcached://host:port`, as in `memcached://127.0.0.1:11211`"
        )
    };
    let rest = url
        .strip_prefix("memcached://")
        .ok_or_else(|| invalid("is not one of memcached"))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(',') {
        return Err(invalid(
            "names several servers, but each key must always be on the same one",
        ));
    }
    if rest.contains('@') {
        return Err(invalid(
            "contains a user, but authentication is not supported",
        ));
    }
    if rest.contains(['/', '?', '#', ' ']) {
        return Err(invalid("continues after the port"));
    }
    let (host, port) = match rest.strip_prefix('[') {
        // An IPv6 address.
        Some(rest) => rest.split_once(']').map(|(host, port)| {
            (
                host,
                port.strip_prefix(':').or(port.is_empty().then_some("")),
            )
        }),
        None => match rest.split_once(':') {
            Some((host, port)) => Some((host, Some(port).filter(|port| !port.is_empty()))),
            None => Some((rest, Some(""))),
        },
    }
    .ok_or_else(|| invalid("lacks the `]` after the address"))?;
    let port = match port {
        Some("") => Some(DEFAULT_PORT),
        Some(port) => port.parse().ok().filter(|port| *port != 0),
        None => None,
    };
    match port {
        _ if host.is_empty() => Err(invalid("names no host")),
        None => Err(invalid("has an invalid port")),
        Some(port) => Ok(Address {
            host: host.to_owned(),
            port,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_urls_are_parsed() {
        for (url, host, port) in [
            ("memcached://127.0.0.1:22122", "127.0.0.1", 22_122),
            (
                "memcached://cache.example.org",
                "cache.example.org",
                DEFAULT_PORT,
            ),
            ("memcached://cache/", "cache", DEFAULT_PORT),
            ("memcached://[::1]:22122", "::1", 22_122),
            ("memcached://[::1]", "::1", DEFAULT_PORT),
        ] {
            let host = host.to_owned();
            assert_eq!(address(url), Ok(Address { host, port }), "{url}");
        }
    }

    #[test]
    fn errors_of_invalid_urls_name_the_problem() {
        for (url, why) in [
            ("redis://127.0.0.1", "is not one of memcached"),
            ("127.0.0.1:11211", "is not one of memcached"),
            ("", "is not one of memcached"),
            ("memcached://", "names no host"),
            ("memcached://:11211", "names no host"),
            ("memcached://[]:1", "names no host"),
            ("memcached://[::1", "lacks the `]`"),
            ("memcached://[::1]x", "an invalid port"),
            ("memcached://a:", "an invalid port"),
            ("memcached://a:0", "an invalid port"),
            ("memcached://a:65536", "an invalid port"),
            ("memcached://a:b", "an invalid port"),
            ("memcached://::1", "names no host"),
            ("memcached://a:1,b:1", "several servers"),
            ("memcached://user:pass@a:1", "authentication"),
            ("memcached://a:1/0", "after the port"),
            ("memcached://a b", "after the port"),
        ] {
            let error = address(url).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("pass@"), "{error}");
            assert!(
                error.contains("expected `memcached://host:port`"),
                "{error}"
            );
        }
    }
}
