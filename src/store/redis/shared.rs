//! A connection to one server that all calls share, made by whoever finds none.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};

use super::{
    check,
    failure::{self, is_over},
    source::Server,
    watch::watched,
};
use crate::store::{Error, attempts::Attempts};

/// What a server answered.
pub(super) type Answer = RedisResult<Vec<u8>>;

pub(super) struct Shared {
    server: Server,
    current: Mutex<Current>,
    attempts: Attempts,
    on_loss: OnLoss,
}

/// Called after a connection was given up, or could not be made, also when no caller waits for it any more.
pub(super) type OnLoss = Box<dyn Fn() + Send + Sync>;

struct Current {
    connection: Option<MultiplexedConnection>,
    /// How many there were: a failure drops the connection that failed, not a later one.
    number: u64,
}

impl Shared {
    /// Of a server that is connected to with the first call.
    pub(super) fn new(server: Server, on_loss: OnLoss) -> Arc<Self> {
        let current = Current {
            connection: None,
            number: 0,
        };
        Arc::new(Self {
            server,
            current: Mutex::new(current),
            attempts: Attempts::default(),
            on_loss,
        })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn there(&self) -> Option<(MultiplexedConnection, u64)> {
        let current = self.current();
        Some((current.connection.clone()?, current.number))
    }

    /// The connection and its number; it is made if there is none.
    pub(super) async fn connected(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64), Error> {
        if let Some(there) = self.there() {
            return Ok(there);
        }
        let shared = Arc::clone(self);
        let made = async move {
            let made = shared.make().await;
            if made.is_err() {
                (shared.on_loss)();
            }
            made
        };
        // Boxed, as it is rare and large: every call would carry it otherwise.
        Box::pin(self.attempts.get_or_init(|| self.there(), made)).await
    }

    async fn make(&self) -> Result<(MultiplexedConnection, u64), Error> {
        let connection = self.server.connect().await;
        let mut connection =
            connection.map_err(|error| failure::connecting(error, &self.server.place()))?;
        if self.current().number == 0 {
            check::server(&mut connection).await?;
        }
        let mut current = self.current();
        current.number += 1;
        current.connection = Some(connection.clone());
        Ok((connection, current.number))
    }

    /// Has the next call connect anew.
    pub(super) fn give_up_current(&self) {
        self.current().connection = None;
    }

    /// Has the next call connect anew, if the connection of that number is still the last one.
    fn give_up(&self, number: u64) {
        {
            let mut current = self.current();
            if current.number == number {
                current.connection = None;
            }
        }
        (self.on_loss)();
    }

    /// Asks the server.
    ///
    /// # Errors
    ///
    /// When there is no connection, and none can be made.
    ///
    /// # Cancellation
    ///
    /// A query that is dropped before there is a connection is not sent. One that was sent is watched to its end.
    pub(super) async fn query(self: &Arc<Self>, query: Query) -> Result<Answer, Error> {
        match self.send(query.clone()).await? {
            // The server had closed the connection while nobody used it: no second attempt, but the first.
            (Err(error), false) if error.is_connection_dropped() => {
                Ok(Box::pin(self.send(query)).await?.0)
            }
            (answer, _) => Ok(answer),
        }
    }

    /// Sends a query; the answer, and whether it may have been sent.
    async fn send(self: &Arc<Self>, query: Query) -> Result<(Answer, bool), Error> {
        let (connection, number) = self.connected().await?;
        let shared = Arc::clone(self);
        let sent = watched(async move {
            let mut was_sent = false;
            let answer = {
                let mut query = pin!(query.run(connection));
                poll_fn(|cx| {
                    let polled = query.as_mut().poll(cx);
                    // A closed connection tells so at once; whatever was sent takes a while to be answered.
                    was_sent |= polled.is_pending();
                    polled
                })
                .await
            };
            if answer.as_ref().is_err_and(is_over) {
                shared.give_up(number);
            }
            (answer, was_sent)
        });
        Ok(sent.await)
    }
}

/// A command to one server.
#[derive(Clone)]
pub(super) struct Query {
    pub(super) command: Arc<Cmd>,
    /// Whether the slot of its key is on its way to that server (`ASK`).
    pub(super) is_asking: bool,
}

impl Query {
    async fn run(self, mut connection: MultiplexedConnection) -> Answer {
        if !self.is_asking {
            return self.command.query_async(&mut connection).await;
        }
        // In one pipeline: `ASKING` is for the next command of the connection, which many share.
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command((*self.command).clone());
        let both: Vec<RedisResult<Value>> =
            both.ignore_errors().query_async(&mut connection).await?;
        let mut last = Ok(Value::Nil);
        for answer in both {
            last = answer;
            if last.is_err() {
                break;
            }
        }
        Ok(redis::from_redis_value(last?)?)
    }
}
