//! One connection to a server that all calls share.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::aio::MultiplexedConnection;

use super::{
    detach_on_drop::detach_on_drop,
    error::{connect_error, ends_connection},
    handshake,
    query::{Query, Reply},
    server::Server,
};
use crate::{
    store::{Error, engine::SingleFlight},
    time::{Clock, SystemClock, Timestamp},
};

/// A connection to one server, made by the first call and again after it was lost.
pub(super) struct SharedConnection {
    server: Server,
    current: Mutex<CurrentConnection>,
    connecting: SingleFlight,
    on_loss: OnLoss,
}

/// Called after a connection was given up, or could not be made, even if no caller waits for it any more.
pub(super) type OnLoss = Box<dyn Fn() + Send + Sync>;

struct CurrentConnection {
    connection: Option<MultiplexedConnection>,
    /// Number of connections so far. It keeps a late failure from dropping a newer connection.
    generation: u64,
    /// When the connection was made.
    since: Timestamp,
}

/// A connection to a server that is no master is kept for so long. Otherwise each write that the server rejects would make a connection,
/// until the machine has no port left, or the server of Sentinel no time.
const LEAST_AGE: Duration = Duration::from_millis(100);

impl SharedConnection {
    /// Creates a connection that is made by the first call.
    pub(super) fn new(server: Server, on_loss: OnLoss) -> Arc<Self> {
        let current = CurrentConnection {
            connection: None,
            generation: 0,
            since: Timestamp::default(),
        };
        Arc::new(Self {
            server,
            current: Mutex::new(current),
            connecting: SingleFlight::default(),
            on_loss,
        })
    }

    fn current(&self) -> MutexGuard<'_, CurrentConnection> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn existing(&self) -> Option<(MultiplexedConnection, u64)> {
        let current = self.current();
        Some((current.connection.clone()?, current.generation))
    }

    /// Returns the connection and its generation, and connects first if there is none.
    pub(super) async fn get(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64), Error> {
        if let Some(existing) = self.existing() {
            return Ok(existing);
        }
        let shared = Arc::clone(self);
        let connect = async move {
            let connected = shared.connect().await;
            if connected.is_err() {
                (shared.on_loss)();
            }
            connected
        };
        // Boxed, as it is rare and large: every call would carry it otherwise.
        let existing = || self.existing();
        Box::pin(self.connecting.get_or_try_init(existing, connect)).await
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, u64), Error> {
        let connection = self.server.connect().await;
        let mut connection =
            connection.map_err(|error| connect_error(error, &self.server.description()))?;
        if self.current().generation == 0 {
            handshake::server(&mut connection).await?;
        }
        let mut current = self.current();
        current.generation += 1;
        current.connection = Some(connection.clone());
        current.since = SystemClock::default().now();
        Ok((connection, current.generation))
    }

    /// Drops the connection, so that the next call reconnects, unless it is new.
    pub(super) fn give_up(&self) {
        let now = SystemClock::default().now();
        let mut current = self.current();
        if now.saturating_since(current.since) >= LEAST_AGE {
            current.connection = None;
        }
    }

    /// Drops the connection if it still is of that generation.
    fn give_up_generation(&self, generation: u64) {
        {
            let mut current = self.current();
            if current.generation == generation {
                current.connection = None;
            }
        }
        (self.on_loss)();
    }

    /// Sends a command and returns the reply.
    ///
    /// # Errors
    ///
    /// When there is no connection, and none can be made.
    ///
    /// # Cancellation
    ///
    /// A query that is dropped before there is a connection is not sent. One that was sent is watched until its reply or its
    /// timeout.
    pub(super) async fn query(self: &Arc<Self>, query: Query) -> Result<Reply, Error> {
        match self.send(query.clone()).await? {
            // The server had closed the idle connection, so nothing was sent: this is not a second attempt.
            (Err(error), false) if error.is_connection_dropped() => {
                Ok(Box::pin(self.send(query)).await?.0)
            }
            (reply, _) => Ok(reply),
        }
    }

    /// Sends a query; returns the reply, and `true` if the query may have been sent.
    async fn send(self: &Arc<Self>, query: Query) -> Result<(Reply, bool), Error> {
        let (connection, generation) = self.get().await?;
        let shared = Arc::clone(self);
        let sent = detach_on_drop(async move {
            let mut was_sent = false;
            let reply = {
                let mut query = pin!(query.run(connection));
                poll_fn(|cx| {
                    let polled = query.as_mut().poll(cx);
                    // A closed connection fails on the first poll; a query that was sent is pending at least once.
                    was_sent |= polled.is_pending();
                    polled
                })
                .await
            };
            if reply.as_ref().is_err_and(ends_connection) {
                shared.give_up_generation(generation);
            }
            (reply, was_sent)
        });
        Ok(sent.await)
    }
}
