//! Sentinels, and the master that they name.

use std::{
    collections::HashSet,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::Poll,
};

use redis::{
    AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, aio::MultiplexedConnection,
};

use super::{
    failure::is_login,
    source::{Address, at},
};

/// Whom to ask for a master, and how it is reached.
pub(super) struct Sentinels {
    pub(super) sentinels: Vec<Client>,
    /// What they call it.
    pub(super) name: String,
    /// A client of any server, which logs in as with the master, and reaches it in the same way.
    pub(super) master: Client,
}

/// Why one sentinel led to no master, and whether it was reached.
struct Failure(RedisError, bool);

impl Sentinels {
    /// A connection to the master: all sentinels are asked at once, and the first that leads to a server which takes
    /// itself for the master is believed. Who is silent delays nobody: a host often dies with a sentinel and the master.
    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let named = Mutex::default();
        let mut asked: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| Box::pin(self.by(sentinel, &named, config)))
            .collect();
        let mut why = None;
        while let Some(found) = next(&mut asked).await {
            match found {
                Ok(Some(connection)) => return Ok(connection),
                Ok(None) => {}
                // What a sentinel says tells more than that another one says nothing.
                Err(Failure(error, true)) => why = Some(error),
                Err(Failure(error, false)) => {
                    why.get_or_insert(error);
                }
            }
        }
        Err(why.unwrap_or_else(|| self.unknown()))
    }

    /// The master that a sentinel names; nothing where another one has named it already.
    async fn by(
        &self,
        sentinel: &Client,
        named: &Mutex<HashSet<Address>>,
        config: &AsyncConnectionConfig,
    ) -> Result<Option<MultiplexedConnection>, Failure> {
        let silent = |error| Failure(error, false);
        let told = |error| Failure(error, true);
        let connecting = sentinel.get_multiplexed_async_connection_with_config(config);
        let mut connection = connecting.await.map_err(|error| silent(refused(error)))?;
        let address: Option<Address> = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.name)
            .query_async(&mut connection)
            .await
            .map_err(|error| told(refused(error)))?;
        let address = address.ok_or_else(|| told(self.unknown()))?;
        let is_new = named
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(address.clone());
        if is_new {
            self.master_at(address, config)
                .await
                .map(Some)
                .map_err(told)
        } else {
            Ok(None)
        }
    }

    /// A connection to that server, if it is a master.
    async fn master_at(
        &self,
        address: Address,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let client = at(&self.master, address)?;
        let connecting = client.get_multiplexed_async_connection_with_config(config);
        let mut connection = connecting.await?;
        // Not `ROLE`: who connects may use `INFO` anyway.
        let info: String = redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut connection)
            .await?;
        let role = info.lines().find_map(|line| line.strip_prefix("role:"));
        let role = role.unwrap_or("server without a role");
        if role == "master" {
            return Ok(connection);
        }
        // Until they have agreed on another one.
        Err((
            ErrorKind::MasterNameNotFoundBySentinel,
            "what the sentinels take for the master is none yet",
            format!("{} is a {role}", client.get_connection_info().addr()),
        )
            .into())
    }

    /// What should be where, in words.
    pub(super) fn place(&self) -> String {
        let address = |client: &Client| client.get_connection_info().addr().to_string();
        let all: Vec<_> = self.sentinels.iter().map(address).collect();
        format!(
            "the master `{}` by a sentinel at {}",
            self.name,
            all.join(" or ")
        )
    }

    fn unknown(&self) -> RedisError {
        let advice =
            "expected a name that they monitor, as in `redis-sentinel://host:26379/mymaster`";
        (
            ErrorKind::MasterNameNotFoundBySentinel,
            "the sentinels know no master of that name",
            format!("`{}`; {advice}", self.name),
        )
            .into()
    }
}

/// What a sentinel answered instead of an address, and what to do.
fn refused(error: RedisError) -> RedisError {
    let detail = error.detail().unwrap_or_default();
    let (what, advice) = if is_login(&error) {
        (
            "the sentinels do not know this client",
            "give the user and the password that they ask for to `RedisBuilder::sentinel_login`",
        )
    } else if detail.contains("unknown command") {
        (
            "what the URL names is no sentinel",
            "their port is 26379 by default; a server itself is reached by `redis://`",
        )
    } else {
        return error;
    };
    let advice = format!("{error}; {advice}");
    (ErrorKind::InvalidClientConfig, what, advice).into()
}

/// What the first of the futures to be done has come to; nothing once there is none.
pub(super) async fn next<T>(futures: &mut Vec<Pin<Box<impl Future<Output = T>>>>) -> Option<T> {
    poll_fn(|cx| {
        for n in 0..futures.len() {
            if let Poll::Ready(value) = futures[n].as_mut().poll(cx) {
                drop(futures.swap_remove(n));
                return Poll::Ready(Some(value));
            }
        }
        if futures.is_empty() {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    })
    .await
}
