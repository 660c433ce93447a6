//! Settings of a connection to Redis.
//!
//! To connect is the first call (`connect_lazy`); `connect` is that and one attempt. So a server
//! that is down, too old, or rejects the user gives one kind of answer, whenever it is noticed.
//! Certificates are checked when the store is made.

use std::{fmt, marker::PhantomData, time::Duration};

use redis::RedisConnectionInfo;

use super::Redis;
#[cfg(feature = "redis-tls")]
use super::tls;
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

impl<Rule> Clone for RedisBuilder<Rule> {
    fn clone(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            prefix: self.prefix.clone(),
            rule: PhantomData,
        }
    }
}

impl<Rule> fmt::Debug for RedisBuilder<Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password, and a certificate comes with its key.
        f.debug_struct("RedisBuilder")
            .field("prefix", &self.prefix)
            .field("response_timeout", &self.settings.response_timeout)
            .finish_non_exhaustive()
    }
}

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
        connection.check().await?;
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
