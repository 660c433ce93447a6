//! Caches refusals, and refuses locally while one of them holds.

use std::{hash::BuildHasher, sync::Arc, time::Duration};

use smallvec::{SmallVec, smallvec};

use crate::{
    algorithm::{Algorithm, packed::InMemory},
    decision::{Cost, Decision, Numbers, RuleLimit, Verdict},
    key::Key,
    policy::Policy,
    store::{
        Ask, Backend, BoxFuture, Check, Decisions, FleetStore, Settlement, Store, Then, ThenFuture,
        delegate,
        engine::{Lookup, RefusalCache, RefusalEntry, forget_changed},
    },
    time::{Clock, SystemClock, Timestamp},
};

/// A store whose refusals are cached until they end, so that clients over their limit cost no round
/// trip.
///
/// Created by [`remember_refusals`](crate::store::StoreExt::remember_refusals). After a refusal
/// with a wait, the same key and rule are refused locally until the wait ends, for the same or a
/// higher cost: such a request cannot pass sooner, unless units are refunded. Clones share the
/// cache.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Local, Store, StoreExt, driver::{Ask, Check}};
///
/// // `Local` stands for a store on a server.
/// let store = Local::new().remember_refusals().capacity(1000);
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(1));
/// let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
/// let is_admitted =
///     || matches!(store.acquire(&ask), Check::Ready(Ok(decisions)) if decisions.is_admitted());
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
/// Waits are those of the store, less the time since its answer; `remaining` is that of the store.
/// A higher cost gets the wait of the cached refusal; after that the store decides, and may refuse
/// again.
///
/// # Staleness
///
/// `settle` and `reset` through this store and its clones remove the refusals of their keys, also
/// if their futures are dropped within a runtime of tokio. A refund or reset on another node takes
/// effect when the refusal ends. A blocked key asks the store again as often as a call that can
/// never pass, once a second by default, because `unblock` may come from anywhere.
///
/// # Contents
///
/// Only refusals of calls with one ask are cached, because a refusal of several asks may be due to
/// any of them. Those of a fallback store, or of a node that cannot reach its store, end with the
/// outage and are not cached. Each key has one entry, its last refusal; an admission of a lower
/// cost removes it. With a full [cache](Self::capacity), the refusal that ends first is evicted. A
/// refusal [without an end](crate::Decision::retry_after) is cached for [a
/// second](Self::forever_for). `look` always reaches the store.
#[doc(alias = "cache")]
#[must_use]
pub struct RememberRefusals<S, Rule, C = SystemClock> {
    store: S,
    cache: Arc<Refusals<Rule>>,
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
    /// Sets the capacity of the cache in refusals; 16,384 by default, and 0 disables it. The cache
    /// starts empty.
    ///
    /// An entry that was used takes about 300 bytes with a token bucket.
    pub fn capacity(self, refusals: usize) -> Self {
        let cache = Arc::new(RefusalCache::new(refusals));
        Self { cache, ..self }
    }

    /// Sets the time for which a refusal without an end is cached, such as that of a cost above the
    /// capacity; 1 s by default.
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

    /// Returns the number of cached refusals, including those that have ended; at most the
    /// [capacity](Self::capacity).
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Returns `true` if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl_clone!([S: Clone, Rule, C: Clone] RememberRefusals<S, Rule, C>, {
    store, cache, forever_for, clock
});

impl_debug!([S: std::fmt::Debug, Rule, C] RememberRefusals<S, Rule, C>, |it|
    store = it.store, hits = it.hits(), remembered = it.remembered(), evicted = it.evicted()
);

impl<S: Backend, Rule, C> Backend for RememberRefusals<S, Rule, C> {
    type Error = S::Error;

    delegate!(Backend, self => self.store);
}

impl<S, Rule, C> Store<Rule> for RememberRefusals<S, Rule, C>
where
    S: Store<Rule>,
    Rule: Algorithm + PartialEq,
    C: Clock + Clone,
{
    type Answer = ThenFuture<S::Answer, Option<PendingAsk<Rule, C>>>;
    type Done = BoxFuture<Result<(), S::Error>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let [ask] = asks else {
            return self.store.acquire(asks).then(None);
        };
        // The caller that blocks a key relies on the store's answer, because another node may have
        // unblocked the key.
        if ask.policy().is_of_blocks() {
            return self.store.acquire(asks).then(None);
        }
        let (cache, now) = (&self.cache, self.clock.now());
        let (policy, key) = (ask.policy(), ask.key());
        let (lookup, refusal) = cache.find(
            hash(cache, policy, key),
            |own| own.1 == *key && own.0 == *policy,
            (ask.cost(), now),
            |RefusalEntry {
                 ends_at, refusal, ..
             }| {
                let left = ends_at.saturating_since(now);
                let is_same_rule = refusal.rule == *ask.rule();
                is_same_rule.then(|| refusal.decision(ask.cost(), now, left))?
            },
        );
        // A refusal of a blocked key, or of a call that leaves tokens to others, has no
        // consequences in the store.
        if let Some(refusal) = refusal
            && (refusal.is_of_block()
                || ask.rule().keeps_free()
                || !self.store.note_refusal(policy, key))
        {
            self.cache.count_hit(lookup);
            return Check::Ready(Ok(refusal.into()));
        }
        let pending = || PendingAsk {
            cache: Arc::clone(&self.cache),
            lookup,
            asked: (policy.clone(), *key),
            rule: ask.rule().clone(),
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
            check => check.then(Some(pending())),
        }
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.store.look(asks).then(None)
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let hashed = |of: &Settlement<'_, Rule>| hash(&self.cache, of.policy, &of.key);
        let hashes = settlements.iter().map(hashed).collect();
        forget_changed(self.store.settle(settlements), forget(&self.cache, hashes))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let hashes = smallvec![hash(&self.cache, policy, key)];
        forget_changed(self.store.reset(policy, key), forget(&self.cache, hashes))
    }

    delegate!(Store<Rule>, self => self.store; renew, fits);

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>>
    where
        Rule: Algorithm,
    {
        Some(self)
    }
}

/// Counts nodes. Deltas are not pushed through it: it would not know which refusals they outdate.
impl<S, Rule, C> FleetStore<Rule> for RememberRefusals<S, Rule, C>
where
    S: Store<Rule>,
    Rule: Algorithm,
{
    delegate!(FleetStore, self => self.store; count_node);
}

/// One ask in flight, owned, so that its refusal can be stored.
pub struct PendingAsk<Rule, C> {
    cache: Arc<Refusals<Rule>>,
    lookup: Lookup,
    asked: (Policy, Key),
    rule: Rule,
    cost: Cost,
    forever_for: Duration,
    clock: C,
    /// The cached refusal, if it still holds and the store is called only for the consequences of a
    /// refusal.
    kept: Option<Box<Decision>>,
}

impl_debug!(PendingAsk<Rule, C>);

impl<Rule, C: Clock> PendingAsk<Rule, C> {
    /// Updates the cache with the store's answer, and returns the answer of the call: the cached
    /// refusal if the store has not decided.
    fn finish<E>(mut self, answer: Result<Decisions, E>) -> Result<Decisions, E> {
        let kept = self.kept.take();
        let decided = answer.as_ref().ok().and_then(Decisions::only);
        match kept.filter(|_| decided.is_none_or(|decision| decision.is_undecided())) {
            Some(kept) => Ok((*kept).into()),
            None => {
                self.record(&answer);
                answer
            }
        }
    }

    fn record<E>(self, answer: &Result<Decisions, E>) {
        let Ok(decisions) = answer else {
            return;
        };
        let [decision] = decisions.as_slice() else {
            return;
        };
        if decision.is_admitted() {
            return self.cache.admitted(self.lookup);
        }
        // Calls in flight end at any time, and so does an outage.
        let ends_early = decision.is_in_flight() || decision.is_of_fallback();
        if decision.verdict() != Verdict::Refuse || ends_early {
            return;
        }
        // The wait begins now, as it does for the client.
        let now = self.clock.now();
        let wait = decision.retry_after().unwrap_or(self.forever_for);
        // Blocks are lifted where this cache does not hear of it.
        let wait = match decision.is_of_block() {
            true => wait.min(self.forever_for),
            false => wait,
        };
        let entry = RefusalEntry {
            key: self.asked,
            cost: self.cost,
            ends_at: now.saturating_add(wait),
            refusal: CachedRefusal::new(self.rule, decision, now),
        };
        self.cache.insert(self.lookup, entry, now);
    }
}

impl<Rule, C: Clock, E> Then<Result<Decisions, E>> for Option<PendingAsk<Rule, C>> {
    type Output = Result<Decisions, E>;

    fn then(&mut self, answer: Result<Decisions, E>) -> Result<Decisions, E> {
        match self.take() {
            Some(ask) => ask.finish(answer),
            None => answer,
        }
    }
}

/// The cache of a store: entries of policies and keys.
type Refusals<Rule> = RefusalCache<(Policy, Key), CachedRefusal<Rule>>;

fn hash<Rule>(cache: &Refusals<Rule>, policy: &Policy, key: &Key) -> u64 {
    cache.hasher().hash_one((policy.digest(), key))
}

/// Returns a function that removes the entries of some keys from the cache.
fn forget<Rule>(cache: &Arc<Refusals<Rule>>, hashes: SmallVec<[u64; 1]>) -> impl Fn() + use<Rule> {
    let cache = Arc::clone(cache);
    move || hashes.iter().for_each(|hash| cache.forget(*hash))
}

/// A refusal of the store, and the local time at which it was received.
struct CachedRefusal<Rule> {
    rule: Rule,
    /// Time of the decision, by the store's clock.
    at: Timestamp,
    limit: Option<RuleLimit>,
    numbers: Numbers,
    full_after: Duration,
    /// `None` if the request can never pass, as with a cost above the capacity.
    retry_at: Option<Timestamp>,
    /// The end of the block, if there is one. From then on it is the refusal of the limit.
    blocked_until: Option<Timestamp>,
    received_at: Timestamp,
}

impl<Rule> CachedRefusal<Rule> {
    /// Returns the refusal in a decision that was received at `now`.
    fn new(rule: Rule, decision: &Decision, now: Timestamp) -> Self {
        let until = || now.saturating_add(decision.more_after());
        Self {
            rule,
            at: decision.at(),
            limit: decision.rule_limit(),
            numbers: decision.numbers(),
            full_after: decision.full_after(),
            retry_at: decision.retry_after().map(|wait| now.saturating_add(wait)),
            blocked_until: decision.is_of_block().then(until),
            received_at: now,
        }
    }

    /// Returns the refusal of `cost` at `now`. The store is asked again after `left`.
    fn decision(&self, cost: Cost, now: Timestamp, left: Duration) -> Option<Decision> {
        // If the clock stepped back, the refusal would hold for too long.
        if now < self.received_at {
            return None;
        }
        let since = now.saturating_since(self.received_at);
        let Numbers {
            remaining,
            reset_after,
            more_after,
        } = self.numbers;
        let refusal = Decision::new(Verdict::Refuse, self.at.saturating_add(since), cost.get());
        let refusal = refusal.with_rule_limit(self.limit);
        let is_too_much = refusal.limit().is_some_and(|limit| cost.get() > limit);
        let grows_after = more_after.saturating_sub(since);
        let has_grown = grows_after.is_zero() && !more_after.is_zero();
        let refusal = refusal
            .with_remaining(remaining)
            .with_reset_after(reset_after.saturating_sub(since))
            // Once `remaining` has grown, the store must be asked for its new value.
            .with_more_after(if has_grown { left } else { grows_after })
            .with_full_after(self.full_after.saturating_sub(since));
        let retry_at = self.retry_at.filter(|_| !is_too_much);
        let retry_after = retry_at.map(|at| at.saturating_since(now));
        let refusal = refusal.with_retry_after(retry_after);
        let is_of_block = self.blocked_until.is_some_and(|until| now < until);
        Some(match is_of_block {
            true => refusal.of_block(),
            false => refusal,
        })
    }
}
