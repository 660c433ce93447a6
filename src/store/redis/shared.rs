//! A connection that all calls share, made by whoever finds none.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redis::RedisResult;

use super::failure;
use crate::store::{Error, attempts::Attempts};

/// Where connections come from.
pub(super) trait Source: Send + Sync + 'static {
    type Connection: Clone + Send + 'static;

    /// Makes a connection, or gives up by itself.
    fn connect(&self) -> impl Future<Output = RedisResult<Self::Connection>> + Send;

    /// What should be where, in words.
    fn place(&self) -> String;

    /// Sees that the server can do what is asked of it.
    fn check(
        &self,
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

pub(super) struct Shared<S: Source> {
    source: S,
    current: Mutex<Current<S::Connection>>,
    attempts: Attempts,
}

struct Current<C> {
    connection: Option<C>,
    /// How many there were: a failure drops the connection that failed, not a later one.
    number: u64,
}

impl<S: Source> Shared<S> {
    /// Of a source that is asked with the first call.
    pub(super) fn new(source: S) -> Arc<Self> {
        let current = Current {
            connection: None,
            number: 0,
        };
        Arc::new(Self {
            source,
            current: Mutex::new(current),
            attempts: Attempts::default(),
        })
    }

    fn current(&self) -> MutexGuard<'_, Current<S::Connection>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn there(&self) -> Option<(S::Connection, u64)> {
        let current = self.current();
        Some((current.connection.clone()?, current.number))
    }

    /// The connection and its number; it is made if there is none.
    pub(super) async fn connected(self: &Arc<Self>) -> Result<(S::Connection, u64), Error> {
        if let Some(there) = self.there() {
            return Ok(there);
        }
        let made = Arc::clone(self).make();
        // Boxed, as it is rare and large: every call would carry it otherwise.
        Box::pin(self.attempts.there_or_made(|| self.there(), made)).await
    }

    async fn make(self: Arc<Self>) -> Result<(S::Connection, u64), Error> {
        let connection = self.source.connect().await;
        let mut connection =
            connection.map_err(|error| failure::connecting(error, &self.source.place()))?;
        if self.current().number == 0 {
            self.source.check(&mut connection).await?;
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
    pub(super) fn give_up(&self, number: u64) {
        let mut current = self.current();
        if current.number == number {
            current.connection = None;
        }
    }
}
