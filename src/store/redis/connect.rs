//! How to connect.

use std::{fmt, time::Duration};

use redis::{Client, RedisConnectionInfo, cluster::ClusterClientBuilder};

#[cfg(feature = "redis-tls")]
use super::tls;
use super::{
    Redis, RedisConnection,
    link::{self, Link, Source},
    sentinel::Sentinels,
};
use crate::{
    algorithm::Scripted,
    store::{Error, Program, Script},
};

/// How a [`Redis`] store connects; made by [`Redis::builder`](Script::builder).
#[derive(Clone)]
pub struct RedisBuilder {
    url: String,
    prefix: String,
    response_timeout: Duration,
    /// By what the sentinels know this client.
    sentinel_login: RedisConnectionInfo,
    #[cfg(feature = "redis-tls")]
    pub(super) certificates: redis::TlsCertificates,
    #[cfg(feature = "redis-tls")]
    pub(super) plain_sentinels: bool,
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password, and a certificate comes with its key.
        f.debug_struct("RedisBuilder")
            .field("prefix", &self.prefix)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

/// The oldest server: the first whose scripts may write what depends on the clock.
const OLDEST: [u64; 2] = [5, 0];

impl<Rule> Script<RedisConnection, Rule>
where
    Rule: Scripted<State: Send> + Send + 'static,
{
    /// Connects, with the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`RedisBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// How to connect to the server, sentinels or cluster of a URL; [`over`](Self::over) takes a connection that is there.
    ///
    /// | URL | |
    /// |---|---|
    /// | `redis://user:password@host:6379/0` | one server |
    /// | `rediss://user:password@host:6379/0` | one server by TLS, feature `redis-tls` |
    /// | `redis-cluster://host:7000,host:7001` | a cluster, by some of its nodes; `rediss-cluster://` by TLS |
    /// | `redis-sentinel://host:26379,host:26380/name/0` | the master of that name, by sentinels; `rediss-sentinel://` by TLS |
    ///
    /// `user:password@` in front of the first host is for all nodes of a cluster, and for the master that sentinels
    /// name; what sentinels want to know is [set](RedisBuilder::sentinel_login). Ports are 6379 and, of sentinels, 26379
    /// where none is told, and the database is 0.
    ///
    /// # Sentinels
    ///
    /// All of them are asked at once, whenever a connection is made, and the first that leads to a master is believed. So
    /// one that is silent delays nobody, and it is enough that one of those in the URL is there.
    ///
    /// # TLS
    ///
    /// By `rustls`, which asks the application for its cryptography: enable one of the features `ring` and `aws_lc_rs` of
    /// that crate, or install a provider (`rustls::crypto::CryptoProvider::install_default`), or
    /// [`connect`](RedisBuilder::connect) panics and says so. The server's certificate is checked by the roots that the
    /// machine trusts, or by [those that are set](RedisBuilder#method.root_certificate).
    ///
    /// `rediss-sentinel://` reaches both the sentinels and the master by TLS, with the same certificates; for sentinels
    /// that speak none there is [`plain_sentinels`](RedisBuilder#method.plain_sentinels). The certificate of a sentinel must name the
    /// host in the URL, and that of each server the host that the sentinels tell. That is an IP address, as a
    /// `subjectAltName` of kind `IP`, unless they have `resolve-hostnames yes` and `announce-hostnames yes`. The port that they tell is the
    /// one they know the master by: that of TLS where they have `tls-replication yes`. The nodes of a cluster, too, tell IP addresses
    /// unless they have `cluster-preferred-endpoint-type hostname`.
    pub fn builder(url: impl Into<String>) -> RedisBuilder {
        RedisBuilder {
            url: url.into(),
            prefix: "tollgate".to_owned(),
            response_timeout: Duration::from_secs(1),
            sentinel_login: RedisConnectionInfo::default(),
            #[cfg(feature = "redis-tls")]
            certificates: tls::none(),
            #[cfg(feature = "redis-tls")]
            plain_sentinels: false,
        }
    }
}

impl RedisBuilder {
    /// What all keys begin with; `tollgate` by default. Without braces, by which a cluster tells what lies together.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// How long a server may take, to connect and to answer; a second by default.
    ///
    /// Afterwards the connection is given up, and with it every call that waits. It should be longer than the
    /// deadline of a decision, which is the user's to set. In a cluster it bounds the call with all its
    /// redirections.
    #[must_use]
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = time;
        self
    }

    /// The user and the password that the sentinels ask for, which are none by default; an empty user where they have only a
    /// password (`requirepass`).
    ///
    /// The master's are in the URL. Whatever is no sentinel does not get to know these.
    #[must_use]
    pub fn sentinel_login(mut self, user: &str, password: &str) -> Self {
        let login = RedisConnectionInfo::default().set_password(password);
        self.sentinel_login = if user.is_empty() {
            login
        } else {
            login.set_username(user)
        };
        self
    }

    /// Connects, and sees that the server can do what is asked of it.
    ///
    /// # Errors
    ///
    /// When the URL is of no known form, or asks for TLS without the feature `redis-tls`; when nobody answers, the server
    /// shows no certificate that is trusted, or is too old.
    ///
    /// # Panics
    ///
    /// With a URL that asks for TLS, where [`rustls` has no cryptography](Script::builder).
    pub async fn connect<Rule>(self) -> Result<Redis<Rule>, Error>
    where
        Rule: Scripted<State: Send> + Send + 'static,
    {
        let link = self.link().await?;
        check(&link).await?;
        Ok(Script::with_prefix(RedisConnection(link), &self.prefix))
    }

    async fn link(&self) -> Result<Link, Error> {
        let timeout = self.response_timeout;
        let cluster = |scheme| Some((scheme, self.url.strip_prefix(scheme)?));
        let cluster = cluster("redis-cluster://").or_else(|| cluster("rediss-cluster://"));
        if let Some((scheme, rest)) = cluster {
            let (user, hosts) = credentials(rest);
            let scheme = scheme.replace("-cluster", "");
            let nodes = hosts.split(',').map(|host| format!("{scheme}{user}{host}"));
            let builder = ClusterClientBuilder::new(nodes)
                .connection_timeout(timeout)
                .response_timeout(timeout)
                .retries(RETRIES)
                .min_retry_wait(RETRY_WAIT)
                .max_retry_wait(10 * RETRY_WAIT);
            let builder = if scheme == "rediss://" {
                self.by_tls(builder)?
            } else {
                builder
            };
            let client = builder.build().map_err(Error::other)?;
            let connection = client.get_async_connection().await.map_err(link::error)?;
            return Ok(Link::Cluster(connection));
        }
        let sentinels = |scheme| Some((scheme, self.url.strip_prefix(scheme)?));
        let sentinels = sentinels("redis-sentinel://").or_else(|| sentinels("rediss-sentinel://"));
        if let Some((scheme, rest)) = sentinels {
            let sentinels = self.sentinels(scheme, rest)?;
            return Ok(Link::one(Source::Sentinels(Box::new(sentinels)), timeout));
        }
        let client = Box::new(self.client(&self.url)?);
        Ok(Link::one(Source::Single(client), timeout))
    }

    /// A cluster whose nodes are reached by TLS.
    fn by_tls(&self, builder: ClusterClientBuilder) -> Result<ClusterClientBuilder, Error> {
        #[cfg(feature = "redis-tls")]
        return Ok(builder.certs(tls::checked(&self.certificates)?));
        #[cfg(not(feature = "redis-tls"))]
        {
            drop(builder);
            Err(Error::other(WITHOUT_TLS))
        }
    }

    /// The sentinels of a URL, and the master that they shall name.
    fn sentinels(&self, scheme: &str, rest: &str) -> Result<Sentinels, Error> {
        let scheme = scheme.replace("-sentinel", "");
        let (user, rest) = credentials(rest);
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, database) = path.split_once('/').unwrap_or((path, "0"));
        if name.is_empty() {
            return Err(Error::other(
                "the URL of the sentinels names no master: expected `redis-sentinel://host:26379,host:26380/name`",
            ));
        }
        let of_sentinels = self.scheme_of_sentinels(&scheme);
        let sentinels = hosts.split(',').map(|host| {
            // An IPv6 address has colons of its own, in brackets.
            let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
            let port = if has_port { "" } else { ":26379" };
            let sentinel = self.client(&format!("{of_sentinels}{host}{port}"))?;
            let info = sentinel.get_connection_info().clone();
            let info = info.set_redis_settings(self.sentinel_login.clone());
            Client::open(info).map_err(Error::other)
        });
        Ok(Sentinels {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            name: name.to_owned(),
            // Which host it is will be told.
            master: self.client(&format!("{scheme}{user}localhost/{database}"))?,
        })
    }

    fn scheme_of_sentinels<'a>(&self, scheme: &'a str) -> &'a str {
        #[cfg(feature = "redis-tls")]
        if self.plain_sentinels {
            return "redis://";
        }
        scheme
    }

    /// The client of one server.
    fn client(&self, url: &str) -> Result<Client, Error> {
        // Valkey's own scheme is known to the client as well.
        if url.starts_with("rediss") || url.starts_with("valkeys") {
            #[cfg(feature = "redis-tls")]
            return tls::client(url, &self.certificates);
            #[cfg(not(feature = "redis-tls"))]
            return Err(Error::other(WITHOUT_TLS));
        }
        Client::open(url).map_err(Error::other)
    }
}

#[cfg(not(feature = "redis-tls"))]
const WITHOUT_TLS: &str = "the URL asks for TLS, which this program was built without: enable the feature `redis-tls` of \
                           tollgate, or connect by `redis://`";

/// How often a cluster is asked again: where a slot has moved, is on its way, or has no master yet.
const RETRIES: u32 = 4;
/// Milliseconds before a cluster is asked again that could not say, at least.
const RETRY_WAIT: u64 = 20;

/// `user:password@` or nothing, and the hosts.
fn credentials(rest: &str) -> (&str, &str) {
    let at = rest.rfind('@').map_or(0, |at| at + 1);
    rest.split_at(at)
}

/// Reads the server's version, and loads the programs. The nodes of a cluster get them with the first calls: that
/// one of them is down keeps nobody from connecting.
pub(super) async fn check(link: &Link) -> Result<(), Error> {
    let info: String = link
        .query_any(redis::cmd("INFO").arg("server").clone())
        .await
        .map_err(link::error)?;
    let told = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    let told = told.map_or("unknown", str::trim);
    let version: Vec<u64> = told
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect();
    if version[..] < OLDEST[..] {
        return Err(Error::other(format!(
            "the Redis server is of version {told}: expected {}.{} or later; update it",
            OLDEST[0], OLDEST[1],
        )));
    }
    if info.contains("redis_mode:sentinel") {
        return Err(Error::other(
            "what the URL names is a sentinel, which holds no data: expected `redis-sentinel://host:26379/name`, with the \
             name of a master that it monitors",
        ));
    }
    if !link.is_cluster() {
        for program in Program::ALL {
            let _: String = link
                .query(redis::cmd("SCRIPT").arg("LOAD").arg(program.source()))
                .await
                .map_err(link::error)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redis::Client;

    use super::{Redis, Sentinels};
    use crate::{TokenBucket, store::Error};

    fn sentinels(rest: &str) -> Result<Sentinels, Error> {
        let builder = Redis::<TokenBucket>::builder("").sentinel_login("watcher", "t3ll:m@");
        builder.sentinels("redis-sentinel://", rest)
    }

    #[test]
    fn a_url_of_sentinels_tells_where_they_are_and_who_the_master_knows() {
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
    fn a_url_of_sentinels_that_is_none_is_an_error() {
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
