//! How to connect.

use std::{fmt, time::Duration};

use redis::{
    Client, IntoConnectionInfo, RedisResult,
    cluster::ClusterClientBuilder,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};

#[cfg(feature = "redis-tls")]
use super::tls;
use super::{
    Redis, RedisConnection,
    link::{self, Link, Source},
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
    #[cfg(feature = "redis-tls")]
    pub(super) certificates: redis::TlsCertificates,
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
    /// | `redis-sentinel://host:26379,host:26380/name` | the master of that name, by sentinels |
    ///
    /// `user:password@` in front of the first host is for all nodes of a cluster, and for the master that sentinels
    /// name, not for the sentinels.
    ///
    /// # TLS
    ///
    /// By `rustls`, which asks the application for its cryptography: enable one of the features `ring` and `aws_lc_rs` of
    /// that crate, or install a provider (`rustls::crypto::CryptoProvider::install_default`), or
    /// [`connect`](RedisBuilder::connect) panics and says so. The server's certificate is checked by the roots that the
    /// machine trusts, or by [those that are set](RedisBuilder#method.root_certificate).
    /// Sentinels, and masters that they name, are reached without TLS.
    pub fn builder(url: impl Into<String>) -> RedisBuilder {
        RedisBuilder {
            url: url.into(),
            prefix: "tollgate".to_owned(),
            response_timeout: Duration::from_secs(1),
            #[cfg(feature = "redis-tls")]
            certificates: tls::none(),
        }
    }
}

impl RedisBuilder {
    /// What all keys begin with; `tollgate` by default.
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
        if let Some(rest) = self.url.strip_prefix("redis-sentinel://") {
            let Some((rest, name)) = rest.rsplit_once('/').filter(|(_, name)| !name.is_empty())
            else {
                return Err(Error::other(
                    "the URL of the sentinels names no master: expected `redis-sentinel://host:26379,host:26380/name`",
                ));
            };
            let (user, hosts) = credentials(rest);
            let client = sentinels(user, hosts, name).map_err(Error::other)?;
            let source = Source::Sentinel(Box::new(tokio::sync::Mutex::new(client)));
            return Ok(Link::one(source, timeout));
        }
        let client = Box::new(self.client()?);
        Ok(Link::one(Source::Single(client), timeout))
    }

    /// A cluster whose nodes are reached by TLS.
    fn by_tls(&self, builder: ClusterClientBuilder) -> Result<ClusterClientBuilder, Error> {
        #[cfg(feature = "redis-tls")]
        return Ok(builder.certs(self.certificates.clone()));
        #[cfg(not(feature = "redis-tls"))]
        {
            drop(builder);
            Err(Error::other(WITHOUT_TLS))
        }
    }

    /// The client of one server.
    fn client(&self) -> Result<Client, Error> {
        let url = self.url.as_str();
        if url.starts_with("rediss-sentinel://") {
            return Err(Error::other(
                "sentinels are reached without TLS: expected `redis-sentinel://…`; or give `Redis::over` a connection",
            ));
        }
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

/// The sentinels of a master, who itself is asked with the credentials.
fn sentinels(user: &str, hosts: &str, name: &str) -> RedisResult<SentinelClient> {
    let urls: Vec<_> = hosts
        .split(',')
        .map(|host| format!("redis://{host}"))
        .collect();
    let mut master = SentinelNodeConnectionInfo::default();
    if !user.is_empty() {
        let info = format!("redis://{user}localhost").into_connection_info()?;
        master = master.set_redis_connection_info(info.redis_settings().clone());
    }
    SentinelClient::build(
        urls,
        String::from(name),
        Some(master),
        SentinelServerType::Master,
    )
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
