//! Counters in memcached.

use std::{sync::atomic::Ordering, time::Duration};

use super::{
    MemcachedConnection,
    command::Precondition,
    error::{NOT_A_NUMBER, unexpected},
    pool::Pool,
    response::{Response, number},
};
use crate::{
    store::{Error, Increment, Totals},
    time::Timestamp,
};

/// Limit of a counter, three quarters of 2⁶⁴. A larger one is set back to it and reported as 2⁶⁴ − 1.
///
/// The server's numbers overflow at 2⁶⁴. The last quarter leaves room for concurrent additions before a counter is set back.
const MAX_TOTAL: u64 = u64::MAX - (1 << 62);

/// Attempts of an addition to a value that is not a number.
const MAX_ATTEMPTS: usize = 4;

impl Increment for MemcachedConnection {
    async fn add(
        &self,
        key: &[u8],
        amount: u64,
        keep: Duration,
        beside: &[Box<[u8]>],
    ) -> Result<Totals, Error> {
        for _ in 0..MAX_ATTEMPTS {
            // The addition comes first, so of two concurrent calls at least one reads the addition of the other.
            let (.., responses) = self
                .pool
                .send(|commands| {
                    commands.add(key, amount, keep);
                    beside.iter().for_each(|key| _ = commands.get(key, true));
                })
                .await?;
            let mut responses = responses.into_iter();
            let total = match responses.next() {
                Some(Response::Value { bytes, .. }) => parse_total(&bytes)?,
                Some(Response::Error(line)) if line == NOT_A_NUMBER => {
                    Box::pin(heal(&self.pool, key)).await?;
                    continue;
                }
                other => return Err(unexpected(other.as_ref())),
            };
            let mut totals = Totals {
                total,
                beside: Vec::with_capacity(beside.len()),
            };
            for key in beside {
                totals.beside.push(match read(responses.next())? {
                    Some(total) => total,
                    None => {
                        Box::pin(heal(&self.pool, key)).await?;
                        0
                    }
                });
            }
            if total > MAX_TOTAL || total < amount {
                Box::pin(set_back(&self.pool, key, keep)).await?;
                totals.total = u64::MAX;
            }
            return Ok(totals);
        }
        Err(Error::unsupported(
            "another program writes values that are not numbers under a counter's key: expected counters of this crate alone; \
             choose another prefix",
        ))
    }

    async fn subtract(&self, key: &[u8], amount: u64) -> Result<(), Error> {
        let (.., responses) = self
            .pool
            .send(|commands| _ = commands.subtract(key, amount))
            .await?;
        match responses.first() {
            Some(Response::Done { .. } | Response::Absent) => Ok(()),
            // A value that is not a number counts as no counter.
            Some(Response::Error(line)) if line == NOT_A_NUMBER => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    async fn read(&self, keys: &[Box<[u8]>]) -> Result<Vec<u64>, Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let (.., responses) = self
            .pool
            .send(|commands| keys.iter().for_each(|key| _ = commands.get(key, true)))
            .await?;
        let mut responses = responses.into_iter();
        let read = keys.iter().map(|_| {
            read(responses.next())?.ok_or_else(|| {
                Error::unsupported(
                    "the value under a counter's key is not a number: expected one; the next addition replaces it",
                )
            })
        });
        read.collect()
    }

    async fn remove(&self, keys: &[Box<[u8]>]) -> Result<(), Error> {
        if keys.is_empty() {
            return Ok(());
        }
        let (.., responses) = self
            .pool
            .send(|commands| {
                keys.iter()
                    .for_each(|key| _ = commands.delete(key, Precondition::None));
            })
            .await?;
        let is_removed =
            |response: &Response| matches!(response, Response::Done { .. } | Response::Absent);
        match responses.iter().find(|response| !is_removed(response)) {
            Some(other) => Err(unexpected(Some(other))),
            None => Ok(()),
        }
    }

    /// The server's clock starts at the system's time, and goes on by itself.
    async fn now(&self) -> Result<Option<Timestamp>, Error> {
        self.pool.server_now().await
    }

    fn address(&self) -> Option<&str> {
        Some(&self.pool.address)
    }
}

/// Returns the total in the response to a read; `None` if the value is not a number.
fn read(response: Option<Response>) -> Result<Option<u64>, Error> {
    match response {
        Some(Response::Value { bytes, .. }) => Ok(parse_total(&bytes).ok()),
        Some(Response::Absent) => Ok(Some(0)),
        other => Err(unexpected(other.as_ref())),
    }
}

/// Parses a total. The server pads a number with spaces after a subtraction made it shorter.
fn parse_total(bytes: &[u8]) -> Result<u64, Error> {
    let total = number(bytes.trim_ascii()).ok_or_else(|| {
        let bytes = bytes.escape_ascii();
        Error::other(format!("memcached returned the total {bytes}: expected a number; check that the server is memcached 1.6 or later"))
    })?;
    Ok(if total >= MAX_TOTAL { u64::MAX } else { total })
}

/// Sets a counter to the limit.
async fn set_back(pool: &Pool, key: &[u8], keep: Duration) -> Result<(), Error> {
    let digits = MAX_TOTAL.to_string();
    let (.., responses) = pool
        .send(|commands| _ = commands.set(key, digits.as_bytes(), Precondition::None, keep))
        .await?;
    match responses.first() {
        Some(Response::Done { .. }) => Ok(()),
        other => Err(unexpected(other)),
    }
}

/// Removes the value of a key if it is not a number.
async fn heal(pool: &Pool, key: &[u8]) -> Result<(), Error> {
    let (_, pipeline, responses) = pool.send(|commands| _ = commands.get(key, true)).await?;
    let cas = match responses.first() {
        Some(Response::Value {
            cas: Some(cas),
            bytes,
        }) if parse_total(bytes).is_err() => *cas,
        // Another call was faster.
        Some(Response::Value { .. } | Response::Absent) => return Ok(()),
        other => return Err(unexpected(other)),
    };
    let removed = pipeline.send(|commands| _ = commands.delete(key, Precondition::Unchanged(cas)));
    match removed.await?.first() {
        Some(Response::Done { .. }) => {
            pool.healed.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Some(Response::Conflict | Response::Absent) => Ok(()),
        other => Err(unexpected(other)),
    }
}
