//! Connects to the master that sentinels report.
//!
//! The Sentinel client of `redis` 1.8.1 asks one after the other, so a silent Sentinel uses up each
//! attempt. This one asks all at once.

use std::{collections::HashSet, sync::Mutex};

use crate::locks::lock;

use redis::{
    AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, aio::MultiplexedConnection,
};

use super::{
    error::is_auth_error,
    server::{HostPort, next_ready, with_address},
};

/// The sentinels of a master, and the client settings for the master itself.
pub(super) struct Sentinels {
    pub(super) sentinels: Vec<Client>,
    /// The master's name in the configuration of the sentinels.
    pub(super) name: String,
    /// A client with the login and the TLS settings of the master; its address is a placeholder.
    pub(super) master: Client,
}

/// The reason why one sentinel led to no master.
enum SentinelError {
    /// The sentinel did not answer.
    Unreachable(RedisError),
    /// The sentinel answered, but reported no master, or the reported server is none.
    Answered(RedisError),
}

impl Sentinels {
    /// Connects to the master.
    ///
    /// Asks all sentinels concurrently and uses the first answer that leads to a server with the
    /// role of a master. A sentinel that does not answer causes no delay: a host that fails often
    /// takes a sentinel and the master with it.
    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let reported = Mutex::default();
        let mut asked: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| Box::pin(self.connect_through(sentinel, &reported, config)))
            .collect();
        let mut last_error = None;
        while let Some(found) = next_ready(&mut asked).await {
            match found {
                Ok(Some(connection)) => return Ok(connection),
                Ok(None) => {}
                // The answer of one sentinel explains more than the silence of another.
                Err(SentinelError::Answered(error)) => last_error = Some(error),
                Err(SentinelError::Unreachable(error)) => {
                    last_error.get_or_insert(error);
                }
            }
        }
        Err(last_error.unwrap_or_else(|| self.unknown_name()))
    }

    /// Connects to the master that one sentinel reports; returns `None` if another sentinel has
    /// already reported the same one.
    async fn connect_through(
        &self,
        sentinel: &Client,
        reported: &Mutex<HashSet<HostPort>>,
        config: &AsyncConnectionConfig,
    ) -> Result<Option<MultiplexedConnection>, SentinelError> {
        let connecting = sentinel.get_multiplexed_async_connection_with_config(config);
        let mut connection = connecting
            .await
            .map_err(|error| SentinelError::Unreachable(advised(error)))?;
        let address: Option<HostPort> = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.name)
            .query_async(&mut connection)
            .await
            .map_err(|error| SentinelError::Answered(advised(error)))?;
        let address = address.ok_or_else(|| SentinelError::Answered(self.unknown_name()))?;
        let is_new = lock(reported).insert(address.clone());
        if is_new {
            self.connect_master(address, config)
                .await
                .map(Some)
                .map_err(SentinelError::Answered)
        } else {
            Ok(None)
        }
    }

    /// Connects to a server, and checks that it is a master.
    async fn connect_master(
        &self,
        address: HostPort,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let client = with_address(&self.master, address)?;
        let connecting = client.get_multiplexed_async_connection_with_config(config);
        let mut connection = connecting.await?;
        // Not `ROLE`, which would be one more command to permit; the handshake needs `INFO` anyway.
        let info: String = redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut connection)
            .await?;
        let role = info.lines().find_map(|line| line.strip_prefix("role:"));
        let role = role.unwrap_or("server without a role");
        if role == "master" {
            return Ok(connection);
        }
        Err((
            ErrorKind::MasterNameNotFoundBySentinel,
            "the sentinels report a server that is not a master, as during a failover",
            format!("{} is a {role}", client.get_connection_info().addr()),
        )
            .into())
    }

    /// Describes the master for an error message.
    pub(super) fn description(&self) -> String {
        let address = |client: &Client| client.get_connection_info().addr().to_string();
        let all: Vec<_> = self.sentinels.iter().map(address).collect();
        format!(
            "the master `{}` through a sentinel at {}",
            self.name,
            all.join(" or ")
        )
    }

    fn unknown_name(&self) -> RedisError {
        let advice =
            "expected a name that they monitor, as in `redis-sentinel://host:26379/mymaster`";
        (
            ErrorKind::MasterNameNotFoundBySentinel,
            "the sentinels monitor no master of that name",
            format!("`{}`; {advice}", self.name),
        )
            .into()
    }
}

/// Adds to an error of a sentinel what to do about it.
fn advised(error: RedisError) -> RedisError {
    let detail = error.detail().unwrap_or_default();
    let (what, advice) = if is_auth_error(&error) {
        (
            "the sentinels require another login",
            "set their user and password with `RedisBuilder::sentinel_login`",
        )
    } else if detail.contains("unknown command") {
        (
            "the server in the URL is not a sentinel",
            "the default port of sentinels is 26379; use `redis://` to connect to a server directly",
        )
    } else {
        return error;
    };
    let advice = format!("{error}; {advice}");
    (ErrorKind::InvalidClientConfig, what, advice).into()
}
