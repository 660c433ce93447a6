//! The store.

use std::{fmt, sync::Arc};

use super::{
    Evaluate, ScriptStats,
    count_node::count_node,
    key::{look, reset},
    queue::Queue,
    request::{Call, Rules, fits},
    settlement::Correction,
};
use crate::{
    algorithm::Scripted,
    key::Key,
    policy::Policy,
    store::{
        Ask, Backend, BoxFuture, Check, Decisions, Delta, Error, NodeCounts, Settlement, Store,
        StoreId, SyncFuture,
        ask::policies,
        ask::{key_name, nodes_name},
        engine::{runtime, spawn_detached},
    },
};

/// A store of the script class, over anything that implements [`Evaluate`].
///
/// Calls that come while others are in flight are sent together. Calls about one key are decided in the order in which they came.
/// Clones share the queue and the counters.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, prelude::*, store::{Evaluate, Script}};
///
/// fn limited(server: impl Evaluate) {
///     let store = Script::with_prefix(server, "shop").timeout(Duration::from_millis(100)).fail_open();
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(store);
/// #   let _ = layer;
/// }
/// ```
///
/// # Cancellation
///
/// A call that is dropped before it was sent spends nothing; one that is dropped later is charged.
/// Settlements and resets go on by themselves.
///
/// # Settlements
///
/// The program makes settlements too, in the same requests as calls. Other writers cannot interfere, however busy the key is. A
/// request makes its settlements first, in the order of their arrival, and then decides its calls. A settlement that fails is
/// [counted](ScriptStats::unsettled).
pub struct Script<E, Rule> {
    pub(super) prefix: Arc<str>,
    pub(super) rules: Arc<Rules<Rule>>,
    pub(super) queue: Arc<Queue<E, Rule>>,
    pub(super) data: Arc<E>,
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
        self.queue.counters.read(self.queue.unsettled.count())
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

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.data))
    }

    fn address(&self) -> Option<&str> {
        self.data.address()
    }

    fn unsettled(&self) -> Option<u64> {
        Some(self.queue.unsettled.count())
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
            for question in call.0 {
                decisions.extend(look(&*data, Call([question].into())).await?);
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
        let (prefix, key) = (
            Arc::clone(&self.prefix),
            key_name(&self.prefix, policy, key),
        );
        spawn_detached(async move { reset(&*data, &prefix, key).await })
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        fits(rule)
    }

    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, Error>>> {
        let data = Arc::clone(&self.data);
        let key = nodes_name(&self.prefix, policy);
        Some(Box::pin(
            async move { count_node(&*data, key, period).await },
        ))
    }

    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, Error>>
    where
        Rule: Scripted<State: Send + 'static>,
    {
        Some(self.send_deltas(deltas))
    }
}
