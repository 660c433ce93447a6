//! Memcached as a store that compares and swaps.

use super::{
    MemcachedConnection,
    answer::Answer,
    command::Expected,
    link::Failure,
    pool::{is_large, unexpected},
};
use crate::store::{CompareAndSwap, Error, Loaded, Swap, Swapped};

/// A write of a key: its number, and the connection that it was told on.
///
/// A server that restarts counts anew, so that two writes could have one number. They cannot on one connection.
#[derive(Clone, Debug)]
pub struct CasUnique {
    slot: usize,
    link: u64,
    cas: u64,
}

impl CompareAndSwap for MemcachedConnection {
    type Version = CasUnique;

    async fn load(&self, key: &[u8]) -> Result<Loaded<CasUnique>, Error> {
        let (slot, link, mut answers) = self
            .pool
            .ask(|commands| _ = commands.get(key, true))
            .await?;
        let value = match answers.pop() {
            Some(Answer::Value {
                cas: Some(cas),
                bytes,
            }) => {
                let link = link.number;
                Some((CasUnique { slot, link, cas }, bytes))
            }
            Some(Answer::Absent) => None,
            other => return Err(unexpected(other.as_ref())),
        };
        // It tells whole seconds, of which the last tick may be late: no time to decide by.
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
            Box::pin(self.pool.fits(value)).await?;
        }
        let (slot, link, expected) = match expected {
            None => {
                let (slot, link) = self.pool.link().await?;
                (slot, link, Expected::Nothing)
            }
            Some(CasUnique { slot, link, cas }) => match self.pool.same(*slot, *link) {
                Some(link) => (*slot, link, Expected::Write(*cas)),
                None => return Ok(Swapped::Lost(None)),
            },
        };
        let asked = link.ask(|commands| match value {
            Some(value) => _ = commands.set(key, value, expected, keep),
            None => _ = commands.delete(key, expected),
        });
        let answers = match asked.await {
            Ok(answers) => answers,
            // Who loads anew connects anew.
            Err(Failure::NotSent) => return Ok(Swapped::Lost(None)),
            Err(failure) => return Err(failure.into()),
        };
        match answers.first() {
            Some(Answer::Done { cas }) => {
                let link = link.number;
                Ok(Swapped::Done(cas.map(|cas| CasUnique { slot, link, cas })))
            }
            Some(Answer::Conflict) => Ok(Swapped::Lost(None)),
            Some(Answer::Absent) => Ok(Swapped::Lost(Some(Loaded {
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
