//! Redis, Redis Cluster and Valkey: one limit for many instances.

mod connect;
mod link;

use super::{Error, Evaluate, Program, Script};

pub use self::connect::RedisBuilder;

use self::link::Link;

/// A limit that many instances share, in Redis 5 or later, Redis Cluster, or Valkey.
///
/// Each decision is exact and takes one round trip: a program runs beside the data, by the server's clock. What
/// waits while a call is under way goes out together, so a busy instance asks less often than it decides.
///
/// # When it fails
///
/// A server that cannot be reached, or takes longer than
/// [`response_timeout`](RedisBuilder::response_timeout), is an error of the store, never a refusal: say what happens
/// then by [`fail_open`](super::StoreExt::fail_open) or [`fail_closed`](super::StoreExt::fail_closed). The
/// connection is made anew by the next call.
///
/// # Precision
///
/// Microseconds, as whole numbers up to 2⁵³. A rule whose limit times its period, after reducing the quota,
/// lies beyond that is an error.
///
/// # What lies in it
///
/// `prefix:1:{client}:policy`, each with an expiry: the client is a digest of 128 bits, unless its key is
/// [labelled](crate::key::Key::labelled), and the value a list in MessagePack. All limits of one client lie on one
/// node of a cluster, so several asks about one client are spent together or not at all; asks about
/// several clients in a cluster are an error.
///
/// ```no_run
/// use tollgate::prelude::*;
/// use tollgate::store::Redis;
///
/// # async fn run() -> Result<(), tollgate::store::Error> {
/// let redis = Redis::connect("redis://127.0.0.1").await?.fail_open();
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(redis);
/// # let _ = layer; Ok(()) }
/// ```
pub type Redis<Rule> = Script<RedisConnection, Rule>;

/// A connection to a server, a master that sentinels name, or a cluster. Made by [`Redis::connect`](Script::connect).
#[derive(Debug)]
pub struct RedisConnection(Link);

impl Evaluate for RedisConnection {
    fn group(&self, key: &[u8]) -> u32 {
        if self.0.is_cluster() {
            u32::from(link::slot(key))
        } else {
            0
        }
    }

    async fn evaluate(
        &self,
        program: Program,
        keys: Vec<Box<[u8]>>,
        argument: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        let command = |head: &str, program: &str| {
            let mut command = redis::cmd(head);
            command.arg(program).arg(keys.len());
            for key in &keys {
                command.arg(&key[..]);
            }
            command.arg(&argument[..]);
            command
        };
        let by_digest = command("EVALSHA", link::digest(program));
        match self.0.query(&by_digest).await {
            // A server that was restarted, or flushed: this loads the program as well.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                self.0.query(&command("EVAL", program.source())).await
            }
            answer => answer,
        }
        .map_err(link::error)
    }
}
