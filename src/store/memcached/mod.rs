//! Memcached: one limit for many instances.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `Memcached`, `MemcachedCounters`, and their behaviour under faults |
//! | `builder`, `url` | the settings of the two stores, and of a connection that they share |
//! | `connection` | `MemcachedConnection`, and the operations of the two stores |
//! | `pool` | several connections to one server, and the checks of a new one |
//! | `pipeline` | one connection, shared by all calls, and the task that drives it |
//! | `protocol` | commands, responses, keys, expiries, and unexpected responses as errors |

mod builder;
mod connection;
mod pipeline;
mod pool;
mod protocol;

pub use self::{builder::MemcachedConnectionBuilder, connection::MemcachedConnection};
use crate::{
    algorithm::{Algorithm, Codec, Counted},
    store::{CasStore, CounterStore, StoreError},
};

/// A store in [memcached](https://memcached.org) 1.6 or later that many instances share: any rule,
/// by compare-and-swap.
///
/// A decision is a read, and a write if it admits; the documentation of [`CasStore`] has the
/// details. Windows need fewer operations in [`MemcachedCounters`].
///
/// ```no_run
/// use tollgate::prelude::*;
/// use tollgate::store::Memcached;
///
/// # async fn run() -> Result<(), tollgate::store::StoreError> {
/// let memcached = Memcached::<TokenBucket>::connect("memcached://127.0.0.1:11211")
///     .await?
///     .fail_open();
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10))
///     .key(PeerIp::new())
///     .store(memcached);
/// # let _ = layer; Ok(()) }
/// ```
///
/// # Connecting
///
/// | function | returns |
/// |---|---|
/// | [`connect(url)`](CasStore::connect) | a store that is connected and whose server is checked |
/// | [`connect_lazy(url)`](CasStore::connect_lazy) | a store that connects on its first call, so the program can start while memcached is down |
/// | [`builder_on(connection)`](CasStore::builder_on) | the settings of a store on a [`MemcachedConnection`], which has settings of its own and which several stores may share |
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
/// | cannot be reached, shuts down, or has too many connections | fail at once with an error that [`is_unavailable`](StoreError::is_unavailable) | reconnect |
/// | is down when the program starts | `connect` fails; after [`connect_lazy`](CasStore::connect_lazy), calls fail as above | the first call after the server's start is decided |
/// | does not answer | fail with an error that [`is_timeout`](StoreError::is_timeout) after [`response_timeout`](MemcachedConnectionBuilder::response_timeout), or after twice that while a connection is being made; they may still be charged | reconnect |
/// | closed an idle connection | no effect: the call is sent on a new connection | |
/// | closes a connection during a call | fail with an error that is unavailable; they may be charged, and are not repeated | reconnect |
/// | restarts, or is flushed | no effect, or one of the above | every bucket is full again |
/// | evicts keys (its memory is full) | no effect | an evicted client starts with a full bucket; monitor `evictions` in `stats` |
/// | is full and may not evict (`-M`) | admissions fail; refusals and looks are answered | the server drops the key that it could not write: that client starts with a full bucket |
/// | rejects a state that is larger than an item (`-I`, 1 MB by default) | that client's calls fail with an error that [`is_unsupported`](StoreError::is_unsupported), and are refused with 500; the old state stays | refused until the state is smaller |
///
/// Only a [`SlidingLog`](crate::SlidingLog) grows so large: it takes 3 to 7 bytes for each admitted
/// call of its period, more the further apart the calls are. About 140,000 calls fit into 1 MB. The
/// number is not known when a layer is built, so building it does not fail for a larger limit.
///
/// # Clock
///
/// Decisions use the clock of this process, because memcached reports whole seconds only. If the
/// clocks of two nodes differ by some milliseconds, so do the times at which they consider a token
/// refilled; synchronize them by NTP.
///
/// # Contention
///
/// Server operations per decision, and the time until all nodes have decided, if that many nodes
/// decide one call each for one key at the same time; measured on the loopback interface of a
/// machine with two cores (`BENCHMARKS.md`):
///
/// | nodes | operations | without back-off | time | without back-off |
/// |---|---|---|---|---|
/// | 1 | 2.0 | 2.0 | 0.13 ms | 0.10 ms |
/// | 2 | 3.0 | 3.0 | 2.2 ms | 0.2 ms |
/// | 5 | 4.0 | 4.4 | 5.1 ms | 0.5 ms |
/// | 10 | 5.6 | 6.4 | 12 ms | 1.1 ms |
/// | 20 | 7.4 | 9.2 | 27 ms | 2.9 ms |
/// | 50 | 11 | 18 | 101 ms | 11 ms |
/// | 100 | 13 | 28 | 161 ms | 31 ms |
/// | 200 | 16 | 54 | 266 ms | 129 ms |
///
/// Calls of one process are combined, so they do not contend with each other.
///
/// # Several servers
///
/// There is no cluster: all nodes of an application must use the same server. A proxy that
/// distributes keys must send each key to the same server always.
///
/// # Stored data
///
/// Keys are `prefix:2:{client}:policy`, each with an expiry. The client is a digest of 128 bits,
/// unless its key is [labelled](crate::key::Key::labelled). A key that memcached does not accept
/// (above 250 bytes, or with spaces, control characters or characters beyond ASCII) is replaced by
/// `~` and a digest of 128 bits.
///
/// Expiries are rounded up by two to three seconds, because the server's clock ticks in seconds.
/// Beyond 30 days they are dates by the server's clock. Keys that must be kept beyond January 2038
/// do not expire.
#[doc(alias = "cache")]
pub type Memcached<Rule> = CasStore<MemcachedConnection, Rule>;

/// A store of counters in [memcached](https://memcached.org) 1.6 or later that many instances
/// share: fixed and sliding windows.
///
/// A decision is one round trip, which adds to a counter, creating it if necessary, and reads its
/// neighbours; the documentation of [`CounterStore`] has the details. Other rules need
/// [`Memcached`], whose documentation also lists the faults.
///
/// [`connect`](CounterStore::connect) takes a URL, and [`builder_on`](CounterStore::builder_on) a
/// [`MemcachedConnection`], which has settings of its own and which several stores may share.
///
/// ```no_run
/// use tollgate::{FixedWindow, prelude::*};
/// use tollgate::store::MemcachedCounters;
///
/// # async fn run() -> Result<(), tollgate::store::StoreError> {
/// let memcached = MemcachedCounters::<FixedWindow>::connect("memcached://127.0.0.1:11211")
///     .await?
///     .fail_open();
/// let layer = RateLimitLayer::new(FixedWindow::per_day(1000))
///     .key(PeerIp::new())
///     .store(memcached);
/// # let _ = layer; Ok(()) }
/// ```
///
/// # Overflow
///
/// A counter of the server overflows at 2⁶⁴. One that exceeds three quarters of that is held there
/// and counts as exhausted. A value that is not a number is removed by the next addition, which
/// starts from 0, and counted in [`MemcachedConnection::healed`]; until then a look is an error.
#[doc(alias = "cache")]
pub type MemcachedCounters<Rule> = CounterStore<MemcachedConnection, Rule>;

// The bounds are on the functions, so that the compiler's message is that of the rule.
impl<Rule> CasStore<MemcachedConnection, Rule> {
    /// Connects to the server of a [URL](MemcachedConnection::builder), with default settings.
    ///
    /// # Errors
    ///
    /// See [`MemcachedConnectionBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError>
    where
        Rule: Algorithm<State: Codec>,
    {
        MemcachedConnection::connect(url).await.map(Self::new)
    }

    /// Creates a store that connects on its first call, with default settings.
    ///
    /// # Errors
    ///
    /// See [`MemcachedConnectionBuilder::connect_lazy`].
    pub fn connect_lazy(url: impl Into<String>) -> Result<Self, StoreError>
    where
        Rule: Algorithm<State: Codec>,
    {
        MemcachedConnection::connect_lazy(url).map(Self::new)
    }
}

impl<Rule> CounterStore<MemcachedConnection, Rule> {
    /// Connects to the server of a [URL](MemcachedConnection::builder), with default settings.
    ///
    /// # Errors
    ///
    /// See [`MemcachedConnectionBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError>
    where
        Rule: Counted,
    {
        MemcachedConnection::connect(url).await.map(Self::new)
    }

    /// Creates a store that connects on its first call, with default settings.
    ///
    /// # Errors
    ///
    /// See [`MemcachedConnectionBuilder::connect_lazy`].
    pub fn connect_lazy(url: impl Into<String>) -> Result<Self, StoreError>
    where
        Rule: Counted,
    {
        MemcachedConnection::connect_lazy(url).map(Self::new)
    }
}
