//! The stores in memcached.
//!
//! | file | |
//! |---|---|
//! | `connect` | how to connect |
//! | `swap`, `count` | what the two classes ask of it |
//! | `pool` | connections, each made anew after it has failed |
//! | `greeting` | what a server is asked first |
//! | `link`, `driver` | one connection that all calls share |
//! | `command`, `answer` | the protocol |
//! | `name`, `expiry` | keys and times as the server takes them |

mod answer;
mod command;
mod connect;
mod count;
mod driver;
mod expiry;
mod greeting;
mod link;
mod name;
mod pool;
mod swap;

use std::sync::{Arc, atomic::Ordering};

use super::{Counters, Optimistic};

pub use self::connect::MemcachedBuilder;
use self::pool::Pool;

/// A store in [memcached](https://memcached.org) 1.6 or later, shared by all who connect to it: any rule, by
/// compare-and-swap.
///
/// [`Optimistic`] decides, and its page tells how; a decision is a read, and a write if it is admitted. Windows are
/// cheaper as [`MemcachedCounters`].
///
/// # Who decides
///
/// This process, by its own clock: memcached tells whole seconds only. Clocks of nodes that differ by some milliseconds
/// differ by as much about when a token is there; keep them together by NTP.
///
/// # Many nodes, one key
///
/// Server operations for each decision, and the time until all have decided, where so many nodes want one decision each of one
/// key at the same instant; measured on the loopback of a machine with two cores (`BENCHMARKS.md`):
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
/// Tasks of one process are combined, and do not count.
///
/// # Errors
///
/// They are [`store::Error`](super::Error)s; say what then happens with
/// [`fail_open`](super::StoreExt::fail_open) or [`fail_closed`](super::StoreExt::fail_closed).
///
/// | fault | what calls get | afterwards |
/// |---|---|---|
/// | cannot be reached, shuts down, has too many connections | an error that [`is_unavailable`](super::Error::is_unavailable), at once | the next call connects anew |
/// | is gone when the program starts | the same after [`connect_lazy`](MemcachedBuilder::connect_lazy); `connect` fails | the first call after it came is decided |
/// | is silent | an error that [`is_timeout`](super::Error::is_timeout), after [`response_timeout`](MemcachedBuilder::response_timeout), or twice that while a connection is being made | the same; what was sent may still be charged |
/// | closed an idle connection | nothing: the call goes out on a new one | |
/// | a connection breaks with a call under way | an error that is unavailable; the call may be charged, and is not sent again | the next call connects anew |
/// | restarts, or is flushed | nothing, or one of the above | every limit begins afresh: a flush is a fresh start |
/// | evicts keys (its memory is full) | nothing | an evicted client begins afresh: watch `evictions` in `stats` |
/// | is full and may not evict (`-M`) | an error; refusals and looks are still answered | the server forgets the key that it could not write: its client begins afresh |
/// | a state is larger than an item may be (`-I`, 1 MB by default) | an error that [`is_unsupported`](super::Error::is_unsupported): that client is refused with 500, and nobody else; what was there stays | refused until it has become smaller |
///
/// Only a [`SlidingLog`](crate::SlidingLog) grows so large: it takes 3 to 7 bytes for each admitted call of its period, more the further calls lie
/// apart. So some 140,000 calls fit into 1 MB. How many there will be is not known when a layer is built, so a larger limit
/// is not refused then.
///
/// There is no cluster: all nodes of an application must name the same server. Where a proxy spreads keys, each key
/// must always lie on one server.
///
/// # What lies in it
///
/// `prefix:2:{client}:policy`, each with an expiry: the client is a digest of 128 bits
/// unless its key is [labelled](crate::key::Key::labelled). A name that memcached does not take (longer than 250 bytes, with
/// spaces, control characters, or anything beyond ASCII) is replaced by `~` and a digest of 128 bits.
///
/// Expiries are rounded up by two to three seconds, since the server's clock ticks in seconds; beyond 30 days they are dates by
/// the server's clock; a rule that remembers beyond January 2038 lets its keys never expire.
///
/// ```no_run
/// use tollgate::prelude::*;
/// use tollgate::store::Memcached;
///
/// # async fn run() -> Result<(), tollgate::store::Error> {
/// let memcached = Memcached::<TokenBucket>::connect("memcached://127.0.0.1:11211").await?.fail_open();
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(memcached);
/// # let _ = layer; Ok(()) }
/// ```
pub type Memcached<Rule> = Optimistic<MemcachedConnection, Rule>;

/// A store of counters in [memcached](https://memcached.org) 1.6 or later, shared by all who connect to it: fixed and sliding
/// windows.
///
/// [`Counters`] decides, and its page tells how; a decision is one round trip, which adds to a counter (and makes it in the same
/// step) and reads those beside it. What it cannot run, [`Memcached`] does; its page tells what happens in each fault.
///
/// A counter of the server wraps at 2⁶⁴: one that comes above three quarters of that is held there, and counts as
/// exhausted. What lies under its key and is no number is removed by the next addition, which begins afresh, and counted in
/// [`MemcachedConnection::healed`]; until then a look is an error.
///
/// ```no_run
/// use tollgate::{FixedWindow, prelude::*};
/// use tollgate::store::MemcachedCounters;
///
/// # async fn run() -> Result<(), tollgate::store::Error> {
/// let memcached = MemcachedCounters::<FixedWindow>::connect("memcached://127.0.0.1:11211").await?.fail_open();
/// let layer = RateLimitLayer::new(FixedWindow::per_day(1000)).key(PeerIp::new()).store(memcached);
/// # let _ = layer; Ok(()) }
/// ```
pub type MemcachedCounters<Rule> = Counters<MemcachedConnection, Rule>;

/// A server, and the connections to it. Clones share them, also among stores of both classes:
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{FixedWindow, TokenBucket};
/// use tollgate::store::{CountersBuilder, MemcachedConnection, MemcachedCounters, Memcached, OptimisticBuilder};
///
/// # async fn run() -> Result<(), tollgate::store::Error> {
/// let connection = MemcachedConnection::builder("memcached://127.0.0.1:11211")
///     .response_timeout(Duration::from_millis(200))
///     .connections(2)
///     .connect()
///     .await?;
/// let buckets: Memcached<TokenBucket> = OptimisticBuilder::new(connection.clone()).prefix("shop").build();
/// let windows: MemcachedCounters<FixedWindow> = CountersBuilder::new(connection).prefix("shop").build();
/// # let _ = (buckets, windows); Ok(()) }
/// ```
///
/// One connection carries all calls, as many as come: their commands go out one behind the other, and the answers come back in that
/// order. A call whose future is dropped keeps its place among them, so that nobody reads its answer.
#[derive(Clone, Debug)]
pub struct MemcachedConnection {
    pool: Arc<Pool>,
}

impl MemcachedConnection {
    /// How many values were no numbers where a counter was added to, and were removed; all clones together.
    pub fn healed(&self) -> u64 {
        self.pool.healed.load(Ordering::Relaxed)
    }
}
