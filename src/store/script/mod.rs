//! Stores that run a program beside their data.
//!
//! A request is one run of a program in Lua, with keys and one argument. The program reads the
//! server's time and the states of its keys, decides, and writes the changed states with an expiry.
//! It answers with the states that it found, after settlements. This side repeats the decisions on
//! those states, by the same [`Algorithm`](crate::algorithm::Algorithm) that decides in memory, so
//! every number is the same. `request` has a diagram of a request.
//!
//! One program serves all rules: a driver, and a step for each algorithm. Two smaller programs
//! decide the same for requests about token buckets only, many or one. A fourth program makes
//! settlements before it decides, a fifth one also grants units ahead of their use, and a sixth one
//! adds the deltas of nodes that decide by themselves.
//!
//! | file | |
//! |---|---|
//! | `mod` | the store, and the trait that connects it to a server |
//! | `queue` | batches of calls and corrections |
//! | `request` | the keys and the argument of a program |
//! | `program` | the programs, assembled from their files |
//! | `answer` | the answer of a program, and the decisions that follow from it |
//! | `settle` | corrections of earlier charges, deltas of nodes that decide by themselves, and the count of nodes |
//! | `lua/` | the driver and the programs for buckets; an algorithm has its sections in the `script.lua` of its own folder |
//!
//! # The script reports, this side decides
//!
//! Lua judges and writes. The decisions with all their numbers come from the same `step` that
//! memory runs, on the state that the program found. So the numbers have one source, and a program
//! that judged differently is noticed: both count admissions, key by key, and a disagreement fails
//! the calls on that key. A script checks the form of a state before it counts with it, and so does
//! this side, by the same bounds: what is no state for one is none for the other.
//!
//! Scripts count in whole microseconds, and in units that make a rule's numbers whole, below 2⁵³. A
//! rule that does not fit is an error, not an approximation. A spaced warm-up uses coarser units
//! there (`Scripted::in_script`): the finest power of two below a nanosecond with which no factor
//! exceeds 2⁵¹. `tests/redis/differential` runs random timelines through both sides.
//!
//! States of several kinds are side by side under one key, each with the instant after which it no
//! longer matters. Otherwise two releases would replace each other's state. Where there is one
//! kind, it costs nothing.

mod answer;
mod program;
mod queue;
mod request;
mod settle;

use std::{future::Future, slice, sync::Arc};

#[cfg(feature = "test-util")]
use self::answer::decided;
pub use self::program::Program;
use self::{
    answer::{ScriptAnswer, state_of, states},
    queue::CallQueue,
    request::{RuleEncoder, ScriptCall, ScriptRequest, StateLog, fits},
    settle::{Correction, count_node},
};
#[cfg(feature = "test-util")]
use crate::time::Timestamp;
use crate::{
    algorithm::{ScriptTuple, Scripted},
    decision::Decision,
    key::Key,
    policy::Policy,
    stats::stats,
    store::{
        Ask, Backend, BoxFuture, Check, Decisions, Delta, FleetStore, NodeCounts, Settlement,
        Store, StoreError, StoreId, SyncFuture,
        ask::policies,
        engine::{given_back, runtime, spawn_detached},
        names::{key_name, nodes_name},
    },
};

/// A store of the script class, over anything that implements [`Evaluate`].
///
/// Calls that come while others are in flight are sent together. Calls about one key are decided in
/// the order in which they came. Clones share the queue and the counters.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, prelude::*, store::driver::{Evaluate, ScriptStore}};
///
/// fn limited(server: impl Evaluate) {
///     let store = ScriptStore::with_prefix(server, "shop")
///         .timeout(Duration::from_millis(100))
///         .fail_open();
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10))
///         .key(PeerIp::new())
///         .store(store);
/// #   let _ = layer;
/// }
/// ```
///
/// # Cancellation
///
/// A call that is dropped before it was sent spends nothing; one that is dropped later is charged.
/// One that would hold units is sent, and gives them back.
/// Settlements and resets go on by themselves.
///
/// # Settlements
///
/// The program makes settlements too, in the same requests as calls. Other writers cannot
/// interfere, however busy the key is. A request makes its settlements first, in the order of their
/// arrival, and then decides its calls. A settlement that fails is
/// [counted](ScriptStats::unsettled).
pub struct ScriptStore<E, Rule> {
    prefix: Arc<str>,
    rules: Arc<RuleEncoder<Rule>>,
    queue: Arc<CallQueue<E, Rule>>,
}

impl<E: Evaluate, Rule> ScriptStore<E, Rule> {
    /// Creates a store whose keys begin with `tollgate`.
    pub fn new(data: E) -> Self
    where
        Rule: Scripted,
    {
        Self::with_prefix(data, "tollgate")
    }

    /// Creates a store whose keys begin with `prefix`.
    pub fn with_prefix(data: E, prefix: &str) -> Self
    where
        Rule: Scripted,
    {
        // Now, and not within the first call, which a client and a deadline wait for.
        Program::assemble_all();
        Self {
            prefix: prefix.into(),
            rules: Arc::default(),
            queue: Arc::new(CallQueue::new(data)),
        }
    }
}

impl<E, Rule> ScriptStore<E, Rule>
where
    E: Evaluate,
    Rule: Scripted,
{
    /// Returns counters of this store and its clones.
    pub fn stats(&self) -> ScriptStats {
        self.queue.counters.read(self.queue.unsettled.count())
    }
}

impl_clone!(ScriptStore<E, Rule>, { prefix, rules, queue });

impl_debug!(ScriptStore<E, Rule>, |it| prefix = it.prefix);

/// Runs a program beside the data.
///
/// [`ScriptStore`] makes a store of it, which runs every rule that is
/// [`Scripted`](crate::algorithm::Scripted). The programs need Lua 5.1 with the libraries of Redis
/// (`redis`, `cmsgpack` and `struct`).
///
/// # Examples
///
/// Two connections that take turns:
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use tollgate::TokenBucket;
/// use tollgate::store::StoreError;
/// use tollgate::store::driver::{Evaluate, Program, ScriptStore};
///
/// struct Spread<E> {
///     connections: [E; 2],
///     next: AtomicUsize,
/// }
///
/// impl<E: Evaluate> Evaluate for Spread<E> {
///     async fn evaluate(
///         &self,
///         program: Program,
///         keys: Vec<Box<[u8]>>,
///         argument: Vec<u8>,
///     ) -> Result<Vec<u8>, StoreError> {
///         let next = self.next.fetch_add(1, Ordering::Relaxed) % 2;
///         self.connections[next].evaluate(program, keys, argument).await
///     }
/// }
///
/// fn store<E: Evaluate>(connections: [E; 2]) -> ScriptStore<impl Evaluate, TokenBucket> {
///     ScriptStore::new(Spread { connections, next: AtomicUsize::new(0) })
/// }
/// ```
///
/// # Cancellation
///
/// Futures may be dropped at any time; a program that was sent may have run.
pub trait Evaluate: Send + Sync + 'static {
    /// Returns the group of a key, such as its slot in a cluster. A request is about keys of one
    /// group. By default there is one group.
    fn group(&self, key: &[u8]) -> u32 {
        let _ = key;
        0
    }

    /// Runs the program on the keys, which are of one group, with one argument, and returns the
    /// string of bytes that it answers.
    ///
    /// # Errors
    ///
    /// Fails if the program could not be run to its end.
    fn evaluate(
        &self,
        program: Program,
        keys: Vec<Box<[u8]>>,
        argument: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, StoreError>> + Send;

    /// Returns the error for a write that the server rejected, by the text of its reply: the server
    /// is full, or read-only. Nothing was written then. By default, the error is
    /// [`unwritten`](StoreError::unwritten).
    fn unwritten(&self, why: &str) -> StoreError {
        StoreError::unwritten(why)
    }

    /// Returns the part of the store that holds a key and can fail by itself, such as a shard of a
    /// cluster, for [`Backend::shard`](crate::store::Backend::shard). 0 by default.
    ///
    /// `key` builds the key, which allocates: call it only if there are several parts.
    fn shard(&self, key: &dyn Fn() -> Box<[u8]>) -> u32 {
        let _ = key;
        0
    }

    /// Returns the address of the server, for the log of its failures, as
    /// [`Backend::address`](crate::store::Backend::address).
    fn address(&self) -> Option<&str> {
        None
    }
}

stats! {
    /// Counters of a [`ScriptStore`] and its clones since it was built.
    ///
    /// ```
    /// use tollgate::store::ScriptStats;
    ///
    /// /// Calls of each request: more than one if calls come while others are in flight.
    /// fn calls_per_request(stats: &ScriptStats) -> u64 {
    ///     stats.calls / stats.requests.max(1)
    /// }
    /// # assert_eq!(calls_per_request(&ScriptStats::default()), 0);
    /// ```
    pub struct ScriptStats {
        counted {
            /// Requests that were sent to decide.
            requests = "tollgate_script_requests_total",
            /// Calls in those requests.
            calls = "tollgate_script_calls_total",
            /// States that could not be read and counted as none.
            healed = "tollgate_script_healed_total",
        }
        given {
            /// Settlements that gave nothing back because [too
            /// many](crate::LeakyBucket#calls-that-are-cancelled) did before, and those that failed
            /// or whose answer was lost, including those that no caller waited for. They may have
            /// been made, so none is repeated.
            unsettled: u64 = "tollgate_store_unsettled_total"[],
        }
    }
    struct ScriptCounters;
}

impl<E: Evaluate, Rule> Backend for ScriptStore<E, Rule> {
    type Error = StoreError;

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.queue))
    }

    fn address(&self) -> Option<&str> {
        self.queue.data.address()
    }

    fn unsettled(&self) -> Option<u64> {
        Some(self.queue.unsettled.count())
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.queue
            .data
            .shard(&|| key_name(&self.prefix, policy, key))
    }
}

impl<E, Rule> Store<Rule> for ScriptStore<E, Rule>
where
    E: Evaluate,
    Rule: Scripted,
{
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let call = match ScriptCall::of(&self.prefix, &self.rules, asks) {
            Ok(call) => call,
            Err(error) => return Check::Ready(Err(StoreError::unsupported(error))),
        };
        match runtime() {
            Ok(runtime) => {
                let (policies, queue) = (policies(asks), Arc::clone(&self.queue));
                let spawner = runtime.clone();
                let answer = Box::pin(async move {
                    let decisions = queue.ask(call, spawner).await?;
                    Ok(decisions.of_policies(policies))
                });
                Check::Pending(given_back(self, runtime, asks, answer))
            }
            Err(error) => Check::Ready(Err(error)),
        }
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let call = match ScriptCall::of(&self.prefix, &self.rules, asks) {
            Ok(call) => call,
            Err(error) => return Check::Ready(Err(StoreError::unsupported(error))),
        };
        let queue = Arc::clone(&self.queue);
        Check::Pending(Box::pin(async move {
            let mut decisions = Vec::with_capacity(call.asks.len());
            for ask in call.asks {
                let (asks, reply) = ([ask].into(), None);
                decisions.extend(look(&queue.data, ScriptCall { asks, reply }).await?);
            }
            Ok(decisions.into_iter().collect())
        }))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let correction = |settlement| Correction::of(&self.prefix, &self.rules, settlement);
        self.queue.settle(settlements.iter().map(correction))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let queue = Arc::clone(&self.queue);
        let (prefix, key) = (
            Arc::clone(&self.prefix),
            key_name(&self.prefix, policy, key),
        );
        spawn_detached(async move { reset(&queue.data, &prefix, key).await })
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        fits(rule)
    }

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>> {
        Some(self)
    }
}

impl<E, Rule> FleetStore<Rule> for ScriptStore<E, Rule>
where
    E: Evaluate,
    Rule: Scripted,
{
    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, StoreError>>> {
        let queue = Arc::clone(&self.queue);
        let key = nodes_name(&self.prefix, policy);
        Some(Box::pin(async move {
            count_node(&queue.data, key, period).await
        }))
    }

    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, StoreError>> {
        Some(self.send_deltas(deltas))
    }
}

/// Decisions at a time that the caller gives, for tests that run two stores on one timeline.
#[cfg(feature = "test-util")]
impl<E, Rule> ScriptStore<E, Rule>
where
    E: Evaluate,
    Rule: Scripted,
{
    /// Decides a call in a request of its own, at the time `now`.
    ///
    /// `now` is cut to whole microseconds.
    ///
    /// # Errors
    ///
    /// Fails if a rule does not fit into the program's numbers, or the store fails.
    pub async fn acquire_at(
        &self,
        now: Timestamp,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Decisions, StoreError> {
        let call =
            ScriptCall::of(&self.prefix, &self.rules, asks).map_err(StoreError::unsupported)?;
        let decided = self.decide_at(now, Vec::new(), vec![call]).await?;
        let only = decided.into_iter().next();
        only.unwrap_or_else(|| Ok(Decisions::default()))
    }

    /// Decides each ask as a call of its own, all in one request, at the time `now`.
    ///
    /// # Errors
    ///
    /// Fails as [`acquire_at`](Self::acquire_at) does.
    pub async fn acquire_each_at(
        &self,
        now: Timestamp,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Vec<Decisions>, StoreError> {
        self.settle_and_acquire_each_at(now, Vec::new(), asks).await
    }

    /// Makes settlements, and then decides as [`acquire_each_at`](Self::acquire_each_at) does, in
    /// one request.
    ///
    /// # Errors
    ///
    /// Fails as [`acquire_at`](Self::acquire_at) does.
    pub async fn settle_and_acquire_each_at(
        &self,
        now: Timestamp,
        settlements: Vec<Settlement<'_, Rule>>,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Vec<Decisions>, StoreError> {
        let correction = |settlement| Correction::of(&self.prefix, &self.rules, settlement);
        let corrections: Result<_, _> = settlements.iter().map(correction).collect();
        let call = |ask| ScriptCall::of(&self.prefix, &self.rules, slice::from_ref(ask));
        let calls: Result<_, _> = asks.iter().map(call).collect();
        let corrections = corrections.map_err(StoreError::unsupported)?;
        let calls = calls.map_err(StoreError::unsupported)?;
        let decided = self.decide_at(now, corrections, calls).await?;
        decided.into_iter().collect()
    }

    async fn decide_at(
        &self,
        now: Timestamp,
        corrections: Vec<Correction>,
        mut calls: Vec<ScriptCall<Rule>>,
    ) -> Result<Vec<Result<Decisions, StoreError>>, StoreError> {
        let request = ScriptRequest::of(Some(now), corrections, &mut calls, false);
        let bytes = self
            .queue
            .data
            .evaluate(request.program, request.keys, request.argument)
            .await?;
        let answer = ScriptAnswer::read(request.program, &bytes, request.states)?;
        let unwritten = |why: &str| self.queue.data.unwritten(why);
        let taken_from = &request.taken_from;
        Ok(decided(&answer, calls.iter(), taken_from, unwritten))
    }
}

/// Decides a call of one ask without charging it.
async fn look<E: Evaluate, Rule: Scripted>(
    data: &E,
    mut call: ScriptCall<Rule>,
) -> Result<Option<Decision>, StoreError> {
    let request = ScriptRequest::of(None, Vec::new(), slice::from_mut(&mut call), true);
    let bytes = data
        .evaluate(request.program, request.keys, request.argument)
        .await?;
    let answer = ScriptAnswer::read(request.program, &bytes, 1)?;
    let found = answer.states.first().and_then(Option::as_deref);
    Ok(call.asks.first().map(|ask| {
        let state = found.and_then(|bytes| state_of(&ask.rule, bytes));
        let look = ask.rule.look(state.as_ref(), answer.now);
        look.in_micros()
    }))
}

/// Deletes the states under a key, and the logs beside them.
///
/// A log that a concurrent call creates stays until it expires. Without its state it is ignored.
async fn reset<E: Evaluate>(data: &E, prefix: &str, key: Box<[u8]>) -> Result<(), StoreError> {
    let see = ScriptRequest::of::<()>(None, Vec::new(), &mut [], false);
    let found = data
        .evaluate(see.program, vec![key.clone()], see.argument)
        .await?;
    let answer = ScriptAnswer::read(see.program, &found, 1)?;
    let states = answer
        .states
        .first()
        .and_then(|found| states(found.as_deref()?));
    let logs = states.iter().flatten().flat_map(|state| {
        let parts: Vec<ScriptTuple> = state
            .iter()
            .map(|part| part.clone().unwrap_or_default())
            .collect();
        StateLog::all(prefix, &parts)
    });
    let logs: Vec<_> = logs.map(|log| log.key(&key)).collect();
    let keys = [key].into_iter().chain(logs).collect();
    match &data.evaluate(Program::RESET, keys, Vec::new()).await?[..] {
        b"1" => Ok(()),
        why => Err(data.unwritten(&String::from_utf8_lossy(why))),
    }
}
