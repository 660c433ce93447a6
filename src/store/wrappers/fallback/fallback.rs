//! A store that decides locally while a remote store fails.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, atomic::Ordering},
};

use super::{
    FallbackDone, FallbackFuture,
    stores::{Operation, Stores},
};
use crate::{
    key::Key,
    policy::Policy,
    store::{Ask, Backend, Check, Error, NeverFails, OnFailureFuture, Settlement, Store, StoreId},
};

/// A remote store that is replaced by a local one, call by call, while it fails.
///
/// Created by [`fall_back_to`](crate::store::StoreExt::fall_back_to). If a call fails, the local store decides it, under this
/// node's [share of the rule](super::FallbackBuilder::share). Once the remote store answers again it decides; it does not learn
/// which requests were admitted meanwhile. Clones share both stores and the counters.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Ask, Check, Error, Local, Store, StoreExt};
/// # use tollgate::{key::Key, store::{Backend, Decisions, Never, Settlement}};
/// # fn down<T>() -> Check<Never<Result<T, Error>>> { Check::Ready(Err(Error::unavailable("connection refused"))) }
/// # struct Down;
/// # impl Backend for Down { type Error = Error; }
/// # impl Store<TokenBucket> for Down {
/// #     type Answer = Never<Result<Decisions, Error>>;
/// #     type Done = Never<Result<(), Error>>;
/// #     fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> { down() }
/// #     fn look(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> { down() }
/// #     fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> { down() }
/// #     fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> { down() }
/// # }
///
/// // `Down` cannot be reached. This node is one of three.
/// let store = Down.fall_back_to(Local::new()).share(1, 3);
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(9));
/// let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
/// let admitted = (0..9).filter(|_| {
///     matches!(store.acquire(&ask), Check::Ready(Ok(decisions)) if decisions.is_admitted())
/// });
/// assert_eq!(admitted.count(), 3);
/// assert_eq!((store.failures(), store.decided()), (9, 9));
/// ```
///
/// # Admitted during an outage
///
/// For a rule with burst b and rate r, and n nodes with a share of 1/n each, per client:
///
/// - The remote store admits what the rule allows, and each node what its share allows, however often the remote store fails.
/// - In an outage of length T, each affected node admits up to b/n + r·T/n on its own.
/// - If it affects all nodes, clients get up to b more than the rule allows during the outage. Their state in the remote store refills
///   meanwhile, by up to r·T and at most b, and can be spent once the store is back.
///
/// The local store keeps its states between outages, and refills them at the rate of the share, so a second outage soon after
/// the first does not admit b/n again. A node that restarts during an outage starts with a full share.
///
/// # Repaying
///
/// What was admitted in an outage is not told to the remote store. To have it repaid, take [`synced`](crate::store::Synced#a-fallback-that-repays) with an overshoot
/// of 0 instead of this, or inside of it for rules without a part:
///
/// | | this | `synced`, overshoot 0 |
/// |---|---|---|
/// | at the beginning of an outage, a node has | its share of a full bucket: up to b/n, whatever the key has spent | its part of what remained when it asked last |
/// | after an outage | the remote store has refilled, and admits up to b at once | what was admitted is a debt: the key is refused until it is refilled |
/// | all nodes together, in an outage of length T | b + r·T, and b when it is over | at most b + r·T, and nothing more |
/// | rules | any, by a function | token buckets, windows, and pairs of them |
///
/// No state is copied between the stores. So the node's clock may differ from that of the remote store, and no client is refused
/// after an outage for requests during it.
///
/// # Contention
///
/// A call that [lost every race](Error::is_contended) for a key is not decided locally: the store works and admits other calls
/// for that key, so local admissions would exceed the limit, and a client could cause them by contending. Such a call is
/// refused with 503, unless [`when_contended`](super::FallbackBuilder::when_contended) sets another answer.
///
/// # Unsupported calls
///
/// A call that the remote store [does not support](Error::unsupported), such as one with a rule that does not fit it, is not
/// decided locally either: it is refused with 500, logged and [counted](Self::unsupported), as by
/// [`OnFailure`](super::super::OnFailure).
///
/// # Deadline
///
/// A call waits for the remote store as long as that takes. Put a deadline inside, and a
/// [circuit breaker](super::super::CircuitBreaker) around it: `.timeout(…).circuit_breaker(…).fall_back_to(…)`.
///
/// # Settling and resetting
///
/// A charge is settled in the store that made it. If the remote store fails then, the settlement is lost and counted in
/// [`failures`](Self::failures) or [`contentions`](Self::contentions). `reset` clears the key in both stores. The local store
/// may be a `Fallback` itself, as a third level; the remote one may not, because their charges could not be told apart.
///
/// # Log
///
/// With the feature `tracing`, failures are logged as those of [`OnFailure`](super::super::OnFailure#log).
///
/// # Cancellation
///
/// A dropped call is charged at most once in each store.
#[must_use]
pub struct Fallback<S, L, Rule> {
    pub(super) stores: Arc<Stores<S, L, Rule>>,
}

impl<S, L, Rule> Fallback<S, L, Rule> {
    /// Returns the remote store, for example to read its counters.
    pub fn remote(&self) -> &S {
        self.stores.remote.get_ref()
    }

    /// Returns the local store, for example to read its counters.
    pub fn local(&self) -> &L {
        &self.stores.local
    }

    /// Returns the number of failures of the remote store, without [contention](Self::contentions) and
    /// [unsupported](Self::unsupported) calls.
    pub fn failures(&self) -> u64 {
        self.stores.remote.failures()
    }

    /// Returns how many of the [failures](Self::failures) were [writes that the server did not take](Error::is_unwritten).
    pub fn unwritten(&self) -> u64 {
        self.stores.remote.unwritten()
    }

    /// Returns the number of calls that lost every race for a key in the remote store.
    pub fn contentions(&self) -> u64 {
        self.stores.remote.contentions()
    }

    /// Returns the number of calls that the remote store does not [support](Error::unsupported).
    pub fn unsupported(&self) -> u64 {
        self.stores.remote.unsupported()
    }

    /// Returns the number of calls that the local store decided, including `look`.
    pub fn decided(&self) -> u64 {
        self.stores.decided.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that were refused because this node has no share of their rule.
    pub fn turned_away(&self) -> u64 {
        self.stores.turned_away.load(Ordering::Relaxed)
    }
}

impl<S, L, Rule> Clone for Fallback<S, L, Rule> {
    fn clone(&self) -> Self {
        let stores = Arc::clone(&self.stores);
        Self { stores }
    }
}

impl<S: fmt::Debug, L: fmt::Debug, Rule> fmt::Debug for Fallback<S, L, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("remote", &self.stores.remote)
            .field("local", &self.stores.local)
            .field("decided", &self.decided())
            .finish_non_exhaustive()
    }
}

impl<S: Backend, L, Rule> Backend for Fallback<S, L, Rule> {
    type Error = Infallible;

    fn id(&self) -> Option<StoreId> {
        self.stores.remote.id()
    }

    fn address(&self) -> Option<&str> {
        self.stores.remote.address()
    }

    fn unsettled(&self) -> Option<u64> {
        self.stores.remote.unsettled()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.stores.remote.shard(policy, key)
    }

    fn refuses_beyond_rules(&self) -> bool {
        self.stores.remote.refuses_beyond_rules()
    }

    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        self.stores.remote.note_refusal(policy, key)
    }
}

impl<S, L, Rule> Store<Rule> for Fallback<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    type Answer = FallbackFuture<S, L, Rule>;
    type Done = FallbackDone<OnFailureFuture<S::Done>, L::Done>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        FallbackFuture::ask(&self.stores, Operation::Acquire, asks)
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        FallbackFuture::ask(&self.stores, Operation::Look, asks)
    }

    /// Settles each charge in the store that made it, under the rule that it used.
    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let Stores { remote, local, .. } = &*self.stores;
        let (mut of_remote, mut of_local, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for settlement in settlements {
            let Some(charge) = settlement.charge.in_fallback() else {
                of_remote.push(settlement);
                continue;
            };
            let Some(share) = (self.stores.share_of)(settlement.rule) else {
                remote.record(Error::other(NO_SHARE), [settlement.policy], 0);
                continue;
            };
            of_local.push(Settlement {
                charge,
                ..settlement
            });
            shares.push(share);
        }
        let of_local = of_local.into_iter().zip(&shares);
        let of_local: Vec<_> = of_local
            .map(|(settlement, rule)| Settlement { rule, ..settlement })
            .collect();
        FallbackDone::join(
            (!of_remote.is_empty()).then(|| remote.settle(of_remote)),
            (!of_local.is_empty()).then(|| local.settle(of_local)),
        )
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let Stores { remote, local, .. } = &*self.stores;
        let remote = Store::<Rule>::reset(remote, policy, key);
        FallbackDone::join(Some(remote), Some(local.reset(policy, key)))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        let share = (self.stores.share_of)(rule);
        self.stores.remote.fits(rule)?;
        share.map_or(Ok(()), |share| self.stores.local.fits(&share))
    }
}

const NO_SHARE: &str = "a charge of the local store was settled under a rule without a share: expected the rule of \
     the charge; return the same share for a rule each time from `.rule(|rule| …)`, nothing was settled";
