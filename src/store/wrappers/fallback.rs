//! Decides locally while a remote store fails.
//!
//! A fallback keeps no account of an outage. What a node admits is bounded by its share. To settle
//! it afterwards took 1,300 lines, up to three round trips in one request, and a charge by the
//! node's clock: a node 600 s ahead left clients of a sliding log refused for 608 s. It saved at
//! most one burst per client and outage.

use std::{
    convert::Infallible,
    future::{Future, ready},
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use smallvec::SmallVec;

use crate::{
    algorithm::Shareable,
    error::or_panic,
    key::Key,
    policy::Policy,
    stats::Counter,
    store::{
        Ask, Backend, BoxFuture, Check, Decisions, FailureMode, NeverFails, OnFailure,
        OnFailureFuture, OwnedAsks, Renewed, Settlement, Store, StoreError, delegate,
    },
};

/// A remote store with a local one that decides the calls that fail.
///
/// Created by [`fall_back_to`](crate::store::StoreExt::fall_back_to). If a call fails, the local
/// store decides it, under this node's [share of the rule](FallbackBuilder::share). Once the remote
/// store answers again it decides; it does not learn which requests were admitted meanwhile. Clones
/// share both stores and the counters.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Local, Store, StoreError, StoreExt, driver::{Ask, Check}};
/// # use tollgate::{key::Key, store::{Backend, driver::{Decisions, Never, Settlement}}};
/// # fn down<T>() -> Check<Never<Result<T, StoreError>>> { Check::Ready(Err(StoreError::unavailable("connection refused"))) }
/// # struct Down;
/// # impl Backend for Down { type Error = StoreError; }
/// # impl Store<TokenBucket> for Down {
/// #     type Answer = Never<Result<Decisions, StoreError>>;
/// #     type Done = Never<Result<(), StoreError>>;
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
/// - The remote store admits what the rule allows, and each node what its share allows, however
///   often the remote store fails.
/// - In an outage of length T, each affected node admits up to b/n + r·T/n on its own.
/// - If it affects all nodes, clients get up to b more than the rule allows during the outage.
///   Their state in the remote store refills meanwhile, by up to r·T and at most b, and can be
///   spent once the store is back.
///
/// The local store keeps its states between outages, and refills them at the rate of the share, so
/// a second outage soon after the first does not admit b/n again. A node that restarts during an
/// outage starts with a full share.
///
/// # Repaying
///
/// The remote store does not learn of admissions in an outage. To have them repaid, take
/// [`synced`](crate::store::Synced#a-fallback-that-repays) with an overshoot of 0 instead of this,
/// or inside of it for rules that cannot be synchronised:
///
/// | | this | `synced`, overshoot 0 |
/// |---|---|---|
/// | at the beginning of an outage, a node has | its share of a full bucket: up to b/n, whatever the key has spent | its share of what remained when it asked last |
/// | after an outage | the remote store has refilled, and admits up to b at once | what was admitted is a debt: the key is refused until it is refilled |
/// | all nodes together, in an outage of length T | b + r·T, and b when it is over | at most b + r·T, and nothing more |
/// | rules | those with a [share](crate::algorithm::Shareable), any by a function | token buckets, windows, and pairs of them |
///
/// No state is copied between the stores. So the node's clock may differ from that of the remote
/// store, and no client is refused after an outage for requests during it.
///
/// # Contention
///
/// A call that [lost every race](StoreError::is_contended) for a key is not decided locally: the
/// store works and admits other calls for that key, so local admissions would exceed the limit, and
/// a client could cause them by contending. Such a call is refused with 503, unless
/// [`when_contended`](FallbackBuilder::when_contended) sets another answer.
///
/// # Unsupported calls
///
/// A call that the remote store [does not support](StoreError::unsupported), such as one with a
/// rule that does not fit it, is not decided locally either: it is refused with 500, logged and
/// [counted](Self::unsupported), as by [`OnFailure`].
///
/// # Deadline
///
/// A call waits for the remote store as long as that takes. Put a deadline inside, and a [circuit
/// breaker](crate::store::CircuitBreaker) around it:
/// `.timeout(…).circuit_breaker(…).fall_back_to(…)`.
///
/// # Settling and resetting
///
/// A charge is settled in the store that made it. If the remote store fails then, the settlement is
/// lost and counted in [`failures`](Self::failures) or [`contentions`](Self::contentions). `reset`
/// clears the key in both stores. The local store may be a `Fallback` itself, as a third level; the
/// remote one may not, because their charges could not be told apart.
///
/// # Log
///
/// With the feature `tracing`, failures are logged as those of
/// [`OnFailure`](crate::store::OnFailure#log).
///
/// # Cancellation
///
/// A dropped call is charged at most once in each store.
#[doc(alias("degrade", "redis down"))]
#[must_use]
pub struct Fallback<S, L, Rule> {
    stores: Arc<StorePair<S, L, Rule>>,
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

    /// Returns the number of failures of the remote store, without [contention](Self::contentions)
    /// and [unsupported](Self::unsupported) calls.
    pub fn failures(&self) -> u64 {
        self.stores.remote.failures()
    }

    /// Returns the number of [failures](Self::failures) that were [writes that the server did not
    /// take](StoreError::is_unwritten).
    pub fn unwritten(&self) -> u64 {
        self.stores.remote.unwritten()
    }

    /// Returns the number of calls that lost every race for a key in the remote store.
    pub fn contentions(&self) -> u64 {
        self.stores.remote.contentions()
    }

    /// Returns the number of calls that the remote store does not
    /// [support](StoreError::unsupported).
    pub fn unsupported(&self) -> u64 {
        self.stores.remote.unsupported()
    }

    /// Returns the number of calls that the local store decided, including `look`.
    pub fn decided(&self) -> u64 {
        self.stores.decided.get()
    }

    /// Returns the number of calls that were refused because this node has no share of their rule.
    pub fn turned_away(&self) -> u64 {
        self.stores.turned_away.get()
    }
}

/// Builder of a [`Fallback`], returned by [`fall_back_to`](crate::store::StoreExt::fall_back_to).
///
/// [`share`](Self::share) or [`rule`](Self::rule) completes it, with the rule under which this node
/// may decide on its own:
///
/// ```
/// use tollgate::{TokenBucket, prelude::*, store::{self, BoxStore}};
///
/// fn limited(remote: BoxStore<TokenBucket, store::StoreError>, nodes: u64) {
///     let store = remote.fall_back_to(Local::new()).share(1, nodes);
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(store);
/// #   let _ = layer;
/// }
/// # let _: fn(_, _) = limited;
/// ```
#[derive(Clone, Debug)]
#[must_use = "`.share(1, nodes)` or `.rule(…)` makes it a store"]
pub struct FallbackBuilder<S, L> {
    remote: OnFailure<S>,
    local: L,
}

impl<S, L> FallbackBuilder<S, L> {
    pub(in crate::store) fn new(remote: S, local: L) -> Self
    where
        S: Backend,
    {
        let consequence =
            "requests that it cannot decide are decided by the local store, as `fall_back_to` asks";
        let remote = OnFailure::new(remote, FailureMode::Closed, consequence);
        Self { remote, local }
    }

    /// Sets the answer for calls that [lost every race](Fallback#contention) for a key;
    /// [`FailureMode::Closed`] by default.
    pub fn when_contended(self, contended: FailureMode) -> Self {
        let remote = self.remote.when_contended(contended);
        Self { remote, ..self }
    }

    /// Creates the store; this node may admit `numerator / denominator` of each rule on its own.
    ///
    /// With n nodes, use `share(1, n)`.
    ///
    /// # Panics
    ///
    /// When [`try_share`](Self::try_share) fails; for literals.
    #[track_caller]
    pub fn share<Rule>(self, numerator: u64, denominator: u64) -> Fallback<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule, Error: NeverFails>,
        Rule: Shareable,
    {
        or_panic(self.try_share(numerator, denominator))
    }

    /// Creates the store; this node may admit `numerator / denominator` of each rule on its own.
    ///
    /// While the remote store fails, a request whose rule has [no such
    /// share](crate::algorithm::FleetRule::node_share) is refused with 503 and
    /// [counted](Fallback::turned_away). For example, a burst of 2 has no share of 1/3.
    ///
    /// # Errors
    ///
    /// When one of the numbers is 0, or the share is above 1.
    pub fn try_share<Rule>(
        self,
        numerator: u64,
        denominator: u64,
    ) -> Result<Fallback<S, L, Rule>, crate::Error>
    where
        S: Store<Rule>,
        L: Store<Rule, Error: NeverFails>,
        Rule: Shareable,
    {
        if numerator == 0 || numerator > denominator {
            return Err(crate::Error::new(format!(
                "a share of {numerator}/{denominator} per node: expected a part of the whole, such as 1/3 with \
                 three nodes; use `.fail_closed()` to admit nothing"
            )));
        }
        Ok(self.rule(move |rule: &Rule| rule.node_share(numerator, denominator).ok()))
    }

    /// Creates the store; `share_of` returns the rule under which this node may decide on its own.
    ///
    /// While the remote store fails, a request for which it returns `None` is refused with 503 and
    /// [counted](Fallback::turned_away).
    ///
    /// ```
    /// use tollgate::{TokenBucket, prelude::*};
    /// # use tollgate::store::Fallback;
    ///
    /// # let remote = Local::<TokenBucket>::new();
    /// let store = remote.fall_back_to(Local::new()).rule(|_| Some(TokenBucket::per_second(1)));
    /// # let _: Fallback<_, _, TokenBucket> = store;
    /// ```
    pub fn rule<Rule>(
        self,
        share_of: impl Fn(&Rule) -> Option<Rule> + Send + Sync + 'static,
    ) -> Fallback<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule, Error: NeverFails>,
    {
        Fallback {
            stores: Arc::new(StorePair {
                remote: self.remote,
                local: self.local,
                share_of: Box::new(share_of),
                decided: Counter::default(),
                turned_away: Counter::default(),
            }),
        }
    }
}

impl_clone!(Fallback<S, L, Rule>, { stores });

impl_debug!([S: std::fmt::Debug, L: std::fmt::Debug, Rule] Fallback<S, L, Rule>, |it|
    remote = it.stores.remote, local = it.stores.local, decided = it.decided()
);

impl<S: Backend, L, Rule> Backend for Fallback<S, L, Rule> {
    type Error = Infallible;

    delegate!(Backend, self => self.stores.remote);
}

impl<S, L, Rule> Store<Rule> for Fallback<S, L, Rule>
where
    S: Store<Rule, Error: Into<StoreError>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    type Answer = FallbackFuture<S, L, Rule>;
    type Done = FallbackDone<OnFailureFuture<S::Done>, L::Done>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        FallbackFuture::ask(&self.stores, FallbackOperation::Acquire, asks)
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        FallbackFuture::ask(&self.stores, FallbackOperation::Look, asks)
    }

    /// Settles each charge in the store that made it, under the rule that it used.
    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let StorePair { remote, local, .. } = &*self.stores;
        let (mut of_remote, mut of_local, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for settlement in settlements {
            let Some(charge) = settlement.charge.in_fallback() else {
                of_remote.push(settlement);
                continue;
            };
            let Some(share) = (self.stores.share_of)(settlement.rule) else {
                remote.record(StoreError::other(NO_SHARE), [settlement.policy], 0);
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

    fn renew(&self, renewal: Settlement<'_, Rule>) -> BoxFuture<Renewed> {
        let StorePair { remote, local, .. } = &*self.stores;
        let Some(charge) = renewal.charge.in_fallback() else {
            return remote.renew(renewal);
        };
        match (self.stores.share_of)(renewal.rule) {
            Some(rule) => local.renew(Settlement {
                rule: &rule,
                charge,
                ..renewal
            }),
            None => Box::pin(ready(Renewed::NotMade)),
        }
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let StorePair { remote, local, .. } = &*self.stores;
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

/// A function that returns the rule under which this node may decide on its own, if any.
type ShareOf<Rule> = dyn Fn(&Rule) -> Option<Rule> + Send + Sync;

/// A remote store and the local one that replaces it, shared by all clones of a fallback.
struct StorePair<S, L, Rule> {
    /// Counts the failures of the remote store.
    remote: OnFailure<S>,
    local: L,
    share_of: Box<ShareOf<Rule>>,
    decided: Counter,
    turned_away: Counter,
}

/// An operation that can fall back.
#[derive(Clone, Copy)]
enum FallbackOperation {
    Acquire,
    Look,
}

impl FallbackOperation {
    fn run<Rule, S: Store<Rule>>(self, store: &S, asks: &[Ask<'_, Rule>]) -> Check<S::Answer> {
        match self {
            Self::Acquire => store.acquire(asks),
            Self::Look => store.look(asks),
        }
    }
}

impl<S, L, Rule> StorePair<S, L, Rule>
where
    S: Store<Rule, Error: Into<StoreError>>,
    L: Store<Rule, Error: NeverFails>,
{
    /// Continues with the local store after an error of the remote one, unless that was contention
    /// or an unsupported call.
    fn fall_back(
        &self,
        error: S::Error,
        operation: FallbackOperation,
        asks: &[Ask<'_, Rule>],
    ) -> ControlFlow<Decisions, L::Answer> {
        let policies = asks.iter().map(Ask::policy);
        if let Some(decisions) = self.remote.record(error, policies, asks.len()) {
            return ControlFlow::Break(decisions);
        }
        let shares = asks.iter().map(|ask| (self.share_of)(ask.rule()));
        let Some(shares) = shares.collect::<Option<SmallVec<[Rule; 1]>>>() else {
            self.turned_away.add(1);
            return ControlFlow::Break(FailureMode::Closed.decisions(asks.len()));
        };
        let asks = asks.iter().zip(&shares);
        let asks = asks.map(|(ask, rule)| ask.under(rule));
        match operation.run(&self.local, &asks.collect::<SmallVec<[_; 1]>>()) {
            Check::Ready(answer) => ControlFlow::Break(self.local_decisions(answer)),
            Check::Pending(answer) => ControlFlow::Continue(answer),
        }
    }

    /// Counts and marks the decisions of the local store.
    fn local_decisions(&self, answer: Result<Decisions, L::Error>) -> Decisions {
        self.decided.add(1);
        answer.unwrap_or_else(NeverFails::never).of_fallback()
    }
}

pin_project! {
    /// The future of a decision of a [`Fallback`].
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct FallbackFuture<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule>,
    {
        #[pin]
        remote: Option<S::Answer>,
        #[pin]
        local: Option<L::Answer>,
        operation: FallbackOperation,
        asks: OwnedAsks<Rule>,
        stores: Arc<StorePair<S, L, Rule>>,
    }
}

impl<S, L, Rule> FallbackFuture<S, L, Rule>
where
    S: Store<Rule, Error: Into<StoreError>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    /// Calls the remote store, and the local one if that fails at once.
    fn ask(
        stores: &Arc<StorePair<S, L, Rule>>,
        operation: FallbackOperation,
        asks: &[Ask<'_, Rule>],
    ) -> Check<Self> {
        let (remote, local) = match operation.run(stores.remote.get_ref(), asks) {
            Check::Ready(Ok(decisions)) => {
                stores.remote.answered();
                return Check::Ready(Ok(decisions));
            }
            Check::Ready(Err(error)) => match stores.fall_back(error, operation, asks) {
                ControlFlow::Break(decisions) => return Check::Ready(Ok(decisions)),
                ControlFlow::Continue(answer) => (None, Some(answer)),
            },
            Check::Pending(answer) => (Some(answer), None),
        };
        Check::Pending(Self {
            remote,
            local,
            operation,
            asks: OwnedAsks::new(asks),
            stores: Arc::clone(stores),
        })
    }
}

impl<S, L, Rule> Future for FallbackFuture<S, L, Rule>
where
    S: Store<Rule, Error: Into<StoreError>>,
    L: Store<Rule, Error: NeverFails>,
{
    type Output = Result<Decisions, Infallible>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(remote) = this.remote.as_mut().as_pin_mut() {
            let answer = ready!(remote.poll(cx));
            // Dropped now, not when this future is dropped.
            this.remote.set(None);
            let error = match answer {
                Ok(decisions) => {
                    this.stores.remote.answered();
                    return Poll::Ready(Ok(decisions));
                }
                Err(error) => error,
            };
            match this
                .stores
                .fall_back(error, *this.operation, &this.asks.to_vec())
            {
                ControlFlow::Break(decisions) => return Poll::Ready(Ok(decisions)),
                ControlFlow::Continue(answer) => this.local.set(Some(answer)),
            }
        }
        let Some(local) = this.local.as_mut().as_pin_mut() else {
            panic!("`FallbackFuture` polled after it was ready")
        };
        let answer = ready!(local.poll(cx));
        this.local.set(None);
        Poll::Ready(Ok(this.stores.local_decisions(answer)))
    }
}

impl_debug!([S: Store<Rule>, L: Store<Rule>, Rule] FallbackFuture<S, L, Rule>);

pin_project! {
    /// The future of `settle` and `reset` of a [`Fallback`]. It polls both stores concurrently.
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct FallbackDone<R, L> {
        #[pin]
        remote: Option<R>,
        #[pin]
        local: Option<L>,
    }
}

impl<R, L, E: NeverFails> FallbackDone<R, L>
where
    R: Future<Output = Result<(), Infallible>>,
    L: Future<Output = Result<(), E>>,
{
    /// Joins the operations in both stores.
    fn join(remote: Option<Check<R>>, local: Option<Check<L>>) -> Check<Self> {
        match (remote.and_then(pending), local.and_then(pending)) {
            (None, None) => Check::Ready(Ok(())),
            (remote, local) => Check::Pending(Self { remote, local }),
        }
    }
}

/// Returns the future of an operation that is not ready at once.
fn pending<F: Future>(check: Check<F>) -> Option<F> {
    match check {
        Check::Ready(_) => None,
        Check::Pending(done) => Some(done),
    }
}

impl<R, L, E: NeverFails> Future for FallbackDone<R, L>
where
    R: Future<Output = Result<(), Infallible>>,
    L: Future<Output = Result<(), E>>,
{
    type Output = Result<(), Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let are_done = [is_done(this.remote, cx), is_done(this.local, cx)];
        if are_done.contains(&false) {
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

fn is_done<F: Future>(mut future: Pin<&mut Option<F>>, cx: &mut Context<'_>) -> bool {
    let is_pending = |future: Pin<&mut F>| future.poll(cx).is_pending();
    if future.as_mut().as_pin_mut().is_some_and(is_pending) {
        return false;
    }
    future.set(None);
    true
}

impl_debug!(FallbackDone<R, L>);

#[cfg(all(test, feature = "tracing"))]
impl<S, L, Rule> Fallback<S, L, Rule> {
    /// Does what [`OnFailure::age_failure`] does, of the remote store.
    pub(super) fn age_failure(&self) -> bool {
        self.stores.remote.age_failure()
    }
}
