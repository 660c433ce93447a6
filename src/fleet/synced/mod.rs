//! A store to which nodes later push what they admitted.

mod call;
mod keys;
mod push;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use self::{
    call::Outcome,
    keys::KeyViews,
    push::{SyncedParts, overshoot, undershoot},
};
use super::{
    SyncConfig, SyncStats,
    nodes::Nodes,
    shared::{Shared, wrapper},
};
use crate::{
    algorithm::Syncable,
    key::Key,
    policy::Policy,
    store::{
        Ask, Backend, BoxFuture, Check, Decisions, FleetStore, OwnedAsks, Settlement, Store,
        StoreError,
        boxed::boxed,
        delegate,
        engine::forget_changed,
        wrappers::blocks::{Unblocked, no_blocks_inside},
    },
    time::{Clock, SystemClock},
};

/// A store to which each node later pushes what it admitted, so that it decides from memory, and
/// all nodes together exceed the limit by no more than a stated bound.
///
/// Created by [`synced`](crate::store::StoreExt::synced). A node decides by the rule itself, on the
/// state that the store returned last and what the node has admitted since. It pushes to the store
/// in the background, and gets the state in return, with what all other nodes admitted. What
/// exceeds the limit is a loan: the units are in the store in the end, each of them once, so the
/// key is refused until they are refilled.
///
/// Use it against abuse and for fairness, for stores that are far or slow, and where an outage
/// should not be felt. Where the limit must hold, take [leases](crate::store::Leased). A few calls
/// a second per key need neither.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{prelude::*, store::{BoxStore, CircuitBreakerConfig, StoreError, SyncConfig}};
///
/// fn limited(remote: BoxStore<TokenBucket, StoreError>) {
///     let store = remote
///         .timeout(Duration::from_millis(100))
///         .circuit_breaker(CircuitBreakerConfig::new())
///         .synced(SyncConfig::new().period(Duration::from_millis(100)).overshoot_percent(5))
///         .remember_refusals()
///         .fail_open();
///     let layer = RateLimitLayer::new(TokenBucket::per_second(1000)).store(store);
/// #   let _ = layer;
/// }
/// # let _: fn(_) = limited;
/// ```
///
/// # What it costs
///
/// With N nodes, each of which may be U units of a key ahead of the store, all together admit at
/// most (N − 1) · U units above the limit: [`overshoot_bound`](Self::overshoot_bound). U is hard.
/// At U a call waits until its units were pushed. Of a bucket, any span of time admits that much
/// more than the rule; of windows, each window does. Where nobody reaches U, the nodes exceed the
/// limit by what the others admit in a period and the way of a call.
///
/// | | store alone | [leases](crate::store::Leased) | background synchronisation |
/// |---|---|---|---|
/// | above the limit | 0 | 0 | (N − 1) · U, repaid |
/// | below the limit | 0 | what the lease duration costs, and what other nodes hold | what is refilled between an admission and its delta, if the bucket was full meanwhile |
/// | calls to the store for a busy key | one for each decision | 4 a lease duration and node | one a period and node, for up to 256 keys together |
/// | a call waits for the store | always | when its node has no units left | for the first call of a key or two, and at U |
/// | the store is down | as the outer wrapper says | the same, after a lease duration | each node goes on by its share of the limit, and repays |
/// | a node dies | nothing | its units expire | the store never hears of U units at most |
///
/// A unit that is admitted near the end of a window may count in the next one, because a node knows
/// the clock of the store only up to the way of an answer, and what it pushed is counted from its
/// arrival.
///
/// # What happens when
///
/// | event | effect |
/// |---|---|
/// | a call of a new key | It waits for the state, once. Many new keys are asked for together. While another call to the store is under way, the store decides the first call, and the next one waits for the state if that is not read yet. |
/// | a refusal | The first one asks the store at once. While calls are refused, the store is asked twice in a period. |
/// | the store cannot be reached | The node goes on by an equal share of what remained when it asked last, and of the rate. All nodes that are offline admit together what the rule does, beside the bound above; and their parts of what they had not heard of each other, which is less than one limit more: [`offline_bound`](SyncStats::offline_bound) is that of a node. A node that does not know the number of nodes, or with a limit below that number, has no share: the call fails, and the outer wrapper decides. |
/// | the store is back | Everything is pushed to it. A bucket may be in debt then, and refuses until that is refilled. |
/// | an answer is lost | The same is pushed again under the same number, so that the store takes it in once. Counters cannot know the number: what may have been added is not added again, and [counted](crate::store::CounterStats::doubtful). |
/// | a node dies | The units that it has not pushed are lost: U at most, if it reached the store. [`flush`](Self::flush) pushes them before a planned end. |
/// | a key is reset | What this node has not pushed, or has pushed without an answer yet, is [dropped](SyncStats::dropped). Other nodes may still push theirs. |
/// | a rule changes | The view goes on under the new rule, as in a store. What was admitted under the old one is pushed under it. |
/// | a refund | It is taken from what was not pushed yet, which then counts from its last unit on, and the rest is refunded by the store. |
/// | a [grant](crate::Limiter::grant) | This node has its units at once, others with their next answer. The limit may be exceeded by the grant. |
/// | some nodes go without this wrapper | All of them are one more node that is never ahead, so N nodes with it may exceed the limit by N · U. They are not counted: set [`nodes`](SyncConfig::nodes) to N + 1. |
/// | nodes have settings of their own | All together exceed the limit by the sum of their U, but for the least of them. |
/// | a clock steps | The next answer sets what this node knows of the clock of the store. Until then it may admit U more than it should, and refund what these calls were charged although that is refilled. After a step back of its own clock, the next call has the store asked. |
/// | a charge above the estimate | It is pushed like an admission, even beyond U. |
/// | a call costs more than U | The store decides it, after all units of this key were pushed. |
/// | [too many keys](SyncConfig::keys) | Calls of further keys are decided by the store, and counted as [`over_capacity`](SyncStats::over_capacity). If it cannot be reached, they fail, and the outer wrapper decides. Nothing that was not pushed is ever dropped for room. |
/// | the store cannot take in units | It decides each call. What was admitted in an outage before that is known is [lost](SyncStats::lost). |
/// | the store cannot take in the units of a key: its rule does not fit, or a newer release wrote its state | It decides each call of that key, and is asked again after ten periods. What was not pushed is [dropped](SyncStats::dropped). |
/// | a key fails, and others are answered | Its units are pushed again a period later. A call that waits for a [contended](StoreError::is_contended) key fails; a key for which the server failed is decided alone. |
/// | after [`flush`](Self::flush) | The store decides each call. Without the store it fails, because nobody would push to the store afterwards. |
///
/// [`remaining`](crate::Decision::remaining) and `Retry-After` are by what this node knows: other
/// nodes may have admitted up to (N − 1) · U units that it does not know of.
///
/// # A fallback that repays
///
/// With an [overshoot of 0](SyncConfig::overshoot_percent) the store decides each call, while it
/// can be reached. In an outage each node decides by its share of the limit, and pushes to the
/// store afterwards. [`fall_back_to`](crate::store::StoreExt::fall_back_to) instead begins an
/// outage with a full part, and forgets what was admitted.
///
/// # Place
///
/// Outside of a timeout and a circuit breaker, which the calls to the store need, and inside of
/// [remembered refusals](crate::store::RememberRefusals) and of the answer to a call that failed.
///
/// # Cancellation
///
/// A call that is dropped while it waits has taken nothing. One that the store decides may have
/// been spent, as without this wrapper.
///
/// A call that the store decides and that its caller keeps without polling it holds up other calls
/// of its key for four periods and the way of four answers. Then the store decides them.
#[doc(alias("eventually consistent", "gossip", "async flush"))]
#[must_use]
pub struct Synced<S, Rule: Syncable, C = SystemClock> {
    inner: Arc<SyncedParts<S, Rule, C>>,
}

impl<S, Rule: Syncable, C> Synced<S, Rule, C> {
    pub(crate) fn new(store: S, config: SyncConfig<C>) -> Self
    where
        S: Backend,
    {
        let parts = Shared {
            // Blocks have to see each call.
            keys: KeyViews::new(&config, store.refuses_beyond_rules()),
            store,
            nodes: Arc::new(Nodes::new(config.common.nodes)),
            // A node that may not be ahead is the store, call for call.
            unblocked: Unblocked::new(match config.is_exact() {
                true => Duration::ZERO,
                false => config.period,
            }),
            config,
        };
        Self {
            inner: Arc::new(parts),
        }
    }

    /// Returns how many units of a key all nodes together may admit above a rule: (N − 1) · U.
    ///
    /// `None` while the number N of nodes is not known, unless nodes may not be ahead at all. A
    /// node that dies takes up to U units more, and a [reset](Store::reset) and a loss of the
    /// store's data begin afresh. A [grant](crate::Limiter::grant), a clock that steps, and nodes
    /// without this wrapper are above it: see [what happens when](#what-happens-when).
    ///
    /// ```
    /// use tollgate::{TokenBucket, prelude::*, store::SyncConfig};
    ///
    /// # #[cfg(feature = "test-util")] {
    /// # use tollgate::testing::Faulty;
    /// # let store = Faulty::new(Local::<TokenBucket>::new());
    /// // Four nodes share 5 percent: each may be ahead by a third of 50.
    /// let synced = store.synced(SyncConfig::new().nodes(4));
    /// assert_eq!(synced.overshoot_bound(&TokenBucket::per_second(1000)), Some(48));
    /// # }
    /// ```
    pub fn overshoot_bound(&self, rule: &Rule) -> Option<u64> {
        let bound = self.inner.config.bound(rule, self.inner.nodes.number());
        (bound.nodes.is_some() || bound.most == 0).then(|| overshoot(&bound))
    }
}

impl<S, Rule: Syncable, C: Clock> Synced<S, Rule, C> {
    /// Returns how many units a call may lack although the rule has them: what is refilled during
    /// four periods, or since the oldest unit that the store does not know, if that is longer.
    ///
    /// A node pushes to the store after four periods at most, beside the way of a call, as long as
    /// the store takes in what there is to push. If another node has pushed something meanwhile,
    /// the store takes the units to be spent after that, although a bucket that was full had
    /// refilled them already. Looks at all keys of which this node knows something.
    ///
    /// ```
    /// use tollgate::{TokenBucket, prelude::*, store::SyncConfig};
    ///
    /// # #[cfg(feature = "test-util")] {
    /// # use tollgate::testing::Faulty;
    /// # let store = Faulty::new(Local::<TokenBucket>::new());
    /// let synced = store.synced(SyncConfig::new().nodes(4));
    /// // 400 ms of 1000 a second.
    /// assert_eq!(synced.undershoot_bound(&TokenBucket::per_second(1000)), 400);
    /// # }
    /// ```
    pub fn undershoot_bound(&self, rule: &Rule) -> u64 {
        let staleness = Duration::from_nanos(self.stats().staleness_nanos);
        undershoot(rule, self.inner.config.period, staleness)
    }

    /// Returns counters of this wrapper and its clones.
    pub fn stats(&self) -> SyncStats {
        self.inner.stats(self.inner.now())
    }
}

impl<S, Rule, C> Synced<S, Rule, C>
where
    S: Store<Rule> + Backend<Error = StoreError> + Send + Sync + 'static,
    Rule: Syncable,
    C: Clock + Send + Sync + 'static,
{
    /// Pushes all unsynced units to the store, for at most this time; for a clean shutdown.
    /// Returns the units that it may still not know.
    ///
    /// Later calls are decided by the store, and fail if it cannot be reached: what this node
    /// admitted by itself would be lost with it. So stop taking requests first, and flush then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{TokenBucket, store::Store};
    ///
    /// # async fn example<S>(synced: tollgate::store::Synced<S, TokenBucket>)
    /// # where S: Store<TokenBucket, Error = tollgate::store::StoreError> + Send + Sync + 'static {
    /// let lost = synced.flush(Duration::from_secs(2)).await;
    /// println!("{lost} units were not pushed to the store");
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio with time enabled.
    pub async fn flush(&self, within: Duration) -> u64 {
        /// The time between two looks at what is left.
        const LOOK_EVERY: Duration = Duration::from_millis(2);
        let inner = &self.inner;
        inner.keys.is_closed.store(true, Ordering::Release);
        let tell = async {
            while self.make_due() > 0 {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let _ = tokio::time::timeout(within, tell).await;
        self.make_due()
    }

    /// Has all unsynced units pushed now. Returns its units.
    fn make_due(&self) -> u64 {
        let inner = &self.inner;
        let now = inner.now();
        let (mut unsynced, mut schedules) = (0, Vec::new());
        for mut shard in inner.keys.table.each() {
            for (fingerprint, known) in shard.views.known.iter_mut() {
                if known.view.unsynced() > 0 {
                    unsynced += known.view.unsynced();
                    known.with(fingerprint, |view| view.make_due(now));
                    schedules.push(Arc::clone(&known.schedule));
                }
            }
        }
        for schedule in schedules {
            // Outside of a runtime nothing can be pushed, and the units stay in the returned
            // number.
            let _ = inner.serve(&schedule);
            schedule.hurry.notify_one();
        }
        unsynced
    }
}

wrapper!(Synced, Rule: Syncable);

impl<S: Backend<Error = StoreError>, Rule: Syncable, C> Backend for Synced<S, Rule, C> {
    type Error = StoreError;

    delegate!(Backend, self => self.inner.store);
}

impl<S, Rule, C> Store<Rule> for Synced<S, Rule, C>
where
    S: Store<Rule, Answer: Send + 'static> + Backend<Error = StoreError> + Send + Sync + 'static,
    Rule: Syncable,
    C: Clock + Send + Sync + 'static,
{
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    #[inline]
    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let inner = &self.inner;
        if let Some(answer) = inner.acquire_blocks(asks) {
            return answer;
        }
        match inner.acquire(asks, false) {
            Ok(Outcome::Decided(decisions)) => Check::Ready(Ok(decisions)),
            Ok(Outcome::Store(in_store)) => {
                let asks = OwnedAsks::new(asks);
                Check::Pending(Box::pin(Arc::clone(inner).ask_store(asks, in_store)))
            }
            Err(error) if error.is_unsupported() => Check::Ready(Err(error)),
            outcome => {
                let asks = OwnedAsks::new(asks);
                Check::Pending(Box::pin(Arc::clone(inner).decide(asks, outcome)))
            }
        }
    }

    /// Returns how keys stand by what this node knows, and in the store where it knows nothing.
    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let inner = &self.inner;
        let call = (&inner.store, asks, inner.now());
        inner.unblocked.look(
            call,
            |ask| inner.look(ask),
            |unknown| boxed(inner.store.look(unknown)),
        )
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let settled = settlements.into_iter().filter_map(|settlement| {
            match settlement.policy.is_of_blocks() {
                true => Some(settlement),
                false => self.inner.settle(settlement),
            }
        });
        let in_store: Vec<_> = settled.collect();
        if in_store.is_empty() {
            return Check::Ready(Ok(()));
        }
        boxed(self.inner.store.settle(in_store))
    }

    /// Drops what this node knows of the key, too. Other nodes may still push what they admitted.
    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let inner = &self.inner;
        inner.keys.drop_key(policy, key);
        let (again, owner) = (Arc::clone(inner), (policy.clone(), *key));
        forget_changed(inner.store.reset(policy, key), move || {
            let (policy, key) = &owner;
            again.keys.outdate(policy, key);
        })
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        no_blocks_inside(&self.inner.store, "synced")?;
        // One that renews charges decides nothing by itself, and is refused without an exception.
        if !self.inner.config.is_exact() || rule.renewal().is_some() {
            rule.check_sync()?;
        }
        self.inner.store.fits(rule)
    }

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>> {
        Some(self)
    }
}
