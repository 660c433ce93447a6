//! Redis, Redis Cluster and Valkey: one limit for many instances.
//!
//! | file | |
//! |---|---|
//! | `connect`, `url`, `tls`, `existing` | how to connect, and to what |
//! | `source`, `sentinel` | how a connection is made |
//! | `shared` | one for all calls, made by whoever finds none |
//! | `watch` | queries that are watched to their end |
//! | `cluster`, `topology` | which node has a key |
//! | `check` | what a server is asked first |
//! | `link` | questions and answers |
//! | `failure` | what an error means |

mod check;
mod cluster;
mod connect;
mod existing;
mod failure;
mod link;
mod sentinel;
mod shared;
mod source;
#[cfg(feature = "redis-tls")]
mod tls;
mod topology;
mod url;
mod watch;

use redis::Cmd;

use super::{Error, Evaluate, Program, Script};

pub use self::connect::RedisBuilder;

use self::link::Link;

/// A limit that many instances share, in Redis 5 or later, Redis Cluster, or Valkey.
///
/// Each decision is exact and takes one round trip: a program runs beside the data, by the server's clock. What
/// waits while a call is under way goes out together, so a busy instance asks less often than it decides.
///
/// The tests run on Redis 7.0 and Valkey 9. Those of one server passed on 5.0.6 and 6.2.14 too, by hand, but for what they
/// cannot set there (`busy-reply-threshold`, access lists before 6). Before 6, a script also writes where replicas are missing.
///
/// # When it fails
///
/// A fault is an error of the store, never a refusal: say what happens then by
/// [`fail_open`](super::StoreExt::fail_open) or [`fail_closed`](super::StoreExt::fail_closed).
///
/// | fault | what calls get | afterwards |
/// |---|---|---|
/// | cannot be reached, shuts down, loads its data, is busy with a script for longer than its `busy-reply-threshold` | an error that [`is_unavailable`](Error::is_unavailable), at once | the next call asks anew |
/// | is gone when the program starts | the same after [`connect_lazy`](RedisBuilder::connect_lazy); `connect` fails | the first call after it came is decided |
/// | is silent, its connection is half-open, or it is busy with a script for less than that | an error that [`is_timeout`](Error::is_timeout), after [`response_timeout`](RedisBuilder::response_timeout), or twice that while a connection is being made | the connection is given up, also where the call was dropped before, and the next call makes another; what was sent may still be charged |
/// | closed an idle connection | nothing: the call goes out on a new one | |
/// | a connection breaks with a call under way | an error that is unavailable; the call may be charged | the next call connects anew |
/// | has become a replica | the same, as an error that is unavailable | each call connects anew, and sentinels or the name service tell where |
/// | is out of memory (`noeviction`), cannot save, or misses replicas (`min-replicas-to-write`) | an error for who would be admitted, and nothing is charged; refusals and looks are still answered | |
/// | has lost its scripts | nothing: they are sent again | |
/// | restarts without persistence | as above | every limit begins afresh |
/// | a master is replaced (cluster, sentinels), also a silent one | errors until the successor is known | what the successor never heard of is as if it had not been charged |
/// | a failover is planned (cluster) | nothing: the call is sent on to the successor | |
/// | one shard is dead (cluster) | errors for keys in that shard, and nothing for others | a [circuit breaker](super::CircuitBreakerConfig) leaves that shard alone |
/// | evicts keys (any other policy) | nothing | an evicted client begins afresh |
/// | a rule does not [fit](#precision), or one call in a cluster is about several clients | an error that [`is_unsupported`](Error::is_unsupported), of this call alone | the same |
///
/// Replication is asynchronous. After a failover a client may be admitted once more for what was charged and not yet
/// copied: the admissions of the last moments before, usually milliseconds, at most one limit more if the
/// replica knew nothing of the client. No call is sent a second time where it may have been charged. Only a
/// [`ClusterConnection` of the application](Script::over) does that: it sends a call again when a connection breaks, so that
/// such a call may be charged more than once, to the disadvantage of the client. A settlement in such a request may be made more than
/// once too: at most 64 refunds for each connection that breaks then count twice, to the advantage of their clients.
///
/// # In a cluster
///
/// Each master has a connection of its own, so one that is silent keeps no call to another waiting. When a call fails, or a node
/// does not have its slot any more, all known nodes are asked which node has which slots, at once and in the background; what most of them
/// tell is followed. That happens once in a `response_timeout` at most, and only while there are calls.
///
/// What another program left under a key, or another version of this one, counts as no state, and so do numbers that
/// no rule writes: it is replaced by the next admission and counted in
/// [`ScriptStats::healed`](super::ScriptStats::healed). The state of a rule of another algorithm is none of that: each algorithm, and
/// each combination of several, keeps a state of its own under the key, and [`reset`](super::Store::reset) clears all of them.
///
/// # What it may
///
/// A user of an access list (`ACL SETUSER`) needs `~tollgate:*`, or what else the prefix is, and
/// `+info +script|load +evalsha +eval +time +get +mget +pttl +set +setrange +pexpire +pexpireat +del`; in a cluster `+cluster|slots +asking` too.
///
/// # Precision
///
/// Microseconds, as whole numbers up to 2⁵³. A rule whose limit times its period, after reducing the quota,
/// lies beyond that, or whose amount a microsecond lies beyond 2²⁶ after it, is an error, told when its
/// [layer is built](crate::RateLimitLayer::try_store); so is one with a period, offset,
/// `keep` or `max-wait` of no whole microseconds. A spaced warm-up counts in the finest ticks that fit, 2⁻¹⁵ ns for one over
/// 10 s, and is an error where they were longer than a nanosecond: where its times come to more than about 26 days.
///
/// # What lies in it
///
/// `prefix:2:{client}:policy`, each with an expiry: the client is a digest of 128 bits, unless its key is
/// [labelled](crate::key::Key::labelled), and the value a list in MessagePack; behind that of a token bucket that starts
/// full stands the second at which it expires, half as long again as it must be remembered. All limits of one client lie on one
/// node of a cluster, so several asks about one client are spent together or not at all; asks about
/// several clients in a cluster are an error.
///
/// ```no_run
/// use tollgate::prelude::*;
///
/// # async fn run() -> Result<(), tollgate::store::Error> {
/// let redis = Redis::<TokenBucket>::connect("redis://127.0.0.1").await?.fail_open();
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(redis);
/// # let _ = layer; Ok(()) }
/// ```
pub type Redis<Rule> = Script<RedisConnection, Rule>;

/// A connection to a server, a master that sentinels name, or a cluster. Made by [`Redis::connect`](Script::connect), or
/// from [one that is there](Script::over).
#[derive(Debug)]
pub struct RedisConnection {
    link: Link,
    /// As the URL names it, without its passwords; unknown of a connection that somebody else has made.
    address: Option<Box<str>>,
}

impl RedisConnection {
    /// The slot of a key; 0 where there are none.
    fn slot(&self, key: &[u8]) -> u16 {
        if self.link.is_cluster() {
            link::slot(key)
        } else {
            0
        }
    }
}

impl Evaluate for RedisConnection {
    fn group(&self, key: &[u8]) -> u32 {
        u32::from(self.slot(key))
    }

    fn shard(&self, key: &dyn Fn() -> Box<[u8]>) -> u32 {
        self.link.shard(|| link::slot(&key()))
    }

    async fn evaluate(
        &self,
        program: Program,
        keys: Vec<Box<[u8]>>,
        argument: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        let command = |head: &str, program: &str| {
            let data = keys.iter().map(|key| key.len()).sum::<usize>() + argument.len();
            let mut command = Cmd::with_capacity(keys.len() + 4, program.len() + data + 16);
            command.arg(head).arg(program).arg(keys.len());
            for key in &keys {
                command.arg(&key[..]);
            }
            command.arg(&argument[..]);
            command
        };
        let slot = keys.first().map_or(0, |key| self.slot(key));
        let by_digest = command("EVALSHA", link::digest(program));
        match self.link.query(slot, by_digest).await? {
            // A server that was restarted, or flushed: this loads the program as well.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let with_source = command("EVAL", program.source());
                Box::pin(self.link.query(slot, with_source)).await?
            }
            answer => answer,
        }
        .map_err(failure::error)
    }

    fn unwritten(&self, why: &str) -> Error {
        let error = failure::of_write(why);
        if failure::is_over(&error) {
            self.link.leave();
        }
        failure::error(error)
    }

    fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }
}
