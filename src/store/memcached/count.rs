//! Memcached as a store of counters.

use std::{sync::atomic::Ordering, time::Duration};

use super::{
    MemcachedConnection,
    answer::{Answer, number},
    command::Expected,
    driver::NO_NUMBER,
    pool::{Pool, unexpected},
};
use crate::store::{Error, Increment, Totals};

/// The most that a counter holds: what lies above is cut back to it, and told as 2⁶⁴ − 1. The server's numbers wrap at
/// 2⁶⁴, and what is added at the same time needs room until it is cut.
const MOST: u64 = u64::MAX - (1 << 62);

/// How often an addition is tried again that met what is no number.
const TRIES: usize = 4;

impl Increment for MemcachedConnection {
    async fn add(
        &self,
        key: &[u8],
        amount: u64,
        keep: Duration,
        beside: &[Box<[u8]>],
    ) -> Result<Totals, Error> {
        for _ in 0..TRIES {
            // The additions of all who do this come before the reads: the server works them off in their order.
            let (.., answers) = self
                .pool
                .ask(|commands| {
                    commands.add(key, amount, keep);
                    beside.iter().for_each(|key| _ = commands.get(key, true));
                })
                .await?;
            let mut answers = answers.into_iter();
            let total = match answers.next() {
                Some(Answer::Value { bytes, .. }) => counted(&bytes)?,
                Some(Answer::Error(line)) if line == NO_NUMBER => {
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
                totals.beside.push(match read(answers.next())? {
                    Some(total) => total,
                    None => {
                        Box::pin(heal(&self.pool, key)).await?;
                        0
                    }
                });
            }
            if total > MOST || total < amount {
                Box::pin(cut(&self.pool, key, keep)).await?;
                totals.total = u64::MAX;
            }
            return Ok(totals);
        }
        Err(Error::unsupported(
            "somebody else writes what is no number under a counter's key: expected counters of this crate alone; \
             choose another prefix",
        ))
    }

    async fn subtract(&self, key: &[u8], amount: u64) -> Result<(), Error> {
        let (.., answers) = self
            .pool
            .ask(|commands| _ = commands.subtract(key, amount))
            .await?;
        match answers.first() {
            Some(Answer::Done { .. } | Answer::Absent) => Ok(()),
            // What is no number counts as no counter.
            Some(Answer::Error(line)) if line == NO_NUMBER => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    async fn read(&self, keys: &[Box<[u8]>]) -> Result<Vec<u64>, Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let (.., answers) = self
            .pool
            .ask(|commands| keys.iter().for_each(|key| _ = commands.get(key, true)))
            .await?;
        let mut answers = answers.into_iter();
        let read = keys.iter().map(|_| {
            read(answers.next())?.ok_or_else(|| {
                Error::unsupported(
                    "what lies under a counter's key is no number: expected one; the next addition replaces it",
                )
            })
        });
        read.collect()
    }

    async fn remove(&self, keys: &[Box<[u8]>]) -> Result<(), Error> {
        if keys.is_empty() {
            return Ok(());
        }
        let (.., answers) = self
            .pool
            .ask(|commands| {
                keys.iter()
                    .for_each(|key| _ = commands.delete(key, Expected::Anything));
            })
            .await?;
        let is_gone = |answer: &Answer| matches!(answer, Answer::Done { .. } | Answer::Absent);
        match answers.iter().find(|answer| !is_gone(answer)) {
            Some(other) => Err(unexpected(Some(other))),
            None => Ok(()),
        }
    }

    fn address(&self) -> Option<&str> {
        Some(&self.pool.address)
    }
}

/// The total that a read tells; `None` where there is no number.
fn read(answer: Option<Answer>) -> Result<Option<u64>, Error> {
    match answer {
        Some(Answer::Value { bytes, .. }) => Ok(counted(&bytes).ok()),
        Some(Answer::Absent) => Ok(Some(0)),
        other => Err(unexpected(other.as_ref())),
    }
}

/// What was subtracted from leaves spaces behind a number that became shorter.
fn counted(bytes: &[u8]) -> Result<u64, Error> {
    let total = number(bytes.trim_ascii()).ok_or_else(|| {
        let bytes = bytes.escape_ascii();
        Error::other(format!("memcached counted to {bytes}: expected a number; see that the server is memcached 1.6 or later"))
    })?;
    Ok(if total >= MOST { u64::MAX } else { total })
}

/// Holds a counter at the most, far enough from where it would wrap.
async fn cut(pool: &Pool, key: &[u8], keep: Duration) -> Result<(), Error> {
    let digits = MOST.to_string();
    let (.., answers) = pool
        .ask(|commands| _ = commands.set(key, digits.as_bytes(), Expected::Anything, keep))
        .await?;
    match answers.first() {
        Some(Answer::Done { .. }) => Ok(()),
        other => Err(unexpected(other)),
    }
}

/// Removes what is no number, and nothing else, from under a key.
async fn heal(pool: &Pool, key: &[u8]) -> Result<(), Error> {
    let (_, link, answers) = pool.ask(|commands| _ = commands.get(key, true)).await?;
    let cas = match answers.first() {
        Some(Answer::Value {
            cas: Some(cas),
            bytes,
        }) if counted(bytes).is_err() => *cas,
        // Somebody else was faster.
        Some(Answer::Value { .. } | Answer::Absent) => return Ok(()),
        other => return Err(unexpected(other)),
    };
    let removed = link.ask(|commands| _ = commands.delete(key, Expected::Write(cas)));
    match removed.await?.first() {
        Some(Answer::Done { .. }) => {
            pool.healed.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Some(Answer::Conflict | Answer::Absent) => Ok(()),
        other => Err(unexpected(other)),
    }
}
