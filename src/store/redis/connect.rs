//! How to connect.

use std::{fmt, time::Duration};

use redis::{Client, cluster::ClusterClientBuilder, sentinel::SentinelServerType};

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
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
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

    /// How to connect to the server, sentinels or cluster of a URL.
    ///
    /// | URL | |
    /// |---|---|
    /// | `redis://user:password@host:6379/0` | one server |
    /// | `redis-cluster://host:7000,host:7001` | a cluster, by some of its nodes |
    /// | `redis-sentinel://host:26379,host:26380/name` | the master of that name, by sentinels |
    pub fn builder(url: impl Into<String>) -> RedisBuilder {
        RedisBuilder {
            url: url.into(),
            prefix: "tollgate".to_owned(),
            response_timeout: Duration::from_secs(1),
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
    /// Afterwards the connection is given up. It should be longer than the deadline of a decision,
    /// which is the user's to set.
    #[must_use]
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = time;
        self
    }

    /// Connects, and sees that the server can do what is asked of it.
    ///
    /// # Errors
    ///
    /// When the URL is of no known form, nobody answers, or the server is too old.
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
        let servers = |hosts: &str| -> Vec<String> {
            hosts
                .split(',')
                .map(|host| format!("redis://{host}"))
                .collect()
        };
        if let Some(hosts) = self.url.strip_prefix("redis-cluster://") {
            let client = ClusterClientBuilder::new(servers(hosts))
                .connection_timeout(timeout)
                .response_timeout(timeout)
                .build()
                .map_err(Error::other)?;
            let connection = client.get_async_connection().await.map_err(link::error)?;
            return Ok(Link::Cluster(connection));
        }
        if let Some(rest) = self.url.strip_prefix("redis-sentinel://") {
            let Some((hosts, name)) = rest.rsplit_once('/').filter(|(_, name)| !name.is_empty())
            else {
                return Err(Error::other(
                    "the URL of the sentinels names no master: expected `redis-sentinel://host:26379,host:26380/name`",
                ));
            };
            let client = redis::sentinel::SentinelClient::build(
                servers(hosts),
                name.to_owned(),
                None,
                SentinelServerType::Master,
            )
            .map_err(Error::other)?;
            let source = Source::Sentinel(Box::new(tokio::sync::Mutex::new(client)));
            return Ok(Link::one(source, timeout));
        }
        let client = Client::open(self.url.as_str()).map_err(Error::other)?;
        Ok(Link::one(Source::Single(client), timeout))
    }
}

/// Loads the programs, and reads the server's version.
async fn check(link: &Link) -> Result<(), Error> {
    let info: String = link
        .query(redis::cmd("INFO").arg("server"))
        .await
        .map_err(link::error)?;
    let version = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"))
        .map(|version| {
            version
                .trim()
                .split('.')
                .filter_map(|part| part.parse().ok())
                .collect()
        });
    let version: Vec<u64> = version.unwrap_or_default();
    if version[..] < OLDEST[..] {
        return Err(Error::other(format!(
            "the Redis server is of version {}: expected {}.{} or later; update it",
            version
                .iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join("."),
            OLDEST[0],
            OLDEST[1],
        )));
    }
    for program in Program::ALL {
        let loaded: String = link
            .query(redis::cmd("SCRIPT").arg("LOAD").arg(program.source()))
            .await
            .map_err(link::error)?;
        debug_assert_eq!(loaded, link::digest(program));
    }
    Ok(())
}
