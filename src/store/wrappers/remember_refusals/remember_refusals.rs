//! A store whose refusals are cached.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use super::{
    ForgetFuture, RememberFuture,
    cache::RefusalCache,
    future::{ForgetOnDrop, PendingAsk},
};
use crate::{
    key::Key,
    policy::Policy,
    store::{Ask, Backend, BoxFuture, Check, NodeCounts, Settlement, Store, StoreId},
    time::{Clock, SystemClock},
};

/// A store whose refusals are cached until they end, so that clients over their limit cost no round trip.
///
/// Created by [`remember_refusals`](crate::store::StoreExt::remember_refusals). After a refusal with a wait, the same key and
/// rule are refused locally until the wait ends, for the same or a higher cost: such a request cannot pass sooner, unless units
/// are given back. Clones share the cache.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Ask, Check, Local, Store, StoreExt};
///
/// // `Local` stands for a store on a server.
/// let store = Local::new().remember_refusals().capacity(1000);
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(1));
/// let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
/// let is_admitted = || matches!(store.acquire(&ask), Check::Ready(Ok(decisions)) if decisions.is_admitted());
///
/// assert!(is_admitted());
/// for _ in 0..10 {
///     assert!(!is_admitted());
/// }
/// // The first refusal came from the store.
/// assert_eq!((store.remembered(), store.hits()), (1, 9));
/// ```
///
/// # Decisions from the cache
///
/// Waits are those of the store, less the time since its answer; `remaining` is that of the store. A higher cost gets the wait
/// of the cached refusal; after that the store decides, and may refuse again.
///
/// # Staleness
///
/// `settle` and `reset` through this store and its clones remove the refusals of their keys. A refund or reset on another node,
/// or one whose future was dropped before the store answered, takes effect when the refusal ends.
///
/// # Contents
///
/// Only refusals of calls with one ask are cached, because a refusal of several asks may be due to any of them. Each key has
/// one entry, its last refusal; an admission of a lower cost removes it. With a full [cache](Self::capacity), the refusal that
/// ends first is evicted. A refusal [without an end](crate::Decision::retry_after) is cached for [a second](Self::forever_for).
/// `look` always reaches the store.
#[doc(alias = "cache")]
#[must_use]
pub struct RememberRefusals<S, Rule, C = SystemClock> {
    store: S,
    cache: Arc<RefusalCache<Rule>>,
    forever_for: Duration,
    clock: C,
}

impl<S, Rule> RememberRefusals<S, Rule> {
    pub(in crate::store) fn new(store: S) -> Self {
        Self {
            store,
            cache: Arc::new(RefusalCache::new(16_384)),
            forever_for: Duration::from_secs(1),
            clock: SystemClock::default(),
        }
    }
}

impl<S, Rule, C> RememberRefusals<S, Rule, C> {
    /// Sets the capacity of the cache in refusals; 16,384 by default, and 0 disables it. The cache starts empty.
    ///
    /// An entry that was used takes about 300 bytes with a token bucket.
    pub fn capacity(self, refusals: usize) -> Self {
        let cache = Arc::new(RefusalCache::new(refusals));
        Self { cache, ..self }
    }

    /// Sets the time for which a refusal without an end is cached, such as that of a cost above the capacity; 1 s by default.
    ///
    /// It matters if such a cost can become possible under the same rule.
    pub fn forever_for(self, time: Duration) -> Self {
        Self {
            forever_for: time,
            ..self
        }
    }

    /// Sets another clock than the system's. After it stepped back, the store is asked.
    pub fn clock<D: Clock>(self, clock: D) -> RememberRefusals<S, Rule, D> {
        RememberRefusals {
            store: self.store,
            cache: self.cache,
            forever_for: self.forever_for,
            clock,
        }
    }

    /// Returns the wrapped store, for example to read its counters.
    pub fn get_ref(&self) -> &S {
        &self.store
    }

    /// Returns the number of calls that were refused from the cache.
    pub fn hits(&self) -> u64 {
        self.cache.hits()
    }

    /// Returns the number of refusals that were stored in the cache.
    pub fn remembered(&self) -> u64 {
        self.cache.remembered()
    }

    /// Returns the number of refusals that were evicted before they ended.
    pub fn evicted(&self) -> u64 {
        self.cache.evicted()
    }

    /// Returns the number of cached refusals, including those that have ended; at most the [capacity](Self::capacity).
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Returns `true` if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes keys in the store, and then removes their refusals from the cache.
    fn forget<F: Future>(
        &self,
        hashes: impl IntoIterator<Item = u64>,
        change: impl FnOnce(&S) -> Check<F>,
    ) -> Check<ForgetFuture<F, Rule>> {
        let forget = ForgetOnDrop::new(&self.cache, hashes);
        match change(&self.store) {
            Check::Ready(done) => Check::Ready(done),
            Check::Pending(done) => Check::Pending(ForgetFuture::new(done, forget)),
        }
    }
}

impl<S: Clone, Rule, C: Clone> Clone for RememberRefusals<S, Rule, C> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            cache: Arc::clone(&self.cache),
            forever_for: self.forever_for,
            clock: self.clock.clone(),
        }
    }
}

impl<S: fmt::Debug, Rule, C> fmt::Debug for RememberRefusals<S, Rule, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RememberRefusals")
            .field("store", &self.store)
            .field("hits", &self.hits())
            .field("remembered", &self.remembered())
            .field("evicted", &self.evicted())
            .finish_non_exhaustive()
    }
}

impl<S: Backend, Rule, C> Backend for RememberRefusals<S, Rule, C> {
    type Error = S::Error;

    fn id(&self) -> Option<StoreId> {
        self.store.id()
    }

    fn address(&self) -> Option<&str> {
        self.store.address()
    }

    fn unsettled(&self) -> Option<u64> {
        self.store.unsettled()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.store.shard(policy, key)
    }

    fn refuses_beyond_rules(&self) -> bool {
        self.store.refuses_beyond_rules()
    }

    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        self.store.note_refusal(policy, key)
    }
}

impl<S, Rule, C> Store<Rule> for RememberRefusals<S, Rule, C>
where
    S: Store<Rule>,
    Rule: Clone + PartialEq,
    C: Clock + Clone,
{
    type Answer = RememberFuture<S::Answer, Rule, C>;
    type Done = ForgetFuture<S::Done, Rule>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let [ask] = asks else {
            return uncached(self.store.acquire(asks));
        };
        // Whoever blocks a key relies on the answer, also after another node has unblocked it.
        if ask.policy().is_of_blocks() {
            return uncached(self.store.acquire(asks));
        }
        let (lookup, refusal) = self.cache.find(ask, self.clock.now());
        // A refusal of a blocked key means nothing more.
        if let Some(refusal) = refusal
            && (refusal.is_of_block() || !self.store.note_refusal(ask.policy(), ask.key()))
        {
            self.cache.count_hit(lookup);
            return Check::Ready(Ok(refusal.into()));
        }
        let pending = || PendingAsk {
            cache: Arc::clone(&self.cache),
            lookup,
            asked: (ask.policy().clone(), *ask.key(), ask.rule().clone()),
            cost: ask.cost(),
            forever_for: self.forever_for,
            clock: self.clock.clone(),
            kept: refusal.map(Box::new),
        };
        match self.store.acquire(asks) {
            Check::Ready(Ok(decisions)) if decisions.is_admitted() && refusal.is_none() => {
                self.cache.admitted(lookup);
                Check::Ready(Ok(decisions))
            }
            Check::Ready(answer) => Check::Ready(pending().finish(answer)),
            Check::Pending(answer) => Check::Pending(RememberFuture::new(answer, Some(pending()))),
        }
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        uncached(self.store.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let hash = |of: &Settlement<'_, Rule>| self.cache.hash(of.policy, &of.key);
        let hashes: Vec<_> = settlements.iter().map(hash).collect();
        self.forget(hashes, |store| store.settle(settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let hash = self.cache.hash(policy, key);
        self.forget([hash], |store| store.reset(policy, key))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.store.fits(rule)
    }

    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, Self::Error>>> {
        self.store.count_node(policy, period)
    }
}

/// Wraps an answer that is not cached.
fn uncached<F: Future, Rule, C>(check: Check<F>) -> Check<RememberFuture<F, Rule, C>>
where
    RememberFuture<F, Rule, C>: Future<Output = F::Output>,
{
    match check {
        Check::Ready(answer) => Check::Ready(answer),
        Check::Pending(answer) => Check::Pending(RememberFuture::new(answer, None)),
    }
}
