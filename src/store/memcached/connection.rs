//! The connections to one memcached server, and the operations of the two stores.
//!
//! A version is its number and its connection, because a restarted server numbers writes from 1. A
//! value above the item size is never sent: memcached 1.6 removes the old value when it refuses a
//! new one.

use std::{sync::Arc, time::Duration};

use super::{
    MemcachedConnectionBuilder,
    pipeline::PipelineError,
    pool::{Pool, is_large},
    protocol::{NOT_A_NUMBER, Precondition, Response, number, unexpected},
};
use crate::{
    store::{CompareAndSwap, Increment, Loaded, StoreError, Swap, Swapped, Totals},
    time::Timestamp,
};

/// The connections to one memcached server, for several stores that share them. A single store
/// [connects by itself](super::Memcached).
///
/// Clones share the connections, even among stores of both kinds:
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{FixedWindow, TokenBucket};
/// use tollgate::store::{Memcached, MemcachedConnection, MemcachedCounters};
///
/// # async fn run() -> Result<(), tollgate::store::StoreError> {
/// let connection = MemcachedConnection::builder("memcached://127.0.0.1:11211")
///     .response_timeout(Duration::from_millis(200))
///     .connections(2)
///     .connect()
///     .await?;
/// let buckets = Memcached::<TokenBucket>::builder_on(connection.clone()).prefix("shop").build();
/// let windows = MemcachedCounters::<FixedWindow>::new(connection);
/// # let _ = (buckets, windows); Ok(()) }
/// ```
///
/// Calls are pipelined: one connection carries any number of them, and the responses arrive in the
/// order of the commands. The response to a dropped call is read and discarded.
#[derive(Clone, Debug)]
pub struct MemcachedConnection {
    pub(super) pool: Arc<Pool>,
}

impl MemcachedConnection {
    /// Returns a builder for the server of a URL, `memcached://host:port`; the default port
    /// is 11211.
    pub fn builder(url: impl Into<String>) -> MemcachedConnectionBuilder {
        MemcachedConnectionBuilder::new(url.into())
    }

    /// Connects to the server of a [URL](Self::builder), with default settings.
    ///
    /// # Errors
    ///
    /// See [`MemcachedConnectionBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Creates a connection that is made by the first call, with default settings.
    ///
    /// # Errors
    ///
    /// See [`MemcachedConnectionBuilder::connect_lazy`].
    pub fn connect_lazy(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).connect_lazy()
    }

    /// Returns the number of counters whose value was not a number and was removed. Clones share
    /// the count.
    pub fn healed(&self) -> u64 {
        self.pool.healed.get()
    }
}

/// The version of a value in memcached, for [`CompareAndSwap`]: its cas unique, and the connection
/// that returned it.
///
/// A server that restarts counts from 1 again, so two values could have the same cas unique. On one
/// connection they cannot.
#[derive(Clone, Debug)]
pub struct CasUnique {
    /// Index of the connection in the pool.
    index: usize,
    /// Id of the connection.
    id: u64,
    cas: u64,
}

impl CompareAndSwap for MemcachedConnection {
    type Version = CasUnique;

    async fn load(&self, key: &[u8]) -> Result<Loaded<CasUnique>, StoreError> {
        let (index, pipeline, mut responses) =
            self.pool.send(|commands| _ = commands.get(key)).await?;
        let value = match responses.pop() {
            Some(Response::Value {
                cas: Some(cas),
                bytes,
            }) => {
                let id = pipeline.id;
                Some((CasUnique { index, id, cas }, bytes))
            }
            Some(Response::Absent) => None,
            other => return Err(unexpected(other.as_ref())),
        };
        // Its clock has whole seconds, and the last tick may be late: too coarse for decisions.
        Ok(Loaded { value, now: None })
    }

    async fn swap(
        &self,
        key: &[u8],
        swap: Swap<'_, CasUnique>,
    ) -> Result<Swapped<CasUnique>, StoreError> {
        let Swap {
            expected,
            value,
            keep,
        } = swap;
        if let Some(value) = value.filter(|value| is_large(value)) {
            Box::pin(self.pool.check_size(value)).await?;
        }
        let (index, pipeline, precondition) = match expected {
            None => {
                let (index, pipeline) = self.pool.get().await?;
                (index, pipeline, Precondition::Absent)
            }
            Some(CasUnique { index, id, cas }) => match self.pool.find(*index, *id) {
                Some(pipeline) => (*index, pipeline, Precondition::Unchanged(*cas)),
                None => return Ok(Swapped::Lost(None)),
            },
        };
        let sent = pipeline.send(|commands| match value {
            Some(value) => _ = commands.set(key, value, precondition, keep),
            None => _ = commands.delete(key, precondition),
        });
        let responses = match sent.await {
            Ok(responses) => responses,
            // The next attempt loads the value again, and reconnects.
            Err(PipelineError::NotSent) => return Ok(Swapped::Lost(None)),
            Err(error) => return Err(error.into()),
        };
        match responses.first() {
            Some(Response::Done { cas }) => {
                let id = pipeline.id;
                Ok(Swapped::Done(cas.map(|cas| CasUnique { index, id, cas })))
            }
            Some(Response::Conflict) => Ok(Swapped::Lost(None)),
            Some(Response::Absent) => Ok(Swapped::Lost(Some(Loaded {
                value: None,
                now: None,
            }))),
            other => Err(unexpected(other)),
        }
    }

    fn address(&self) -> Option<&str> {
        Some(&self.pool.address)
    }
}

/// Limit of a counter, three quarters of 2⁶⁴. A larger one is set back to it and reported as 2⁶⁴
/// − 1.
///
/// The server's numbers overflow at 2⁶⁴. The last quarter leaves room for concurrent additions
/// before a counter is set back.
const MAX_TOTAL: u64 = u64::MAX - (1 << 62);

/// Limit of the attempts to add to a counter whose value is not a number.
const MAX_ATTEMPTS: usize = 4;

impl Increment for MemcachedConnection {
    async fn add(
        &self,
        key: &[u8],
        amount: u64,
        keep: Duration,
        beside: &[Box<[u8]>],
    ) -> Result<Totals, StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            // The addition comes first, so of two concurrent calls at least one reads the addition
            // of the other.
            let (.., responses) = self
                .pool
                .send(|commands| {
                    commands.add(key, amount, keep);
                    beside.iter().for_each(|key| _ = commands.get(key));
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
        Err(StoreError::unsupported(
            "another program writes values that are not numbers under a counter's key: expected counters of this crate alone; \
             choose another prefix",
        ))
    }

    async fn subtract(&self, key: &[u8], amount: u64) -> Result<(), StoreError> {
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

    async fn read(&self, keys: &[Box<[u8]>]) -> Result<Vec<u64>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let (.., responses) = self
            .pool
            .send(|commands| keys.iter().for_each(|key| _ = commands.get(key)))
            .await?;
        let mut responses = responses.into_iter();
        let read = keys.iter().map(|_| {
            read(responses.next())?.ok_or_else(|| {
                StoreError::unsupported(
                    "the value under a counter's key is not a number: expected one; the next addition replaces it",
                )
            })
        });
        read.collect()
    }

    async fn remove(&self, keys: &[Box<[u8]>]) -> Result<(), StoreError> {
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

    /// Returns the server's clock, which starts at its system's time and is not adjusted
    /// afterwards.
    async fn now(&self) -> Result<Option<Timestamp>, StoreError> {
        self.pool.server_now().await
    }

    fn address(&self) -> Option<&str> {
        Some(&self.pool.address)
    }
}

/// Returns the total in the response to a read; `None` if the value is not a number.
fn read(response: Option<Response>) -> Result<Option<u64>, StoreError> {
    match response {
        Some(Response::Value { bytes, .. }) => Ok(parse_total(&bytes).ok()),
        Some(Response::Absent) => Ok(Some(0)),
        other => Err(unexpected(other.as_ref())),
    }
}

/// Parses a total. The server pads a number with spaces after a subtraction made it shorter.
fn parse_total(bytes: &[u8]) -> Result<u64, StoreError> {
    let total = number(bytes.trim_ascii()).ok_or_else(|| {
        let bytes = bytes.escape_ascii();
        StoreError::other(format!("memcached returned the total {bytes}: expected a number; check that the server is memcached 1.6 or later"))
    })?;
    Ok(if total >= MAX_TOTAL { u64::MAX } else { total })
}

/// Sets a counter to the limit.
async fn set_back(pool: &Pool, key: &[u8], keep: Duration) -> Result<(), StoreError> {
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
async fn heal(pool: &Pool, key: &[u8]) -> Result<(), StoreError> {
    let (_, pipeline, responses) = pool.send(|commands| _ = commands.get(key)).await?;
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
            pool.healed.add(1);
            Ok(())
        }
        Some(Response::Conflict | Response::Absent) => Ok(()),
        other => Err(unexpected(other)),
    }
}
