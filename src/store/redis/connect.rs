//! How to connect.

use std::{fmt, time::Duration};

use redis::RedisConnectionInfo;

#[cfg(feature = "redis-tls")]
use super::tls;
use super::{Redis, RedisConnection};
use crate::{
    algorithm::Scripted,
    store::{Error, Script},
};

/// How a [`Redis`] store connects; made by [`Redis::builder`](Script::builder).
#[derive(Clone)]
pub struct RedisBuilder {
    pub(super) url: String,
    prefix: String,
    pub(super) response_timeout: Duration,
    /// By what the sentinels know this client.
    pub(super) sentinel_login: RedisConnectionInfo,
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

// The bounds stand on the functions, so that the compiler's message is that of `Scripted`.
impl<Rule> Script<RedisConnection, Rule> {
    /// Connects, with the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`RedisBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error>
    where
        Rule: Scripted<State: Send> + Send + 'static,
    {
        Self::builder(url).connect().await
    }

    /// A store that connects with its first call, with the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`RedisBuilder::connect_lazy`].
    ///
    /// # Panics
    ///
    /// As [`RedisBuilder::connect_lazy`].
    pub fn connect_lazy(url: impl Into<String>) -> Result<Self, Error>
    where
        Rule: Scripted<State: Send> + Send + 'static,
    {
        Self::builder(url).connect_lazy()
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
    /// deadline of a decision, which is the user's to set. A call that its deadline drops is watched until then all the same, so
    /// a connection is given up however rarely it is used. In a cluster a call that is sent on to other nodes may take twice
    /// as long again.
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
    /// As [`connect_lazy`](Self::connect_lazy); and when nobody answers, the server shows no certificate that is trusted,
    /// does not know the user, or is too old.
    ///
    /// # Panics
    ///
    /// As [`connect_lazy`](Self::connect_lazy).
    pub async fn connect<Rule>(self) -> Result<Redis<Rule>, Error>
    where
        Rule: Scripted<State: Send> + Send + 'static,
    {
        let connection = self.connection()?;
        connection.link.check().await?;
        Ok(Script::with_prefix(connection, &self.prefix))
    }

    /// A store that connects with its first call, so that a program starts also while the server is gone.
    ///
    /// Nobody is asked anything yet, and no runtime is needed. The first call connects, and sees that the server can do
    /// what is asked of it; calls that come meanwhile wait for the same attempt, which goes on when they are given up. What keeps it
    /// from succeeding is an error of each of them, the one that [`connect`](Self::connect) tells: of a server that is gone
    /// as in any outage, by policy. The next call tries again. So a wrong password, or a server that is too old, does not end
    /// the program: watch [`failures`](crate::store::OnFailure::failures).
    ///
    /// ```
    /// use tollgate::prelude::*;
    ///
    /// # fn run() -> Result<(), tollgate::store::Error> {
    /// let redis = Redis::<TokenBucket>::connect_lazy("redis://127.0.0.1")?.fail_open();
    /// // Or, with a prefix: the builder knows no rule, so the store's type says it.
    /// let shop: Redis<TokenBucket> = Redis::<TokenBucket>::builder("redis://127.0.0.1").prefix("shop").connect_lazy()?;
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(redis);
    /// # let _ = (layer, shop); Ok(()) }
    /// # assert!(run().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// When the URL is of no known form, or asks for TLS without the feature `redis-tls`, or a certificate that was given is
    /// none, or does not go with its key.
    ///
    /// # Panics
    ///
    /// With a URL that asks for TLS, where [`rustls` has no cryptography](Script::builder).
    pub fn connect_lazy<Rule>(self) -> Result<Redis<Rule>, Error>
    where
        Rule: Scripted<State: Send> + Send + 'static,
    {
        Ok(Script::with_prefix(self.connection()?, &self.prefix))
    }
}
