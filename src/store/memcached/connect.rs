//! How to connect.

use std::{sync::Arc, time::Duration};

use super::{
    Memcached, MemcachedConnection, MemcachedCounters,
    pool::{Address, Pool, Server},
};
use crate::{
    algorithm::{Algorithm, Codec, Counted},
    store::{Counters, Error, Optimistic},
};

/// Where a server listens unless its URL says otherwise.
const PORT: u16 = 11_211;

/// How to connect to memcached; made by [`MemcachedConnection::builder`].
#[derive(Clone, Debug)]
pub struct MemcachedBuilder {
    url: String,
    response_timeout: Duration,
    connections: usize,
}

impl<Rule> Memcached<Rule>
where
    Rule: Algorithm<State: Codec + Send> + Send + Sync + 'static,
{
    /// Connects to the server of a URL, with all defaults.
    ///
    /// # Errors
    ///
    /// As [`MemcachedBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        let connection = MemcachedConnection::builder(url).connect().await?;
        Ok(Optimistic::new(connection))
    }

    /// A store that connects with its first call to the server of a URL, with all defaults.
    ///
    /// # Errors
    ///
    /// As [`MemcachedBuilder::connect_lazy`].
    pub fn connect_lazy(url: impl Into<String>) -> Result<Self, Error> {
        let connection = MemcachedConnection::builder(url).connect_lazy()?;
        Ok(Optimistic::new(connection))
    }
}

impl<Rule: Counted> MemcachedCounters<Rule> {
    /// Connects to the server of a URL, with all defaults.
    ///
    /// # Errors
    ///
    /// As [`MemcachedBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        let connection = MemcachedConnection::builder(url).connect().await?;
        Ok(Counters::new(connection))
    }

    /// A store that connects with its first call to the server of a URL, with all defaults.
    ///
    /// # Errors
    ///
    /// As [`MemcachedBuilder::connect_lazy`].
    pub fn connect_lazy(url: impl Into<String>) -> Result<Self, Error> {
        let connection = MemcachedConnection::builder(url).connect_lazy()?;
        Ok(Counters::new(connection))
    }
}

impl MemcachedConnection {
    /// How to connect to the server of a URL: `memcached://host:port`, where the port is 11211 unless it is told.
    pub fn builder(url: impl Into<String>) -> MemcachedBuilder {
        MemcachedBuilder {
            url: url.into(),
            response_timeout: Duration::from_secs(1),
            connections: 1,
        }
    }
}

impl MemcachedBuilder {
    /// How long the server may take, to be connected to and to answer; a second by default.
    ///
    /// Afterwards the connection is given up, and with it every call that waits on it. It should be longer than the
    /// deadline of a decision, which is the user's to set.
    #[must_use]
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = time;
        self
    }

    /// Over how many connections calls are spread, at least 1 and 1 by default.
    ///
    /// One carries any number of calls at once. Several occupy several threads of the server, and several cores here.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Connects, and sees that the server can do what is asked of it.
    ///
    /// # Errors
    ///
    /// As [`connect_lazy`](Self::connect_lazy); and when nobody answers, the server is too old or does not number its
    /// writes (`-C`).
    pub async fn connect(self) -> Result<MemcachedConnection, Error> {
        let connection = self.connect_lazy()?;
        connection.pool.link().await?;
        Ok(connection)
    }

    /// Connects with the first calls, so that a program starts also while the server is gone.
    ///
    /// Nobody is asked anything yet, and no runtime is needed. The first call on each connection makes it, and sees that the
    /// server can do what is asked of it; calls that come meanwhile wait for the same attempt, which goes on when they are
    /// given up. What keeps it from succeeding is an error of each of them, the one that [`connect`](Self::connect) tells: of
    /// a server that is gone as in any outage, by policy. The next call tries again. So a server that is too old does
    /// not end the program: watch [`failures`](crate::store::OnFailure::failures).
    ///
    /// ```
    /// use tollgate::{TokenBucket, store::{Memcached, MemcachedConnection, OptimisticBuilder, StoreExt}};
    ///
    /// # fn run() -> Result<(), tollgate::store::Error> {
    /// let connection = MemcachedConnection::builder("memcached://127.0.0.1").connect_lazy()?;
    /// let memcached: Memcached<TokenBucket> = OptimisticBuilder::new(connection).build();
    /// let store = memcached.fail_open();
    /// # let _ = store; Ok(()) }
    /// # assert!(run().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// When the URL is of no known form.
    pub fn connect_lazy(self) -> Result<MemcachedConnection, Error> {
        let server = Server {
            address: address(&self.url).map_err(Error::other)?,
            response_timeout: self.response_timeout,
        };
        let pool = Arc::new(Pool::new(server, self.connections));
        Ok(MemcachedConnection { pool })
    }
}

/// The server of a URL.
fn address(url: &str) -> Result<Address, String> {
    let wrong = |what: &str| {
        // What a password may stand before is not repeated.
        let secret = url.rsplit_once('@');
        let shown = secret.map_or(url.into(), |(_, host)| format!("memcached://…@{host}"));
        format!(
            "the URL `{shown}` {what}: expected `memcached://host:port`, as in `memcached://127.0.0.1:11211`"
        )
    };
    let rest = url
        .strip_prefix("memcached://")
        .ok_or_else(|| wrong("is not one of memcached"))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(',') {
        return Err(wrong(
            "names several servers, and a key must always lie on the same one",
        ));
    }
    if rest.contains('@') {
        return Err(wrong("holds a user, and authentication is not supported"));
    }
    if rest.contains(['/', '?', '#', ' ']) {
        return Err(wrong("goes on behind the port"));
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
    .ok_or_else(|| wrong("has no end of the address"))?;
    let port = match port {
        Some("") => Some(PORT),
        Some(port) => port.parse().ok().filter(|port| *port != 0),
        None => None,
    };
    match port {
        _ if host.is_empty() => Err(wrong("names no host")),
        None => Err(wrong("has a port that is none")),
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
    fn urls_name_a_server() {
        for (url, host, port) in [
            ("memcached://127.0.0.1:22122", "127.0.0.1", 22_122),
            ("memcached://cache.example.org", "cache.example.org", PORT),
            ("memcached://cache/", "cache", PORT),
            ("memcached://[::1]:22122", "::1", 22_122),
            ("memcached://[::1]", "::1", PORT),
        ] {
            let host = host.to_owned();
            assert_eq!(address(url), Ok(Address { host, port }), "{url}");
        }
    }

    #[test]
    fn other_urls_tell_what_is_wrong() {
        for (url, why) in [
            ("redis://127.0.0.1", "is not one of memcached"),
            ("127.0.0.1:11211", "is not one of memcached"),
            ("", "is not one of memcached"),
            ("memcached://", "names no host"),
            ("memcached://:11211", "names no host"),
            ("memcached://[]:1", "names no host"),
            ("memcached://[::1", "no end of the address"),
            ("memcached://[::1]x", "a port that is none"),
            ("memcached://a:", "a port that is none"),
            ("memcached://a:0", "a port that is none"),
            ("memcached://a:65536", "a port that is none"),
            ("memcached://a:b", "a port that is none"),
            ("memcached://::1", "names no host"),
            ("memcached://a:1,b:1", "several servers"),
            ("memcached://user:pass@a:1", "authentication"),
            ("memcached://a:1/0", "behind the port"),
            ("memcached://a b", "behind the port"),
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
