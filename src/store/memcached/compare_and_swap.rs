//! Compare-and-swap in memcached.

use super::{
    MemcachedConnection, command::Precondition, error::unexpected, pipeline::PipelineError,
    pool::is_large, response::Response,
};
use crate::store::{CompareAndSwap, Error, Loaded, Swap, Swapped};

/// The version of a value in memcached, for [`CompareAndSwap`]: its cas unique, and the connection that returned it.
///
/// A server that restarts counts from 1 again, so two values could have the same cas unique. On one connection they cannot.
///
/// ```no_run
/// use tollgate::store::{CasUnique, CompareAndSwap, Error, MemcachedConnection};
///
/// # async fn run(connection: MemcachedConnection) -> Result<(), Error> {
/// let loaded = connection.load(b"key").await?;
/// // `None` if the key has no value.
/// let version: Option<CasUnique> = loaded.value.map(|(version, _)| version);
/// # let _ = version;
/// # Ok(()) }
/// ```
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

    async fn load(&self, key: &[u8]) -> Result<Loaded<CasUnique>, Error> {
        let (index, pipeline, mut responses) = self
            .pool
            .send(|commands| _ = commands.get(key, true))
            .await?;
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
    ) -> Result<Swapped<CasUnique>, Error> {
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
