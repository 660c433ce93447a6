//! Settings of a connection to Redis, and the URL of a server, a cluster or sentinels.
//!
//! To connect is the first call (`connect_lazy`); `connect` is that and one attempt. So a server
//! that is down, too old, or rejects the user gives one kind of answer, whenever it is noticed.
//! Certificates are checked when the store is made.

use std::{marker::PhantomData, time::Duration};

use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError};

#[cfg(feature = "redis-tls")]
use super::tls;
use super::{
    Redis,
    cluster::Cluster,
    connection::{RedisConnection, Transport},
    sentinel::Sentinels,
    server::{RedisServer, ServerLocation, SharedConnection},
};
use crate::{
    algorithm::Scripted,
    store::{ScriptStore, StoreError},
};

/// Builder of a [`Redis`] store, returned by [`Redis::builder`](ScriptStore::builder).
///
/// | setting | default |
/// |---|---|
/// | [`prefix`](Self::prefix) | `tollgate` |
/// | [`response_timeout`](Self::response_timeout) | 1 s |
/// | [`sentinel_login`](Self::sentinel_login) | none |
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{TokenBucket, store::Redis};
///
/// # async fn run() -> Result<(), tollgate::store::StoreError> {
/// let store = Redis::<TokenBucket>::builder("redis-cluster://node-1:6379,node-2:6379")
///     .prefix("shop")
///     .response_timeout(Duration::from_millis(500))
///     .connect()
///     .await?;
/// # let _ = store; Ok(()) }
/// ```
#[must_use = "a builder does nothing until `connect` or `connect_lazy`"]
pub struct RedisBuilder<Rule> {
    pub(super) settings: ConnectionSettings,
    prefix: String,
    rule: PhantomData<fn() -> Rule>,
}

/// The settings of a connection, which do not depend on the rule.
#[derive(Clone)]
pub(super) struct ConnectionSettings {
    pub(super) url: String,
    pub(super) response_timeout: Duration,
    /// User and password for the sentinels themselves.
    pub(super) sentinel_login: RedisConnectionInfo,
    #[cfg(feature = "redis-tls")]
    pub(super) certificates: redis::TlsCertificates,
    #[cfg(feature = "redis-tls")]
    pub(super) plain_sentinels: bool,
}

impl_clone!(RedisBuilder<Rule>, { settings, prefix, rule });

// The URL may contain a password, and a certificate comes with its key.
impl_debug!(
    RedisBuilder<Rule>,
    |it| prefix = it.prefix,
    response_timeout = it.settings.response_timeout
);

impl<Rule> RedisBuilder<Rule> {
    pub(super) fn new(url: String) -> Self {
        Self {
            settings: ConnectionSettings {
                url,
                response_timeout: Duration::from_secs(1),
                sentinel_login: RedisConnectionInfo::default(),
                #[cfg(feature = "redis-tls")]
                certificates: tls::system_roots(),
                #[cfg(feature = "redis-tls")]
                plain_sentinels: false,
            },
            prefix: "tollgate".to_owned(),
            rule: PhantomData,
        }
    }

    /// Sets the prefix of all keys; `tollgate` by default.
    ///
    /// It must not contain braces: a cluster chooses the node of a key by the part in braces.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Sets the time that a server may take to accept a connection, and to answer; 1 s by default.
    ///
    /// After that the connection is closed, and all calls that wait on it fail. Choose it longer
    /// than the [`timeout`](crate::store::StoreExt::timeout) of a decision. A call that this
    /// timeout drops is still watched until the response timeout, so a dead connection is closed
    /// even if calls are rare. In a cluster, a call that is redirected may take up to twice this
    /// time in addition.
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.settings.response_timeout = time;
        self
    }

    /// Sets the user and the password for the sentinels themselves; none by default.
    ///
    /// With a password alone (`requirepass`), pass an empty user. The master's login is part of the
    /// URL. Only sentinels receive this login.
    pub fn sentinel_login(mut self, user: &str, password: &str) -> Self {
        let login = RedisConnectionInfo::default().set_password(password);
        self.settings.sentinel_login = if user.is_empty() {
            login
        } else {
            login.set_username(user)
        };
        self
    }

    /// Connects, and checks that the server can run the scripts.
    ///
    /// # Errors
    ///
    /// Those of [`connect_lazy`](Self::connect_lazy); and when the server does not answer, presents
    /// no trusted certificate, rejects the login, or is too old.
    ///
    /// # Panics
    ///
    /// See [`connect_lazy`](Self::connect_lazy).
    pub async fn connect(self) -> Result<Redis<Rule>, StoreError>
    where
        Rule: Scripted,
    {
        let connection = self.settings.connection()?;
        connection.transport.check().await?;
        Ok(ScriptStore::with_prefix(connection, &self.prefix))
    }

    /// Creates a store that connects on its first call, so that the program can start while Redis
    /// is down.
    ///
    /// Sends nothing yet, and needs no runtime. The first call connects and checks the server;
    /// concurrent calls wait for the same attempt, which continues if they are dropped. If it
    /// fails, each of them gets the error that [`connect`](Self::connect) would return, and the
    /// next call tries again. A wrong password or a server that is too old therefore does not stop
    /// the program: monitor [`failures`](crate::store::OnFailure::failures).
    ///
    /// ```
    /// use tollgate::prelude::*;
    ///
    /// # fn run() -> Result<(), tollgate::store::StoreError> {
    /// let redis = Redis::<TokenBucket>::builder("redis://127.0.0.1")
    ///     .prefix("shop")
    ///     .connect_lazy()?;
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(10))
    ///     .key(PeerIp::new())
    ///     .store(redis.fail_open());
    /// # let _ = layer; Ok(()) }
    /// # assert!(run().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// When the URL is invalid or needs the feature `redis-tls`, or when a certificate is not PEM
    /// or does not match its key.
    ///
    /// # Panics
    ///
    /// With a TLS URL, when [`rustls` has no cryptography provider](ScriptStore::builder).
    pub fn connect_lazy(self) -> Result<Redis<Rule>, StoreError>
    where
        Rule: Scripted,
    {
        Ok(ScriptStore::with_prefix(
            self.settings.connection()?,
            &self.prefix,
        ))
    }
}

impl ConnectionSettings {
    /// Returns the connection for the URL, without connecting yet.
    pub(super) fn connection(&self) -> Result<RedisConnection, StoreError> {
        let response_timeout = self.response_timeout;
        let after = |scheme| Some((scheme, self.url.strip_prefix(scheme)?));
        let either = |plain, tls| after(plain).or_else(|| after(tls));
        let address = |client: &Client| client.get_connection_info().addr().to_string();
        if let Some((scheme, rest)) = either("redis-cluster://", "rediss-cluster://") {
            let (user, hosts) = credentials(rest);
            let scheme = scheme.replace("-cluster", "");
            if scheme == "rediss://" {
                // Checks the cryptography provider and the certificates, once for all nodes.
                self.server("rediss://localhost")?;
            }
            let mut seeds = Vec::new();
            for host in hosts.split(',') {
                let node = format!("{scheme}{user}{host}");
                let info = node.as_str().into_connection_info();
                let info = info.map_err(|error| invalid(&self.url, &error))?;
                let client = self.client(&node)?;
                match info.addr().clone() {
                    ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                        seeds.push(((host, port), client));
                    }
                    // Unix sockets have other URLs.
                    _ => {}
                }
            }
            let address = addresses(seeds.iter().map(|(_, client)| address(client)));
            let transport = Transport::Cluster(Cluster::new(seeds, response_timeout));
            return Ok(RedisConnection { transport, address });
        }
        let (location, address) =
            if let Some((scheme, rest)) = either("redis-sentinel://", "rediss-sentinel://") {
                let sentinels = self.sentinels(scheme, rest)?;
                let address = addresses(sentinels.sentinels.iter().map(address));
                (ServerLocation::Sentinels(Box::new(sentinels)), address)
            } else {
                let client = self.server(&self.url)?;
                let address = addresses([address(&client)]);
                (ServerLocation::Address(Box::new(client)), address)
            };
        let server = RedisServer {
            location,
            response_timeout,
        };
        let transport = Transport::Server(SharedConnection::new(server, Box::new(|| ())));
        Ok(RedisConnection { transport, address })
    }

    /// Parses the part after the scheme of a URL for sentinels:
    /// `user:password@host,host/name/database`.
    fn sentinels(&self, scheme: &str, rest: &str) -> Result<Sentinels, StoreError> {
        let scheme = scheme.replace("-sentinel", "");
        let (user, rest) = credentials(rest);
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, database) = path.split_once('/').unwrap_or((path, "0"));
        if name.is_empty() {
            return Err(StoreError::other(
                "the URL of the sentinels names no master: expected `redis-sentinel://host:26379,host:26380/name`; put the \
                 name of a master that they monitor after the hosts",
            ));
        }
        let sentinel_scheme = self.sentinel_scheme(&scheme);
        let sentinels = hosts.split(',').map(|host| {
            // An IPv6 address in brackets contains colons too.
            let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
            let port = if has_port { "" } else { ":26379" };
            let sentinel = self.client(&format!("{sentinel_scheme}{host}{port}"))?;
            let info = sentinel.get_connection_info().clone();
            let info = info.set_redis_settings(self.sentinel_login.clone());
            Client::open(info).map_err(|error| invalid(&self.url, &error))
        });
        Ok(Sentinels {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            name: name.to_owned(),
            // The host is a placeholder: the sentinels report it.
            master: self.server(&format!("{scheme}{user}localhost/{database}"))?,
        })
    }

    fn sentinel_scheme<'a>(&self, scheme: &'a str) -> &'a str {
        #[cfg(feature = "redis-tls")]
        if self.plain_sentinels {
            return "redis://";
        }
        scheme
    }

    /// Returns the client for a server, with its TLS settings checked.
    fn server(&self, url: &str) -> Result<Client, StoreError> {
        let client = self.client(url)?;
        #[cfg(feature = "redis-tls")]
        tls::check(&client)?;
        Ok(client)
    }

    /// Returns the client for a server or a sentinel.
    fn client(&self, url: &str) -> Result<Client, StoreError> {
        // The client library accepts Valkey's scheme too.
        if url.starts_with("rediss") || url.starts_with("valkeys") {
            #[cfg(feature = "redis-tls")]
            return tls::client(url, &self.certificates);
            #[cfg(not(feature = "redis-tls"))]
            return Err(StoreError::other(WITHOUT_TLS));
        }
        Client::open(url).map_err(|error| invalid(url, &error))
    }
}

#[cfg(not(feature = "redis-tls"))]
const WITHOUT_TLS: &str = "the URL needs TLS, which this program was built without: enable the feature `redis-tls` of \
                           tollgate, or connect with `redis://`";

/// Returns the error for an invalid URL, with the expected forms.
pub(super) fn invalid(url: &str, error: &RedisError) -> StoreError {
    // The part before `@` may contain a password.
    let shown = match (url.rsplit_once('@'), url.split_once("://")) {
        (None, _) => url.to_owned(),
        (Some((_, host)), Some((scheme, _))) => format!("{scheme}://…@{host}"),
        (Some((_, host)), None) => format!("…@{host}"),
    };
    let what = match url.split_once("://") {
        None => "has no scheme".to_owned(),
        Some(_) => format!("cannot be read ({error})"),
    };
    StoreError::other(format!(
        "the URL `{shown}` {what}: expected one like `redis://host:6379`, `redis-cluster://host:7000,host:7001` or \
         `redis-sentinel://host:26379/name`; `Redis::builder` lists all"
    ))
}

/// Joins the addresses of several servers by commas.
fn addresses(each: impl IntoIterator<Item = String>) -> Option<Box<str>> {
    let each: Vec<String> = each.into_iter().collect();
    (!each.is_empty()).then(|| each.join(",").into())
}

/// Splits off `user:password@`, which may be empty, from the hosts.
fn credentials(rest: &str) -> (&str, &str) {
    let at = rest.rfind('@').map_or(0, |at| at + 1);
    rest.split_at(at)
}

#[cfg(test)]
mod tests {
    use redis::Client;

    use super::Sentinels;
    use crate::{
        TokenBucket,
        store::{Redis, StoreError},
    };

    fn sentinels(rest: &str) -> Result<Sentinels, StoreError> {
        let builder = Redis::<TokenBucket>::builder("").sentinel_login("watcher", "t3ll:m@");
        builder.settings.sentinels("redis-sentinel://", rest)
    }

    #[test]
    fn a_url_of_sentinels_contains_their_addresses_and_the_login_of_the_master() {
        let found = sentinels("me:p%40ss@one,two:7000,[::1],[::2]:7001/shop/3").unwrap();
        let address = |client: &Client| client.get_connection_info().addr().to_string();
        let addresses: Vec<_> = found.sentinels.iter().map(address).collect();
        let expected = ["one:26379", "two:7000", "::1:26379", "::2:7001"];
        assert_eq!(addresses, expected);
        assert_eq!(found.name, "shop");
        let login = |client: &Client| {
            let settings = client.get_connection_info().redis_settings();
            let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
            (
                text(settings.username()),
                text(settings.password()),
                settings.db(),
            )
        };
        assert_eq!(login(&found.master), ("me".into(), "p@ss".into(), 3));
        for sentinel in &found.sentinels {
            assert_eq!(login(sentinel), ("watcher".into(), "t3ll:m@".into(), 0));
        }
    }

    #[test]
    fn an_address_contains_no_secret_of_the_url() {
        for (url, address) in [
            ("redis://host", "host:6379"),
            ("redis://me:s3cr%40t@host:7000/3", "host:7000"),
            ("redis://me:s3cr?t@host:7000", ""),
            ("redis+unix:///run/redis?pass=s3cr@t&db=1", "/run/redis"),
            ("unix:///run/redis?pass=s3cr@t", "/run/redis"),
            (
                "redis-cluster://me:s3cr@t@one:7000,two",
                "one:7000,two:6379",
            ),
            (
                "redis-sentinel://me:s3cr@t@one,two:7000/shop/3",
                "one:26379,two:7000",
            ),
        ] {
            let connection = Redis::<TokenBucket>::builder(url).settings.connection();
            let found = connection.ok().and_then(|connection| connection.address);
            assert_eq!(found.as_deref().unwrap_or_default(), address, "{url}");
        }
    }

    #[test]
    fn an_invalid_url_of_sentinels_is_an_error() {
        for wrong in [
            "one:26379",
            "one:26379/",
            "one/shop/first",
            "/shop",
            "one:port/shop",
            "",
        ] {
            assert!(sentinels(wrong).is_err(), "{wrong}");
        }
    }
}
