//! What a server is asked first: whether it can do what is needed.

use redis::{
    Cmd, RedisResult,
    aio::ConnectionLike,
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};

use super::failure;
use crate::store::{Error, Program};

/// The oldest server: the first whose scripts may write what depends on the clock.
const OLDEST: [u64; 2] = [5, 0];

/// Looks at a server, and loads the programs: in two round trips, for a server hangs up on whom it does not know where
/// the programs come with the first.
pub(super) async fn server(connection: &mut impl ConnectionLike) -> Result<(), Error> {
    let told: RedisResult<String> = info().query_async(connection).await;
    is_fit(&told.map_err(failure::error)?)?;
    let mut load = redis::pipe();
    for program in Program::ALL {
        load.cmd("SCRIPT").arg("LOAD").arg(program.source());
    }
    // Each by itself: as a whole, they would fail with a list.
    let loaded = load.ignore_errors().query_async(connection).await;
    let loaded: Vec<RedisResult<String>> = loaded.map_err(failure::error)?;
    let mut loaded = loaded.into_iter();
    loaded.try_for_each(|loaded| loaded.map(drop).map_err(failure::error))
}

/// Looks at one node of a cluster, whichever it is. The nodes get the programs with the first calls: that one of them is
/// down keeps nobody from connecting.
pub(super) async fn cluster(connection: &mut ClusterConnection) -> Result<(), Error> {
    let any = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
    let answer = connection.route_command(info(), any).await;
    let told = answer.and_then(|told| Ok(redis::from_redis_value::<String>(told)?));
    is_fit(&told.map_err(failure::error)?)
}

fn info() -> Cmd {
    redis::cmd("INFO").arg("server").clone()
}

/// Reads what a server tells of itself.
fn is_fit(info: &str) -> Result<(), Error> {
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
    if info.contains("redis_mode:sentinel") {
        return Err(Error::other(
            "what the URL names is a sentinel, which holds no data: expected `redis-sentinel://host:26379/name`, with the \
             name of a master that it monitors; connect by that URL",
        ));
    }
    Ok(())
}
