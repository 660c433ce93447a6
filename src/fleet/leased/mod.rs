//! A store whose units are granted ahead.

mod call;
mod keys;
mod lease;

use std::{sync::Arc, time::Duration};

use self::{
    call::{Call, LeasedParts},
    keys::{Leases, Leftover},
    lease::{LeaseOutcome, LeasedRule},
};
use super::{
    LeaseConfig, LeaseStats,
    nodes::Nodes,
    shared::{Clocked, Shared, wrapper},
    tasks::sweep,
};
use crate::{
    algorithm::Leasable,
    decision::Charge,
    key::Key,
    policy::Policy,
    store::{
        Ask, Backend, BoxFuture, Check, Decisions, FleetStore, Settlement, Store, StoreError,
        boxed::boxed,
        delegate,
        engine::forget_changed,
        wrappers::blocks::{Unblocked, no_blocks_inside},
    },
    time::{Clock, LeaseClock},
};

/// A store that grants units ahead, so that a node decides most calls from memory, and all nodes
/// together never exceed the limit.
///
/// Created by [`leased`](crate::store::StoreExt::leased). A node asks the store for what its
/// callers asked for lately. The store spends these units, and the node holds them as a *lease*
/// until calls spend them or they end. They end by themselves: a node that dies takes nothing with
/// it.
///
/// Use it for keys with many calls a second on each node whose limit must hold: money, quotas,
/// fragile capacity. A few calls a second per key need no leases: such a key is answered as if
/// there were none. A limit for one process needs none either: [`Local`](crate::store::Local)
/// decides in memory.
///
/// ```
/// use std::{convert::Infallible, time::Duration};
/// use tollgate::{By, prelude::*};
/// use tollgate::store::{BoxStore, CircuitBreakerConfig, LeaseConfig, StoreError};
///
/// type Leased = BoxStore<TokenBucket, Infallible>;
/// type Layer = RateLimitLayer<Limit<TokenBucket, By<Header>>, Leased, Http>;
///
/// // A `Redis`, a `Memcached`, or a store of your own.
/// fn limit(remote: BoxStore<TokenBucket, StoreError>) -> Result<Layer, tollgate::Error> {
///     let store = remote
///         .timeout(Duration::from_millis(100))
///         .circuit_breaker(CircuitBreakerConfig::new())
///         .leased(LeaseConfig::new().duration(Duration::from_millis(100)));
///     let for_metrics = store.clone();
///     # let _ = for_metrics;
///     // 1000 a second: 100 are refilled during a lease, so the store runs a burst of 900.
///     RateLimitLayer::try_new(TokenBucket::per_second(1000))?
///         .key(Header::new("x-api-key"))
///         .try_store(store.remember_refusals().fail_closed().boxed())
/// }
/// # #[cfg(feature = "test-util")]
/// # limit(tollgate::testing::Faulty::new(Local::new()).boxed())?;
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// # What is guaranteed
///
/// - All nodes together admit what the rule admits, at most. That does not depend on delays, lost
///   answers, nodes that die or freeze, or their clocks. (A store without a clock of its own, as
///   memcached, adds what is refilled during the largest difference between the clocks of the
///   nodes.)
/// - Several asks of a call are charged together or not at all, by leases and by the store.
/// - A refusal has the wait of the store, or until this node asks again, if that is later.
/// - A [hold](LeaseConfig::duration) of zero is the wrapped store, call for call.
///
/// # Memory
///
/// A key takes [memory](LeaseConfig::keys) from its second call within a lease duration until its
/// units have ended. Then a task forgets it, also if no other call comes: within three lease
/// durations and a second, or within 31 seconds where they are longer than ten. If a new key needs
/// its place, it is forgotten at once. There is such a task only while there are keys. It needs a
/// runtime of tokio with time enabled.
///
/// # What it costs
///
/// The lease duration is paid out of the burst, and by nothing else. A bucket of burst C and rate r
/// that is held for h runs as one of burst C − ⌈r·h⌉ in the store.
/// [`FleetRule`](crate::algorithm::FleetRule) has what the other rules pay. A rule whose burst is
/// too small for the lease duration and the [`max_cost`](LeaseConfig::max_cost) is an error when
/// the layer is built.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{FixedWindow, SlidingLog, TokenBucket, algorithm::FleetRule};
///
/// let duration = Duration::from_millis(100);
/// let bucket = TokenBucket::per_second(1000);
/// assert_eq!(bucket.tightened(duration, 1)?, bucket.burst(900));
/// let bucket = TokenBucket::per_minute(100);
/// assert_eq!(bucket.tightened(duration, 1)?, bucket.burst(99));
/// let window = FixedWindow::per_minute(100);
/// assert_eq!(window.tightened(duration, 1)?, window);
/// let log = SlidingLog::per_minute(100);
/// assert_eq!(log.tightened(duration, 1)?.to_string(), "sliding-log 100/60100ms");
/// // A burst of 10 cannot pay for 100 units.
/// assert!(TokenBucket::per_second(1000).burst(10).tightened(duration, 1).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// If the store has less left than is refilled during the lease duration, and this node needs it,
/// the key pauses: for up to the lease duration this node refuses what its leases do not cover,
/// instead of asking for each unit. Units that expire unspent are admitted later, because the rule
/// refills them.
///
/// # What happens when
///
/// | event | effect |
/// |---|---|
/// | the store is down | Nothing, for calls that leases cover, for the lease duration at most, and for those that a limit is known to refuse. Other calls fail, and the outer wrapper decides. |
/// | an answer is lost or late | Its units are not assumed to be granted. They expire in the store. A late answer is used as long as its units live, counted from the request. |
/// | a node dies | Its units expire. Until then they cannot be spent by others: at most what the node asked for during one lease duration. |
/// | a node freezes, or its machine is suspended | Its units expire meanwhile. The [clock](LeaseConfig::clock) counts the time for which the machine was suspended. |
/// | a key is reset | This node drops its leases of the key. Other nodes may still spend theirs, one limit at most, until these end. |
/// | a rule changes | Leases belong to a rule, so its old ones end unspent. Rules that alternate on one key have leases each, four at most. |
/// | a refund | Its units return to this node's leases as far as they have not ended, also those of a call that the store decided. A bucket has refilled the others, and a window that has ended needs none. Of a sliding window or a log they stay spent until they leave it, and count as [`lost`](LeaseStats::lost) and, once for each refund, as [unsettled](Backend::unsettled), if the store counts those. Windows and logs take back in the store what it decided itself. |
/// | a refund without room for the key's lease | It is offered to the store, where a bucket gives it back only if nothing was charged behind it. The answer does not say so: it counts as unsettled. |
/// | a [grant](crate::Limiter::grant) | The store has its units at once. This node asks for them, others when a refusal that they know of ends. Until the units end that nodes hold, the limit may be exceeded by the grant. |
/// | a charge above the estimate | It is taken from the leases of this node, and what they lack from the store by force, so that other nodes see the debt. |
/// | [too many keys](LeaseConfig::keys) | Calls of further keys are decided by the store, one round trip each, and counted as [`over_capacity`](LeaseStats::over_capacity). |
///
/// [`remaining`](crate::Decision::remaining) of an admission by a lease [is an
/// estimate](crate::Decision::is_remaining_estimated), and never more than the tightened rule has.
///
/// # Place
///
/// Outside of a timeout and a circuit breaker, which the calls to the store need, and inside of
/// [remembered refusals](crate::store::RememberRefusals) and of the answer to a call that failed.
/// Leases admit while the circuit is open.
///
/// # Cancellation
///
/// A call that is dropped while it waits refunds the units that it took. If it asked the store
/// for more than its own cost, a task takes in the answer, for later calls. If it asked for its
/// cost alone, that may have been spent, as without leases.
///
/// A call that its caller keeps without polling it holds up other calls of its key for 250 ms at
/// most. Then one of them asks the store.
#[doc(alias("prefetch", "batch", "token server"))]
#[must_use]
pub struct Leased<S, Rule, C = LeaseClock> {
    inner: Arc<LeasedParts<S, Rule, C>>,
}

impl<S, Rule: Leasable, C> Leased<S, Rule, C> {
    pub(crate) fn new(store: S, mut config: LeaseConfig<C>) -> Self
    where
        S: Backend,
    {
        if store.refuses_beyond_rules() {
            config.turn_off();
        }
        let parts = Shared {
            store,
            keys: Leases::new(config.common.keys, config.common.seed),
            nodes: Arc::new(Nodes::new(config.common.nodes)),
            unblocked: Unblocked::new(Duration::from_secs(1)),
            config,
        };
        Self {
            inner: Arc::new(parts),
        }
    }

    /// Returns counters of these leases and their clones.
    pub fn stats(&self) -> LeaseStats {
        self.inner.keys.stats(&self.inner.nodes)
    }

    /// Returns how many units all nodes together may admit above a rule: 0.
    ///
    /// A [reset](Store::reset) and a loss of the store's data begin afresh, and a
    /// [grant](crate::Limiter::grant) is above it: see [what happens when](#what-happens-when).
    pub fn overshoot_bound(&self) -> u64 {
        0
    }

    /// Returns how many units a call may lack although the rule has them: how much less than the
    /// rule as it is written all nodes together may admit at an instant.
    ///
    /// That is what the [hold costs](#what-it-costs), and what other nodes hold: each a quarter of
    /// the tightened limit at most, beside what calls refunded. Their number is
    /// [counted](LeaseConfig::nodes). While it is not known, it is the whole limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{TokenBucket, prelude::*, store::LeaseConfig};
    ///
    /// # #[cfg(feature = "test-util")] {
    /// # use tollgate::testing::Faulty;
    /// # let store = Faulty::new(Local::<TokenBucket>::new());
    /// // Two nodes; of 1000 units, the store runs 900.
    /// let leased = store.leased(LeaseConfig::new().duration(Duration::from_millis(100)).nodes(2));
    /// assert_eq!(leased.undershoot_bound(&TokenBucket::per_second(1000))?, 100 + 225);
    /// # }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the rule cannot be leased.
    pub fn undershoot_bound(&self, rule: &Rule) -> Result<u64, crate::Error> {
        let Shared { config, nodes, .. } = &*self.inner;
        if config.is_off() {
            return Ok(0);
        }
        Ok(LeasedRule::new(rule, config)?
            .terms
            .undershoot_bound(nodes.number()))
    }
}

impl<S, Rule, C> Leased<S, Rule, C>
where
    S: Store<Rule>,
    Rule: Leasable,
    C: Clock,
{
    /// Stops leasing, and offers the units that are left to the store, for at most this time; for a
    /// clean shutdown. Returns the units that the store was offered and answered without an error.
    ///
    /// Later calls are decided by the store. Windows and logs take units back as if they had not
    /// been granted. A token bucket takes back a grant only if no other call was charged since,
    /// because other nodes hold leases behind it; otherwise its units are refilled when their time
    /// has come. The answer of a store does not contain which of them it took back, so both kinds
    /// are in the returned number and count as [`returned`](LeaseStats::returned). Nothing is
    /// repeated: units whose settlement fails or takes too long count as
    /// [`lost`](LeaseStats::lost), and so do units that calls refunded to leases.
    ///
    /// Needs a runtime of tokio with time enabled.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{TokenBucket, store::Store};
    ///
    /// # async fn example<S: Store<TokenBucket>>(leased: tollgate::store::Leased<S, TokenBucket>) {
    /// let returned = leased.release(Duration::from_secs(2)).await;
    /// println!("{returned} units were offered to the store");
    /// # }
    /// ```
    pub async fn release(&self, within: Duration) -> u64 {
        /// The most settlements of a call to the store.
        const TOGETHER: usize = 64;
        let inner = &self.inner;
        let mut returned = 0;
        let left = inner.keys.close(inner.now());
        let refund = async {
            for some in left.chunks(TOGETHER) {
                let settlements = some.iter().map(Leftover::settlement).collect();
                if inner.store.settle(settlements).await.is_ok() {
                    let units = some.iter().map(|left| left.units).sum();
                    inner.keys.returned(units);
                    returned += units;
                }
            }
        };
        // Units that were offered in time stay counted.
        let _ = tokio::time::timeout(within, refund).await;
        returned
    }
}

wrapper!(Leased, Rule: Leasable);

impl<S: Backend<Error = StoreError>, Rule, C> Backend for Leased<S, Rule, C> {
    type Error = StoreError;

    delegate!(Backend, self => self.inner.store; identity, refusals);

    fn unsettled(&self) -> Option<u64> {
        let in_store = self.inner.store.unsettled()?;
        Some(in_store + self.inner.keys.unsettled.get())
    }
}

impl<S, Rule, C> Store<Rule> for Leased<S, Rule, C>
where
    S: Store<Rule, Answer: Send + 'static> + Backend<Error = StoreError> + Send + Sync + 'static,
    Rule: Leasable,
    C: Clock + Send + Sync + 'static,
{
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    #[inline]
    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let inner = &self.inner;
        if inner.config.is_off() {
            return boxed(inner.store.acquire(asks));
        }
        if let Some(answer) = inner.acquire_blocks(asks) {
            return answer;
        }
        let call = match asks {
            [ask] => match inner.try_one(ask, false) {
                Ok(LeaseOutcome::Admitted(parts, prefetch)) => {
                    if let Some(prefetch) = prefetch {
                        inner.prefetch(ask, prefetch);
                    }
                    let decision = parts.admission(ask.cost());
                    return Check::Ready(Ok(ask.charged(decision).into()));
                }
                Ok(LeaseOutcome::Refused(parts, wait)) => {
                    let decision = parts.refusal(ask.cost(), wait);
                    return Check::Ready(Ok(ask.charged(decision).into()));
                }
                Ok(LeaseOutcome::Ask(asked)) if asked.request.is_exact() => {
                    return inner.ask_exactly(ask, asked);
                }
                Ok(tried) => Call::new(inner, asks, Some(tried)),
                Err(error) => Err(error),
            },
            _ => Call::new(inner, asks, None),
        };
        sweep(inner);
        match call {
            Ok(call) if call.is_decided() => Check::Ready(Ok(call.finish())),
            Ok(call) => Check::Pending(Box::pin(call.decide())),
            Err(error) => Check::Ready(Err(StoreError::unsupported(error))),
        }
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let inner = &self.inner;
        if inner.config.is_off() {
            return boxed(inner.store.look(asks));
        }
        let call = (&inner.store, asks, inner.now());
        inner
            .unblocked
            .look(call, |_| None, |unknown| inner.look(unknown))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let inner = &self.inner;
        if inner.config.is_off() {
            return boxed(inner.store.settle(settlements));
        }
        let mut in_store = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let (policy, rule) = (settlement.policy, settlement.rule);
            if policy.is_of_blocks() {
                in_store.push((settlement, rule.clone()));
                continue;
            }
            let settlement = match settlement.charge.is_of_lease() {
                true => self.settle_here(settlement),
                false => Some(settlement),
            };
            let Some(settlement) = settlement else {
                continue;
            };
            match LeasedRule::new(rule, &inner.config) {
                Ok(rule) => in_store.push((self.in_store(settlement, &rule), rule.tightened)),
                Err(error) => return Check::Ready(Err(StoreError::unsupported(error))),
            }
        }
        // A refund may begin a lease.
        sweep(inner);
        if in_store.is_empty() {
            return Check::Ready(Ok(()));
        }
        let owner = |(of, _): &(Settlement<'_, Rule>, Rule)| (of.policy.clone(), of.key);
        let owners: Vec<_> = in_store.iter().map(owner).collect();
        let (settlements, tightened): (Vec<_>, Vec<_>) = in_store.into_iter().unzip();
        let settlements = settlements
            .into_iter()
            .zip(&tightened)
            .map(|(settlement, tightened)| Settlement {
                rule: tightened,
                ..settlement
            })
            .collect();
        let inner = Arc::clone(inner);
        forget_changed(self.inner.store.settle(settlements), move || {
            for (policy, key) in &owners {
                inner.keys.forget_answers(policy, key);
            }
        })
    }

    /// Drops the leases of this node, too. Other nodes may still spend theirs.
    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let (inner, owner) = (Arc::clone(&self.inner), (policy.clone(), *key));
        forget_changed(self.inner.store.reset(policy, key), move || {
            let (policy, key) = &owner;
            inner.keys.drop_leases(policy, key, inner.now());
        })
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        no_blocks_inside(&self.inner.store, "leased")?;
        if self.inner.config.is_off() {
            return self.inner.store.fits(rule);
        }
        self.inner.store.fits(&self.inner.config.tightened(rule)?)
    }

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>> {
        Some(self)
    }
}

impl<S, Rule: Leasable, C: Clock> Leased<S, Rule, C> {
    /// Corrects a charge by the leases of this node. Returns the settlement of what the store has
    /// to correct.
    fn settle_here<'a>(&self, settlement: Settlement<'a, Rule>) -> Option<Settlement<'a, Rule>> {
        let Settlement {
            policy, rule, key, ..
        } = settlement;
        let (charge, actual) = (&settlement.charge, settlement.actual);
        let Shared { keys, config, .. } = &*self.inner;
        let (owner, now) = ((policy, &key, rule), config.now());
        if let Some(less) = charge.cost.checked_sub(actual) {
            keys.refund(owner, less, charge.position, now, config);
            return None;
        }
        // The lacking units are taken from the store by force: other nodes see the debt at once.
        let lacking = keys.take_by_force(owner, actual - charge.cost, now);
        (lacking > 0).then(|| Settlement {
            charge: Charge::new(charge.at, charge.cost),
            actual: charge.cost.saturating_add(lacking),
            ..settlement
        })
    }

    /// Returns a settlement under the tightened rule that the store runs.
    fn in_store<'a>(
        &self,
        settlement: Settlement<'a, Rule>,
        LeasedRule {
            tightened, terms, ..
        }: &LeasedRule<Rule>,
    ) -> Settlement<'a, Rule> {
        let Charge { at, cost, .. } = settlement.charge;
        if settlement.is_grant {
            // A log that is held for longer has its newest entry sooner than its rule as written
            // finds it.
            let quota = terms.limit.and_then(|limit| limit.quota);
            let period = quota.map_or(Duration::ZERO, |quota| quota.period());
            let look = tightened.look(None, at).with_reset_after(period);
            let charge = Charge::new(tightened.grant_at(&look).unwrap_or(look.at()), cost);
            return Settlement {
                charge,
                ..settlement
            };
        }
        if settlement.actual >= cost || terms.rate.is_none() {
            return settlement;
        }
        // Not if other nodes hold units behind the charge. The answer of the store does not say if
        // it refunded, so it is counted.
        self.inner.keys.unsettled.add(1);
        let charge = settlement.charge.if_last();
        Settlement {
            charge,
            ..settlement
        }
    }
}
