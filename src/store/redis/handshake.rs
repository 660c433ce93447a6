//! Checks of a new connection: the version of the server, and its role.

use redis::{
    Cmd, RedisResult,
    aio::ConnectionLike,
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};

use super::error::store_error;
use crate::store::{Error, Program};

/// The first version of Redis whose scripts may write what depends on the clock.
const OLDEST: [u64; 2] = [5, 0];

/// Writes after it has read the clock, and changes nothing.
const PROBE: &str = "redis.call('TIME') return redis.call('SETRANGE', KEYS[1], 0, '')";

/// Checks a server and loads the scripts.
///
/// Takes two round trips: a server closes the connection of an unauthenticated client that sends scripts with its first request.
pub(super) async fn server(connection: &mut impl ConnectionLike) -> Result<(), Error> {
    let info: RedisResult<String> = info_server().query_async(connection).await;
    if let Some(version) = check_info(&info.map_err(store_error)?)? {
        probe(connection, &version).await?;
    }
    let mut load = redis::pipe();
    for program in Program::ALL {
        load.cmd("SCRIPT").arg("LOAD").arg(program.source());
    }
    // Errors one by one: the error of a whole pipeline would be a list.
    let loaded = load.ignore_errors().query_async(connection).await;
    let loaded: Vec<RedisResult<String>> = loaded.map_err(store_error)?;
    let mut loaded = loaded.into_iter();
    loaded.try_for_each(|loaded| loaded.map(drop).map_err(store_error))
}

/// Checks one node of a cluster, chosen at random.
///
/// Nodes get the scripts with their first calls, so a node that is down does not keep the store from connecting.
pub(super) async fn cluster(connection: &mut ClusterConnection) -> Result<(), Error> {
    let any = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
    let reply = connection.route_command(info_server(), any).await;
    let info = reply.and_then(|value| Ok(redis::from_redis_value::<String>(value)?));
    match check_info(&info.map_err(store_error)?)? {
        Some(version) => probe(connection, &version).await,
        None => Ok(()),
    }
}

/// Tests a server whose version says too little: servers that are compatible with Redis name one of their choice, as Kvrocks does.
async fn probe(connection: &mut impl ConnectionLike, version: &str) -> Result<(), Error> {
    let mut probe = redis::cmd("EVAL");
    let probe = probe.arg(PROBE).arg(1).arg("tollgate:probe");
    let error = match probe.query_async::<i64>(connection).await {
        Ok(_) => return Ok(()),
        Err(error) => store_error(error),
    };
    // Read-only or full: it says nothing of scripts, and each call will tell.
    if error.is_unwritten() {
        return Ok(());
    }
    Err(Error::other(format!(
        "the Redis server has version {version}, and its scripts cannot write after they have read the clock ({error}): expected Redis {}.{} or \
         later, or a server that can; update it",
        OLDEST[0], OLDEST[1],
    )))
}

fn info_server() -> Cmd {
    redis::cmd("INFO").arg("server").clone()
}

/// Checks the reply to `INFO server`. Returns the version if it does not say that the scripts work.
fn check_info(info: &str) -> Result<Option<String>, Error> {
    let text = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    let text = text.map_or("unknown", str::trim);
    let version: Vec<u64> = text
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect();
    if info.contains("redis_mode:sentinel") {
        return Err(Error::other(
            "the server in the URL is a sentinel, which holds no data: expected `redis-sentinel://host:26379/name`; use that form, \
             with the name of a master that it monitors",
        ));
    }
    Ok((version[..] < OLDEST[..]).then(|| text.to_owned()))
}
