//! Deciding here while a store elsewhere fails.

mod answer;
mod builder;
mod done;
mod share;

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

pub use self::{
    answer::FallBackFuture, builder::FallBackBuilder, done::FallBackDone, share::Scalable,
};

use self::answer::Question;
use crate::{
    key::Key,
    policy::Policy,
    store::{
        Ask, Backend, Check, Error, NeverFails, OnFailure, OnFailureFuture, Settlement, Store,
    },
};

/// A store that is replaced by a local one, call by call, while it fails.
///
/// Made by [`fall_back_to`](super::super::StoreExt::fall_back_to). The local store decides a call that fails, under the
/// [share of its rule](FallBackBuilder::share) that this node may admit on its own. Once the remote store answers again, it
/// decides, and is not told what was admitted meanwhile.
///
/// # What an outage costs
///
/// Of each client, under a rule of burst b and rate r of which each of n nodes has a share of 1/n:
///
/// - What the remote store admits keeps the rule, and what a node admits on its own keeps its share of the rule, however often
///   the store fails.
/// - So an outage of length T lets each node that it meets admit up to b/n and r·T/n on its own.
/// - Where it meets all nodes, that is at most b above the rule while the store is lost. The client's state in the remote
///   store refills meanwhile, by r·T and b at most, and what it refilled may be spent too once the store is back.
///
/// The local store keeps its states between outages, where they refill at the rate of the share. So a second outage soon
/// after the first brings no second b/n. A node that restarts in an outage does begin with a full share.
///
/// Nothing is carried from one store to the other. So it does not matter how far the node's clock is from that of the remote
/// store, and nobody is refused after an outage for what was admitted in it.
///
/// # Contention
///
/// A store that [lost every race](Error::is_contended) for a key is there and lets others pass on it. What a local store
/// admitted beside them would be above the limit, and who wanted more could have it by contending. So such a call is not
/// decided here: it is undecided, and [turned away](FallBackBuilder::when_contended).
///
/// # Waiting
///
/// A call asks the remote store once, and waits for it as long as that store lets it: put a deadline inside, and a
/// [circuit breaker](super::CircuitBreaker) around that.
///
/// # Settling and resetting
///
/// A charge is settled in the store that made it. Where the remote store fails then, the settlement is not made, and is
/// counted among the [`failures`](Self::failures) or [`contentions`](Self::contentions). `reset` is carried out in both.
/// The local store may fall back itself, to a third level; the remote one may not, for its charges could not be told from
/// those of the local one.
///
/// # Calls that the store does not support
///
/// What the remote store [does not support](Error::unsupported), such as a rule that does not fit it, is not decided here either:
/// it is [refused as the server's fault](crate::store::OnFailure), logged and [counted](Self::unsupported) as there.
///
/// # Log
///
/// With the feature `tracing`, failures are logged as those of [`OnFailure`](super::super::OnFailure#log) are.
///
/// # Cancellation
///
/// Of a call that is dropped, at most what was asked for is spent, once in each store.
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
pub struct FallBackTo<S, L, Rule> {
    shared: Arc<Shared<S, L, Rule>>,
}

/// What a node may admit on its own under a rule, if anything.
type ShareOf<Rule> = dyn Fn(&Rule) -> Option<Rule> + Send + Sync;

/// What all clones share.
struct Shared<S, L, Rule> {
    /// Its failures are counted there.
    remote: OnFailure<S>,
    local: L,
    share_of: Box<ShareOf<Rule>>,
    // Relaxed: counts are read for a report and order nothing.
    decided: AtomicU64,
    turned_away: AtomicU64,
}

impl<S, L, Rule> FallBackTo<S, L, Rule> {
    /// How often the remote store failed, but for [contention](Self::contentions) and what it does not
    /// [support](Self::unsupported); all clones together.
    pub fn failures(&self) -> u64 {
        self.shared.remote.failures()
    }

    /// How often every attempt of the remote store lost its race; all clones together.
    pub fn contentions(&self) -> u64 {
        self.shared.remote.contentions()
    }

    /// How often the remote store did not [support](Error::unsupported) what was asked of it; all clones together.
    pub fn unsupported(&self) -> u64 {
        self.shared.remote.unsupported()
    }

    /// How many calls the local store decided, `look` included.
    pub fn decided(&self) -> u64 {
        self.shared.decided.load(Ordering::Relaxed)
    }

    /// How many calls were turned away because this node has no share of their rule.
    pub fn turned_away(&self) -> u64 {
        self.shared.turned_away.load(Ordering::Relaxed)
    }
}

impl<S, L, Rule> Clone for FallBackTo<S, L, Rule> {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared }
    }
}

impl<S: fmt::Debug, L: fmt::Debug, Rule> fmt::Debug for FallBackTo<S, L, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallBackTo")
            .field("remote", &self.shared.remote)
            .field("local", &self.shared.local)
            .field("decided", &self.decided())
            .finish_non_exhaustive()
    }
}

impl<S: Backend, L, Rule> Backend for FallBackTo<S, L, Rule> {
    type Error = Infallible;

    fn address(&self) -> Option<&str> {
        self.shared.remote.address()
    }

    fn unsettled(&self) -> Option<u64> {
        self.shared.remote.unsettled()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.shared.remote.shard(policy, key)
    }
}

impl<S, L, Rule> Store<Rule> for FallBackTo<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    type Answer = FallBackFuture<S, L, Rule>;
    type Done = FallBackDone<OnFailureFuture<S::Done, ()>, L::Done>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        FallBackFuture::ask(&self.shared, Question::Acquire, asks)
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        FallBackFuture::ask(&self.shared, Question::Look, asks)
    }

    /// Each charge in the store that made it, and under the rule by which that store did.
    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let Shared { remote, local, .. } = &*self.shared;
        let (mut there, mut here, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for settlement in settlements {
            let Some(charge) = settlement.charge.in_fallback() else {
                there.push(settlement);
                continue;
            };
            let Some(share) = (self.shared.share_of)(settlement.rule) else {
                remote.note(Error::other(WITHOUT_SHARE), [settlement.policy], 0);
                continue;
            };
            here.push(Settlement {
                charge,
                ..settlement
            });
            shares.push(share);
        }
        let here = here.into_iter().zip(&shares);
        let here: Vec<_> = here
            .map(|(here, rule)| Settlement { rule, ..here })
            .collect();
        FallBackDone::of_both(
            (!there.is_empty()).then(|| remote.settle(there)),
            (!here.is_empty()).then(|| local.settle(here)),
        )
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let Shared { remote, local, .. } = &*self.shared;
        let remote = Store::<Rule>::reset(remote, policy, key);
        FallBackDone::of_both(Some(remote), Some(local.reset(policy, key)))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        let share = (self.shared.share_of)(rule);
        self.shared.remote.fits(rule)?;
        share.map_or(Ok(()), |share| self.shared.local.fits(&share))
    }
}

const WITHOUT_SHARE: &str = "a charge of the local store is settled under a rule that has no share: expected the rule of \
     the charge, and that `.rule(|rule| …)` says the same of it each time; nothing was settled";
