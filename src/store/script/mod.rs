//! Stores that run a program beside their data.
//!
//! One program in Lua serves all rules: a driver, and a step for each algorithm; two more decide the same where
//! there are token buckets alone, many or one. A fourth makes settlements before it decides, with a correction for each algorithm. Each takes the server's time, reads the states of all keys that it is asked
//! for, decides, and writes what has changed, with an expiry. What it answers is what it found, or what settlements left of that: this side makes the decisions anew from that, by the same
//! [`Algorithm`](crate::algorithm::Algorithm) that decides in memory, so that every number is the same.
//!
//! | file | |
//! |---|---|
//! | `evaluate` | what a store must be able to do |
//! | `program` | the programs, put together |
//! | `request` | what they are asked |
//! | `answer` | what they answer |
//! | `replay` | the decisions that follow |
//! | `settlement` | corrections of earlier charges |
//! | `queue` | batches of calls and corrections |
//! | `key` | requests about a single key |
//! | `pack` | MessagePack |
//! | `lua/` | the driver and the programs for buckets; an algorithm has its `step.lua` and `settle.lua` in its own folder |

mod answer;
mod evaluate;
mod key;
mod pack;
mod program;
mod queue;
mod replay;
mod request;
mod settlement;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use super::{
    Ask, Backend, BoxFuture, Check, Decisions, Error, Settlement, Store,
    ask::policies,
    name::key_name,
    task::{runtime, spawn_detached},
};
#[cfg(feature = "test-util")]
use crate::time::Timestamp;
use crate::{algorithm::Scripted, key::Key, policy::Policy};

pub use self::{evaluate::Evaluate, program::Program};

#[cfg(feature = "test-util")]
use self::{answer::Answer, replay::decided, request::Request};
use self::{
    answer::state_of,
    key::{found, reset},
    queue::Queue,
    request::{Call, Question, Rules, fits},
    settlement::Correction,
};

/// A store of the script class, over anything that can [`Evaluate`] the program.
///
/// Calls that come while others are under way go out together, and all that ask for one key are decided
/// in one visit, in the order in which they came. Clones share all of that.
///
/// # Cancellation
///
/// A call that is dropped before it went out spends nothing; one that is dropped later is charged.
/// Settlements and resets go on by themselves.
///
/// # Settlements
///
/// The program makes settlements too, in the same requests as calls. Other writers cannot interfere, however busy the key is. A
/// request makes its settlements first, in the order of their arrival, and then decides its calls. A settlement that fails is
/// [counted](ScriptStats::unsettled).
pub struct Script<E, Rule> {
    prefix: Arc<str>,
    rules: Arc<Rules<Rule>>,
    queue: Arc<Queue<E, Rule>>,
    data: Arc<E>,
}

/// What a [`Script`] store did since it was made, all clones together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScriptStats {
    /// Requests that were sent to decide.
    pub requests: u64,
    /// Calls that they held.
    pub calls: u64,
    /// States that could not be read, and began afresh.
    pub healed: u64,
    /// Settlements that failed or whose answer was lost, including those that no caller waited for. They may have been made, so
    /// none is repeated.
    pub unsettled: u64,
}

impl<E: Evaluate, Rule> Script<E, Rule> {
    /// Creates a store whose keys begin with `tollgate`.
    pub fn new(data: E) -> Self
    where
        Rule: Scripted<State: Send> + Send + 'static,
    {
        Self::with_prefix(data, "tollgate")
    }

    /// Creates a store whose keys begin with `prefix`.
    pub fn with_prefix(data: E, prefix: &str) -> Self
    where
        Rule: Scripted<State: Send> + Send + 'static,
    {
        let data = Arc::new(data);
        Self {
            prefix: prefix.into(),
            rules: Arc::default(),
            queue: Arc::new(Queue::new(Arc::clone(&data))),
            data,
        }
    }
}

impl<E, Rule> Script<E, Rule>
where
    E: Evaluate,
    Rule: Scripted<State: Send> + Send + 'static,
{
    /// Returns counters of this store and its clones.
    pub fn stats(&self) -> ScriptStats {
        let counters = &self.queue.counters;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        ScriptStats {
            requests: read(&counters.requests),
            calls: read(&counters.calls),
            healed: read(&counters.healed),
            unsettled: counters.unsettled.count(),
        }
    }

    /// Decides at a time that the caller tells, alone: for tests that run two stores on one timeline.
    ///
    /// `now` is cut to whole microseconds.
    ///
    /// # Errors
    ///
    /// When a rule does not fit into the program's numbers, or the store could not tell.
    #[cfg(feature = "test-util")]
    pub async fn acquire_at(
        &self,
        now: Timestamp,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Decisions, Error> {
        let call = Call::of(&self.prefix, &self.rules, asks).map_err(Error::unsupported)?;
        let decided = self.decide_at(now, Vec::new(), vec![call]).await?;
        let only = decided.into_iter().next();
        only.unwrap_or_else(|| Ok(Decisions::default()))
    }

    /// As [`acquire_at`](Self::acquire_at), each ask a call of its own, all of them in one request.
    ///
    /// # Errors
    ///
    /// As there.
    #[cfg(feature = "test-util")]
    pub async fn acquire_each_at(
        &self,
        now: Timestamp,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Vec<Decisions>, Error> {
        self.settle_and_acquire_each_at(now, Vec::new(), asks).await
    }

    /// Makes settlements, and then decides as [`acquire_each_at`](Self::acquire_each_at), in one request.
    ///
    /// # Errors
    ///
    /// As there.
    #[cfg(feature = "test-util")]
    pub async fn settle_and_acquire_each_at(
        &self,
        now: Timestamp,
        settlements: Vec<Settlement<'_, Rule>>,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Vec<Decisions>, Error> {
        let correction = |settlement| Correction::of(&self.prefix, &self.rules, settlement);
        let corrections: Result<_, _> = settlements.iter().map(correction).collect();
        let call = |ask| Call::of(&self.prefix, &self.rules, std::slice::from_ref(ask));
        let calls: Result<_, _> = asks.iter().map(call).collect();
        let corrections = corrections.map_err(Error::unsupported)?;
        let calls = calls.map_err(Error::unsupported)?;
        let decided = self.decide_at(now, corrections, calls).await?;
        decided.into_iter().collect()
    }

    #[cfg(feature = "test-util")]
    async fn decide_at(
        &self,
        now: Timestamp,
        corrections: Vec<Correction>,
        mut calls: Vec<Call<Rule>>,
    ) -> Result<Vec<Result<Decisions, Error>>, Error> {
        let request = Request::of(Some(now), corrections, &mut calls);
        let keys = request.keys.len();
        let bytes = self
            .data
            .evaluate(request.program, request.keys, request.argument)
            .await?;
        let answer = Answer::read(request.program, &bytes, keys)?;
        let unwritten = |why: &str| self.data.unwritten(why);
        Ok(decided(&answer, calls.iter(), &request.places, unwritten))
    }
}

impl<E, Rule> Clone for Script<E, Rule> {
    fn clone(&self) -> Self {
        Self {
            prefix: Arc::clone(&self.prefix),
            rules: Arc::clone(&self.rules),
            queue: Arc::clone(&self.queue),
            data: Arc::clone(&self.data),
        }
    }
}

impl<E, Rule> fmt::Debug for Script<E, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl<E: Evaluate, Rule> Backend for Script<E, Rule> {
    type Error = Error;

    fn address(&self) -> Option<&str> {
        self.data.address()
    }

    fn unsettled(&self) -> Option<u64> {
        Some(self.queue.counters.unsettled.count())
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.data.shard(&|| key_name(&self.prefix, policy, key))
    }
}

impl<E, Rule> Store<Rule> for Script<E, Rule>
where
    E: Evaluate,
    Rule: Scripted<State: Send> + Send + Sync + 'static,
{
    type Answer = BoxFuture<Result<Decisions, Error>>;
    type Done = BoxFuture<Result<(), Error>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let call = match Call::of(&self.prefix, &self.rules, asks) {
            Ok(call) => call,
            Err(error) => return Check::Ready(Err(Error::unsupported(error))),
        };
        match runtime() {
            Ok(runtime) => {
                let (policies, queue) = (policies(asks), Arc::clone(&self.queue));
                Check::Pending(Box::pin(async move {
                    let decisions = queue.ask(call, runtime).await?;
                    Ok(decisions.of_policies(policies))
                }))
            }
            Err(error) => Check::Ready(Err(error)),
        }
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let call = match Call::of(&self.prefix, &self.rules, asks) {
            Ok(call) => call,
            Err(error) => return Check::Ready(Err(Error::unsupported(error))),
        };
        let data = Arc::clone(&self.data);
        Check::Pending(Box::pin(async move {
            let mut decisions = Vec::with_capacity(call.0.len());
            for Question { key, rule, .. } in call.0 {
                let (now, bytes) = found(&*data, key).await?;
                let state = bytes.as_deref().and_then(|bytes| state_of(&rule, bytes));
                decisions.push(rule.look(state.as_ref(), now).in_micros());
            }
            Ok(decisions.into_iter().collect())
        }))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let correction = |settlement| Correction::of(&self.prefix, &self.rules, settlement);
        self.queue.settle(settlements.iter().map(correction))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let data = Arc::clone(&self.data);
        let key = key_name(&self.prefix, policy, key);
        spawn_detached(async move { reset(&*data, key).await })
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        fits(rule)
    }
}
