//! Redis, Redis Cluster and Valkey: one limit for many instances.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `Redis`, its constructors, and its behaviour under faults |
//! | `builder`, `url`, `tls` | the settings of a connection |
//! | `connection` | `RedisConnection`, which runs the scripts, and the kinds of connections below it |
//! | `server` | one connection to a server, shared by all calls, and the checks of a new one |
//! | `sentinel` | connecting to the master that sentinels report |
//! | `cluster` | routing in a cluster |
//! | `error` | errors of the client as errors of the store |

mod builder;
mod cluster;
mod connection;
mod error;
mod sentinel;
mod server;
#[cfg(feature = "redis-tls")]
mod tls;

pub use self::{builder::RedisBuilder, connection::RedisConnection};
use crate::{
    algorithm::Scripted,
    store::{ScriptStore, StoreError},
};

/// A store in Redis 5 or later, Redis Cluster, Valkey or a compatible server, which many instances
/// share.
///
/// Each decision is exact and takes one round trip: a script runs on the server, by the server's
/// clock. Calls that arrive while a request is in flight are sent together in the next one, so a
/// busy instance sends fewer requests than it makes decisions.
///
/// ```no_run
/// use tollgate::prelude::*;
///
/// # async fn run() -> Result<(), tollgate::store::StoreError> {
/// let redis = Redis::<TokenBucket>::connect("redis://127.0.0.1").await?.fail_open();
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(redis);
/// # let _ = layer; Ok(()) }
/// ```
///
/// # Connecting
///
/// | function | returns |
/// |---|---|
/// | [`connect(url)`](ScriptStore::connect) | a store that is connected and whose server is checked |
/// | [`connect_lazy(url)`](ScriptStore::connect_lazy) | a store that connects on its first call, so the program can start while Redis is down |
/// | [`builder(url)`](ScriptStore::builder) | the settings of a connection: prefix, timeouts, logins, certificates; its documentation lists the forms of URLs |
/// | [`from_connection(connection)`](ScriptStore::from_connection) | a store on an existing connection of the crate `redis` |
/// | [`with_prefix(connection, prefix)`](ScriptStore::with_prefix) | the same with another prefix, and without a check |
///
/// # Faults
///
/// A fault is an error of the store, never a refusal. Choose the response with
/// [`fail_open`](crate::store::StoreExt::fail_open),
/// [`fail_closed`](crate::store::StoreExt::fail_closed) or
/// [`fall_back_to`](crate::store::StoreExt::fall_back_to).
///
/// | server | current calls | later calls |
/// |---|---|---|
/// | cannot be reached, shuts down, loads its data, or runs a script for longer than `busy-reply-threshold` | fail at once with an error that [`is_unavailable`](StoreError::is_unavailable) | retry |
/// | is down when the program starts | `connect` fails; after [`connect_lazy`](RedisBuilder::connect_lazy), calls fail as above | the first call after the server's start is decided |
/// | does not answer: it is frozen, the connection is half-open, or a script runs for less than the threshold | fail with an error that [`is_timeout`](StoreError::is_timeout) after [`response_timeout`](RedisBuilder::response_timeout), or after twice that while a connection is being made; they may still be charged | the connection is closed, even if all its calls were dropped, and the next call reconnects |
/// | closed an idle connection | no effect: the call is sent on a new connection | |
/// | closes a connection during a call | fail with an error that is unavailable; they may be charged | reconnect |
/// | has become a replica | fail with an error that is unavailable | reconnect, through sentinels or the name service |
/// | is out of memory (`noeviction`), cannot save, or misses replicas (`min-replicas-to-write`) | calls that would be admitted fail and are not charged; refusals and looks are answered | |
/// | lost its scripts | no effect: the scripts are sent again | |
/// | restarts without persistence | as for a server that cannot be reached | every bucket is full again |
/// | is a master that is replaced (cluster, sentinels), even a frozen one | fail until the successor is known | charges that the successor had not received are lost |
/// | is replaced by a planned failover (cluster) | no effect: the call is redirected to the successor | |
/// | is the only node of its shard (cluster) and is down | keys of that shard fail, others do not | a [circuit breaker](crate::store::CircuitBreakerConfig) stops calls to that shard alone |
/// | evicts keys (any other policy) | no effect | an evicted client starts with a full bucket |
/// | cannot run the rule ([precision](#precision)), or a call in a cluster has keys of several clients | that call fails with an error that [`is_unsupported`](StoreError::is_unsupported) | the same |
///
/// Replication is asynchronous. After a failover a client may be admitted again for charges that
/// had not been copied: usually those of a few milliseconds, and at most one full limit if the
/// replica had no state of the client. A call that may have been charged is never sent twice. The
/// exception is a [`ClusterConnection` of the application](ScriptStore::from_connection), which
/// repeats calls when a connection breaks: a repeated call may be charged twice, and for each
/// broken connection up to 64 refunds may count twice.
///
/// # Clusters
///
/// Each node has its own connection, so a frozen node does not delay calls to others. When a call
/// fails, or a node redirects it, all known nodes are asked for the slot map, concurrently and in
/// the background; the answer of the majority is used. This happens at most once per
/// `response_timeout`, and only after a call.
///
/// All limits of one client are on one node, so several asks for one client are charged together or
/// not at all. Asks for several clients in one call are an error.
///
/// # Stored data
///
/// Keys are `prefix:2:{client}:policy`, each with an expiry. The client is a digest of 128 bits,
/// unless its key is [labelled](crate::key::Key::labelled). The value is a list in MessagePack. For
/// a token bucket that starts full, the second of its expiry follows; such a key expires after 1.5
/// times the period for which the state must be remembered.
///
/// The instants of a [sliding log](crate::SlidingLog) have a key of their own,
/// `prefix:2:{client}/log-10-1:policy`; in a combined rule (`… & …`), the numbers after `log`
/// identify the rules and the index of the log among them. It expires a second after the state. A
/// script reads and writes a few slots of 16 bytes of it; once no more than half of the slots
/// count, it moves them to the front. A log that was evicted without its state counts as damaged.
///
/// A value that this version cannot read, such as one of another program, counts as no state: the
/// next admission replaces it, and [`ScriptStats::healed`](crate::store::ScriptStats::healed)
/// counts it. Each algorithm, and each combination of algorithms, has a state of its own under the
/// key; [`reset`](crate::store::Store::reset) removes all of them.
///
/// With [leases](crate::store::Leased), `prefix:nodes:policy` has the [counts of
/// nodes](crate::store::driver::NodeCounts) as text, for half a minute.
///
/// # Permissions
///
/// With access lists (`ACL SETUSER`), the user needs the keys `~tollgate:*` (or another prefix) and
/// the commands
/// `+info +script|load +evalsha +eval +time +get +getrange +mget +pttl +set +setrange +pexpire +pexpireat +del`;
/// in a cluster also `+cluster|slots +asking`.
///
/// # Precision
///
/// Times are whole microseconds, and numbers are at most 2⁵³. Building a
/// [layer](crate::RateLimitLayer::try_store) fails if a rule does not fit:
///
/// - its amount times its period, with the quota reduced, is above 2⁵³, or its amount per
///   microsecond above 2²⁶;
/// - its period, offset, `keep` or `max-wait` is not a whole number of microseconds;
/// - it is a spaced warm-up whose times add up to more than about 26 days. Such a rule uses the
///   finest tick that fits: 2⁻¹⁵ ns for a warm-up of 10 s, and at most a nanosecond.
///
/// # Versions
///
/// Tests run against Redis 7.0 and Valkey 9. The tests of a single server were also run by hand
/// against 5.0.6 and 6.2.14, except those of settings that these versions lack
/// (`busy-reply-threshold`; access lists before 6). Before Redis 6, a script also writes when
/// `min-replicas-to-write` is not met.
#[doc(alias = "valkey")]
#[doc(alias = "sentinel")]
#[doc(alias = "cluster")]
pub type Redis<Rule> = ScriptStore<RedisConnection, Rule>;

// The bounds are on the functions, so that the compiler's message is that of `Scripted`.
impl<Rule> ScriptStore<RedisConnection, Rule> {
    /// Connects to the server, cluster or sentinels of a [URL](Self::builder), with default
    /// settings.
    ///
    /// # Errors
    ///
    /// See [`RedisBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError>
    where
        Rule: Scripted,
    {
        Self::builder(url).connect().await
    }

    /// Creates a store that connects on its first call, with default settings.
    ///
    /// # Errors
    ///
    /// See [`RedisBuilder::connect_lazy`].
    ///
    /// # Panics
    ///
    /// See [`RedisBuilder::connect_lazy`].
    pub fn connect_lazy(url: impl Into<String>) -> Result<Self, StoreError>
    where
        Rule: Scripted,
    {
        Self::builder(url).connect_lazy()
    }

    /// Returns a builder for the server, cluster or sentinels of a URL.
    ///
    /// | URL | connects to |
    /// |---|---|
    /// | `redis://user:password@host:6379/0` | one server |
    /// | `rediss://user:password@host:6379/0` | one server, over TLS (feature `redis-tls`) |
    /// | `redis-cluster://host:7000,host:7001` | a cluster, through some of its nodes; `rediss-cluster://` over TLS |
    /// | `redis-sentinel://host:26379,host:26380/name/0` | the master `name`, through sentinels; `rediss-sentinel://` over TLS |
    ///
    /// `user:password@` before the first host applies to all nodes of a cluster, and to the master
    /// that sentinels report; the login of the sentinels themselves is
    /// [`sentinel_login`](RedisBuilder::sentinel_login). The default port is 6379, and 26379 for
    /// sentinels; the default database is 0.
    ///
    /// # Sentinels
    ///
    /// Each new connection asks all sentinels concurrently and uses the first answer that leads to
    /// a master. One reachable sentinel is enough, and a frozen one causes no delay.
    ///
    /// # TLS
    ///
    /// TLS is provided by `rustls`, which needs a cryptography provider: enable one of its features
    /// `ring` and `aws_lc_rs`, or call `rustls::crypto::CryptoProvider::install_default`. Otherwise
    /// [`connect`](RedisBuilder::connect) panics with a message that says so. The server's
    /// certificate is verified against the system's root certificates, or against
    /// [`root_certificate`](RedisBuilder#method.root_certificate).
    ///
    /// `rediss-sentinel://` uses TLS for the sentinels and the master, with the same certificates;
    /// for sentinels without TLS, set [`plain_sentinels`](RedisBuilder#method.plain_sentinels).
    ///
    /// Certificates must match these names:
    ///
    /// - A sentinel's certificate names the host in the URL.
    /// - The certificate of a master names the host that the sentinels report: an IP address
    ///   (`subjectAltName` of kind `IP`), or a host name with `resolve-hostnames yes` and
    ///   `announce-hostnames yes`. They report the TLS port with `tls-replication yes`.
    /// - The nodes of a cluster also report IP addresses, unless
    ///   `cluster-preferred-endpoint-type hostname` is set.
    pub fn builder(url: impl Into<String>) -> RedisBuilder<Rule> {
        RedisBuilder::new(url.into())
    }

    /// Creates a store on an existing connection, and checks its server.
    ///
    /// Accepts a `ConnectionManager`, a `MultiplexedConnection` or a `ClusterConnection` of version
    /// 1 of the crate `redis`, from 1.2.4 on. Timeouts and reconnecting are those of the
    /// connection: a manager and a cluster's connection reconnect, a multiplexed one does not. None
    /// of them gives up a silent server before the operating system does; a store that [connects by
    /// itself](Self::builder) does. A `ClusterConnection` counts as one shard for a [circuit
    /// breaker](crate::store::CircuitBreakerConfig).
    ///
    /// For keys with another prefix, use [`ScriptStore::with_prefix`] with a [`RedisConnection`].
    ///
    /// ```no_run
    /// use tollgate::{TokenBucket, store::Redis};
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1")?;
    /// let manager = client.get_connection_manager().await?;
    /// let store = Redis::<TokenBucket>::from_connection(manager).await?;
    /// # let _ = store; Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the server does not answer, or is too old.
    pub async fn from_connection(connection: impl Into<RedisConnection>) -> Result<Self, StoreError>
    where
        Rule: Scripted,
    {
        let connection = connection.into();
        connection.transport.check().await?;
        Ok(Self::new(connection))
    }
}
