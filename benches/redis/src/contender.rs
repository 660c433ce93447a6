//! The contenders: the store, its floors, its peer. Each has one connection that all tasks
//! share, under the same limit, which is never reached.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client,
    aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection},
};
use throttled::RateLimiter;
use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{Redis, Store, driver::Ask},
};

/// One token in 3.6 s, and a million at once: states with numbers of the usual length, that do not
/// expire during a run.
const PER_HOUR: u32 = 1000;
const INTERVAL_MICROS: u64 = 3_600_000;
const BURST: u32 = 1_000_000;

/// The longest that an answer may take; on a machine with other work a few take long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Somebody who decides about clients by their numbers.
pub trait Decide: Clone + Send + Sync + 'static {
    /// Returns `true` if the client may spend one.
    fn decide(&self, client: usize) -> impl Future<Output = bool> + Send;
}

/// The store of this crate.
#[derive(Clone)]
pub struct Ours {
    store: Redis<TokenBucket>,
    policy: Policy,
    rule: TokenBucket,
}

impl Ours {
    pub async fn connect(url: &str) -> Self {
        let store = Redis::<TokenBucket>::builder(url).response_timeout(PATIENCE);
        Self {
            store: store.connect().await.expect("a server"),
            policy: Policy::new("bench"),
            rule: TokenBucket::per_hour(PER_HOUR.into()).burst(BURST.into()),
        }
    }

    /// The requests that were sent so far, and the calls that they held.
    pub fn requests(&self) -> (u64, u64) {
        let stats = self.store.stats();
        (stats.requests, stats.calls)
    }
}

impl Decide for Ours {
    async fn decide(&self, client: usize) -> bool {
        let key = Key::from(client as u64);
        let ask = Ask::new(&self.policy, &self.rule, key, Cost::ONE);
        let decisions = self.store.acquire(&[ask]).await;
        decisions.expect("a decision").is_admitted()
    }
}

/// A connection as a user of the client makes it.
async fn connection(url: &str) -> MultiplexedConnection {
    let client = Client::open(url).expect("a URL");
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await;
    connection.expect("a server")
}

/// Names of keys, as long as those of the store.
fn names(prefix: &str, clients: usize) -> Arc<[String]> {
    let name = |client| format!("{prefix}:2:{{{client:032x}}}:bench");
    (0..clients).map(name).collect()
}

/// The floor of a counter: `INCR`, pipelined by the connection.
#[derive(Clone)]
pub struct Incr {
    connection: MultiplexedConnection,
    names: Arc<[String]>,
}

impl Incr {
    pub async fn connect(url: &str, clients: usize) -> Self {
        Self {
            connection: connection(url).await,
            names: names("incr", clients),
        }
    }
}

impl Decide for Incr {
    async fn decide(&self, client: usize) -> bool {
        let mut command = redis::cmd("INCR");
        command.arg(&self.names[client]);
        let count: redis::RedisResult<u64> =
            command.query_async(&mut self.connection.clone()).await;
        count.expect("a count") <= BURST.into()
    }
}

/// The floor of a bucket: the least script that decides, one `EVALSHA` for each decision.
#[derive(Clone)]
pub struct Minimal {
    connection: MultiplexedConnection,
    digest: String,
    names: Arc<[String]>,
}

impl Minimal {
    pub async fn connect(url: &str, clients: usize) -> Self {
        let mut connection = connection(url).await;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(include_str!("minimal.lua"));
        let digest: redis::RedisResult<String> = load.query_async(&mut connection).await;
        Self {
            connection,
            digest: digest.expect("a digest"),
            names: names("minimal", clients),
        }
    }
}

impl Decide for Minimal {
    async fn decide(&self, client: usize) -> bool {
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&self.digest)
            .arg(1)
            .arg(&self.names[client])
            .arg(INTERVAL_MICROS)
            .arg(BURST);
        let answer: redis::RedisResult<(u8, u64)> =
            command.query_async(&mut self.connection.clone()).await;
        answer.expect("a decision").0 == 1
    }
}

/// The peer, as its documentation sets it up.
#[derive(Clone)]
pub struct Throttled {
    limiter: Arc<throttled::RedisRateLimiter>,
    quota: throttled::Quota,
    names: Arc<[String]>,
}

impl Throttled {
    pub async fn connect(url: &str, clients: usize) -> Self {
        let client = Client::open(url).expect("a URL");
        let config = ConnectionManagerConfig::new().set_response_timeout(Some(PATIENCE));
        let connection = ConnectionManager::new_with_config(client, config).await;
        let connection = connection.expect("a server");
        let positive = |number| NonZeroU32::new(number).expect("above zero");
        Self {
            limiter: Arc::new(throttled::RedisRateLimiter::new(connection)),
            quota: throttled::Quota::per_hour(positive(PER_HOUR)).with_burst(positive(BURST)),
            names: names("throttled", clients),
        }
    }
}

impl Decide for Throttled {
    async fn decide(&self, client: usize) -> bool {
        let result = self.limiter.check(&self.names[client], self.quota).await;
        result.expect("a decision").is_allowed()
    }
}
