//! Permits: what a call in flight holds, until the last clone is dropped.
//!
//! The layer keeps one with the call, and puts a clone into the request, so that a handler that
//! goes on can keep it. The body of the response takes over that of the layer. Reference counting
//! gives the units back exactly once, with the last clone, also while a panic unwinds.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::{Arc, LazyLock, Weak},
    task::{self, Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;

#[cfg(feature = "tokio")]
use crate::renewals::{Keeper, Watch, keep, watch};
use crate::{
    algorithm::{Algorithm, Renewal},
    charging::ChargedLimit,
    decision::{Charge, Cost, Decision, Decisions},
    key::Key,
    limiter::{Limiter, LimiterFuture, LimiterParts, Plain, call},
    live_rule::RequestRule,
    outcome::{Outcome, StateHash},
    respond::{Refusal, Refused},
    store::{BoxFuture, Check, MayFail, NeverWaits, Renewed, Store},
    time::Timestamp,
};

/// The units that a call in flight holds under the limits of a layer or of a
/// [`Limiter`](crate::Limiter). Dropping the last clone gives them back.
///
/// A [`RateLimitLayer`](crate::RateLimitLayer) with an [`InFlight`](crate::InFlight) limit keeps a
/// permit with each admitted call:
///
/// | the call | gives back |
/// |---|---|
/// | responds with a body of axum or tonic (features `axum`, `tonic`) | when the body has ended or is dropped |
/// | responds with another body of HTTP | with the response; below [`SettleByBody`](crate::respond::SettleByBody) when the body has ended or is dropped |
/// | responds without HTTP | with the response |
/// | fails, panics, or is dropped | then |
///
/// That is so with the responders of this crate. [`AsError`](crate::respond::AsError) gives back
/// with the response, and so does a responder of your own that does not forward
/// [`attach_permit`](crate::respond::Respond::attach_permit).
///
/// Requests of `http` carry a clone in their extensions, for handlers that go on after the
/// response, such as an upgraded connection or a task in the background: such a handler
/// [takes](Self::take) the permit and drops it when it is done. With the feature `axum`, a handler
/// takes an `Option<Permit>` as an argument. In a request that holds nothing, there is none.
///
/// A client that resets streams of HTTP/2 gets its permits back at each reset, while handlers that
/// were spawned go on: let those take the permit.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollgate::{InFlight, Permit, RateLimitLayer};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let service = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(InFlight::at_most(1)))
///     .service(service_fn(async |mut request: Request<()>| {
///         let permit = Permit::take(request.extensions_mut());
///         // The work goes on after the response.
///         tokio::spawn(async move {
///             tokio::task::yield_now().await;
///             drop(permit);
///         });
///         Ok::<_, Infallible>(Response::new(String::new()))
///     }));
///
/// let status = async || service.clone().oneshot(Request::new(())).await.unwrap().status();
/// assert_eq!(status().await, 200);
/// assert_eq!(status().await, 429);
/// tokio::task::yield_now().await;
/// tokio::task::yield_now().await;
/// assert_eq!(status().await, 200);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "dropped at once, it gives its units back"]
pub struct Permit(Arc<Held>);

#[cfg_attr(
    feature = "tokio",
    expect(
        clippy::large_enum_variant,
        reason = "the largest one is that of nearly all calls"
    )
)]
enum Held {
    Nothing,
    /// A charge of a layer or a limiter.
    Charge {
        layer: Arc<dyn Release>,
        held: HeldCharge,
    },
    /// The permits of two limits, of one layer or of two around one service.
    Both(Permit, Permit),
    /// What another permit holds.
    Reference(Weak<Held>),
}

/// The time for which a call holds its units beyond the lease if no runtime can renew it.
const UNRENEWED: Duration = Duration::from_secs(24 * 60 * 60);

/// What a call holds of one limit.
struct HeldCharge {
    limit: ChargedLimit,
    charge: Charge,
    /// The task that renews the charge, and gives it back when this is dropped.
    #[cfg(feature = "tokio")]
    keeper: Option<Keeper>,
    /// The task that reports when the maximal hold is over, until this is dropped.
    #[cfg(feature = "tokio")]
    watch: Option<Watch>,
}

impl HeldCharge {
    #[inline]
    fn new(limit: ChargedLimit, charge: Charge) -> Self {
        Self {
            limit,
            charge,
            #[cfg(feature = "tokio")]
            keeper: None,
            #[cfg(feature = "tokio")]
            watch: None,
        }
    }

    /// Begins what happens to the charge while its call goes on.
    #[inline(never)]
    fn begin(&mut self, layer: &Arc<dyn Release>, timing: Timing) {
        #[cfg(feature = "tokio")]
        {
            let (limit, charge) = (&self.limit, &self.charge);
            self.keeper = (timing.renewal).and_then(|renewal| keep(layer, limit, charge, renewal));
            self.watch = (timing.over_in).and_then(|over_in| watch(layer, limit, charge, over_in));
        }
        if let Some(renewal) = timing.renewal.filter(|_| !self.is_kept()) {
            // Stores that answer at once need no runtime, and renew at once, beyond the lease.
            let most = renewal
                .max_hold
                .map(|hold| hold.saturating_sub(renewal.lease));
            let more = most.map_or(UNRENEWED, |most| most.min(UNRENEWED));
            let moved = self.charge.duplicate().with_delay(Some(more));
            drop(layer.renew(&self.limit, moved));
            self.charge.at = self.charge.at.saturating_add(more);
        }
    }

    /// Returns `true` if the end of a maximal hold was reported.
    fn is_over(&self) -> bool {
        #[cfg(feature = "tokio")]
        {
            self.watch.as_ref().is_some_and(Watch::end)
        }
        #[cfg(not(feature = "tokio"))]
        false
    }

    /// Returns `true` if a task gives the charge back.
    fn is_kept(&self) -> bool {
        #[cfg(feature = "tokio")]
        {
            self.keeper.is_some()
        }
        #[cfg(not(feature = "tokio"))]
        false
    }
}

/// What happens to a charge while its call goes on.
#[derive(Clone, Copy, Default)]
pub(crate) struct Timing {
    renewal: Option<Renewal>,
    /// The time until its maximal hold is over, if somebody wants to know.
    over_in: Option<Duration>,
}

impl Timing {
    /// Returns that of a charge under a rule.
    #[inline]
    pub(crate) fn of(rule: &impl Algorithm, charge: &Charge, is_observed: bool) -> Self {
        let renewal = rule.renewal();
        let is_watched = is_observed && renewal.is_none();
        Self {
            renewal,
            over_in: is_watched.then(|| over_in(rule, charge)).flatten(),
        }
    }

    /// Returns `true` if something happens to the charge while its call goes on.
    fn is_some(&self) -> bool {
        self.renewal.is_some() || self.over_in.is_some()
    }
}

/// Returns the time until the maximal hold of a charge is over: the end of a state with this charge
/// alone.
fn over_in(rule: &impl Algorithm, charge: &Charge) -> Option<Duration> {
    let mut state = None;
    rule.settle(&mut state, charge, charge.at, charge.cost);
    let end = rule.forgettable_at(&state?);
    (end < Timestamp::MAX).then(|| end.saturating_since(charge.at))
}

/// Gives back what calls hold, whatever the types of a layer or a limiter are.
pub(crate) trait Release: Send + Sync {
    /// Gives back a charge of this layer or limiter, and reports it.
    fn release(&self, limit: &ChargedLimit, charge: Charge);

    /// Gives back a charge whose end was reported.
    fn give_back(&self, limit: &ChargedLimit, charge: Charge);

    /// Renews a charge from its departure on.
    fn renew(&self, limit: &ChargedLimit, charge: Charge) -> BoxFuture<Renewed>;

    /// Reports that a call goes on after the maximal hold of these units, which are free now.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "nothing can wait"))]
    fn outlasted(&self, limit: &ChargedLimit, units: u64);
}

impl Permit {
    /// Creates a permit of a charge of this layer, which it gives back when its last clone is
    /// dropped.
    #[inline(always)]
    pub(crate) fn new(
        layer: Arc<dyn Release>,
        limit: ChargedLimit,
        charge: Charge,
        timing: Timing,
    ) -> Self {
        let held = HeldCharge::new(limit, charge);
        let mut permit = Arc::new(Held::Charge { layer, held });
        // In place, because a charge is long to move.
        if timing.is_some()
            && let Some(Held::Charge { layer, held }) = Arc::get_mut(&mut permit)
        {
            held.begin(layer, timing);
        }
        Self(permit)
    }

    /// Returns a permit that holds what both hold.
    pub(crate) fn of_both(outer: Option<Self>, inner: Option<Self>) -> Option<Self> {
        match (outer, inner) {
            (Some(outer), Some(inner)) => Some(outer.and(inner)),
            (outer, inner) => outer.or(inner),
        }
    }

    /// Returns a permit that finds this one, and does not hold what it holds: for clones of an
    /// outcome, which may be kept for longer than the call lasts.
    pub(crate) fn reference(&self) -> Self {
        Self(Arc::new(match &*self.0 {
            Held::Reference(held) => Held::Reference(held.clone()),
            // Layers keep the parts.
            Held::Both(a, b) => Held::Both(a.reference(), b.reference()),
            _ => Held::Reference(Arc::downgrade(&self.0)),
        }))
    }

    /// Returns the permit that a reference finds while the call is in flight; any other as it is.
    pub(crate) fn found(self) -> Option<Self> {
        match &*self.0 {
            Held::Reference(held) => held.upgrade().map(Self),
            Held::Both(a, b) => Self::of_both(a.clone().found(), b.clone().found()),
            _ => Some(self),
        }
    }

    /// Creates a permit that holds nothing.
    pub(crate) fn nothing() -> Self {
        static NOTHING: LazyLock<Permit> = LazyLock::new(|| Permit(Arc::new(Held::Nothing)));
        // A clone: what a call holds takes 250 bytes.
        NOTHING.clone()
    }

    /// Returns a permit that holds what both hold.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(Arc::new(Held::Both(self, other)))
    }

    /// Returns the units that are held under the limit of this name, in all.
    pub fn units(&self, policy: &str) -> u64 {
        match &*self.0 {
            Held::Charge { held, .. } if held.limit.policy.name() == policy => held.charge.cost,
            Held::Charge { .. } | Held::Nothing | Held::Reference(_) => 0,
            Held::Both(a, b) => a.units(policy).saturating_add(b.units(policy)),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Self::Charge { layer, held } = self else {
            return;
        };
        if held.is_kept() {
            return;
        }
        let charge = held.charge.duplicate();
        match held.is_over() {
            true => layer.give_back(&held.limit, charge),
            false => layer.release(&held.limit, charge),
        }
    }
}

impl_debug!(Permit);

impl<Rule: Algorithm, S> Limiter<Rule, S>
where
    S: Store<Rule, Error: MayFail> + Send + Sync + 'static,
{
    /// Spends the cost if the rule allows it, and returns a [`Permit`] of what the call holds, or
    /// else the refusal.
    ///
    /// For work that is no request of a layer, such as a connection or a job. Under a rule of a
    /// rate, the permit holds nothing, and the cost stays spent. It waits neither for its
    /// [turn](crate::InFlight#waiting) nor for the delay of a rule that delays, and regards no call
    /// that waits.
    ///
    /// ```
    /// use tollgate::{Cost, InFlight, Limiter, Policy, store::Local};
    ///
    /// let limiter = Limiter::new(Policy::new("jobs"), InFlight::at_most(1), Local::new());
    /// let permit = limiter.permit("alice", Cost::ONE).at_once().unwrap();
    /// assert!(limiter.permit("alice", Cost::ONE).at_once().is_err());
    /// drop(permit);
    /// assert!(limiter.permit("alice", Cost::ONE).at_once().is_ok());
    /// ```
    ///
    /// # Cancellation
    ///
    /// If the future is dropped before a store over a network has answered, that store may have
    /// spent the cost. What a call would hold is given back.
    pub fn permit(
        &self,
        key: impl Into<Key>,
        cost: Cost,
    ) -> Check<LimiterFuture<PermitFuture<Rule, S>>> {
        let mut storage = RequestRule::default();
        let asks = self.ask(&mut storage, key, cost);
        let key = *asks[0].key();
        call(match self.store().acquire(&asks) {
            Check::Ready(answer) => {
                Check::Ready(answer.map(|answer| held(self, key, asks[0].rule(), answer)))
            }
            Check::Pending(answer) => Check::Pending(PermitFuture {
                answer,
                limiter: self.clone(),
                key,
                rule: asks[0].rule().clone(),
            }),
        })
    }
}

impl Plain for Result<Permit, Refused> {
    type Plain = Self;

    fn plain(self) -> Self {
        self
    }
}

/// Returns the permit of an admitted call, or else the refusal.
fn held<Rule: Algorithm, S>(
    limiter: &Limiter<Rule, S>,
    key: Key,
    rule: &Rule,
    mut decisions: Decisions,
) -> Result<Permit, Refused>
where
    S: Store<Rule> + Send + Sync + 'static,
{
    decisions.complete(1);
    if !decisions.is_admitted() {
        let asked = [(limiter.policy(), &key, StateHash::default())];
        let outcome = Outcome::of(asked.into_iter(), &decisions);
        return Err(Refusal::decided(outcome, &decisions).into());
    }
    let held = decisions.only().and_then(Decision::held_charge);
    Ok(match held {
        Some(charge) => {
            let timing = Timing::of(rule, &charge, false);
            // A rule that may change is kept as it decided.
            let changes = limiter.0.rule.fixed().is_none();
            let limit = ChargedLimit {
                policy: limiter.policy().clone(),
                key,
                selected: changes.then(|| Arc::new(rule.clone()) as _),
            };
            Permit::new(limiter.0.clone(), limit, charge, timing)
        }
        None => Permit::nothing(),
    })
}

impl<Rule: Algorithm, S> Release for LimiterParts<Rule, S>
where
    S: Store<Rule> + Send + Sync + 'static,
{
    fn release(&self, limit: &ChargedLimit, charge: Charge) {
        self.give_back(limit, charge);
    }

    fn give_back(&self, limit: &ChargedLimit, charge: Charge) {
        // Remote stores settle in the background, and count what fails.
        let settlement = limit.settlement(|| self.rule.fixed(), charge, 0);
        drop(settlement.map(|settlement| self.store.settle_one(settlement)));
    }

    fn renew(&self, limit: &ChargedLimit, charge: Charge) -> BoxFuture<Renewed> {
        let units = charge.cost;
        match limit.settlement(|| self.rule.fixed(), charge, units) {
            Some(renewal) => self.store.renew(renewal),
            None => Box::pin(ready(Renewed::NotMade)),
        }
    }

    /// A limiter has no observer.
    fn outlasted(&self, _: &ChargedLimit, _: u64) {}
}

pin_project! {
    /// The future of [`Limiter::permit`].
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct PermitFuture<Rule, S>
    where
        S: Store<Rule>,
    {
        #[pin]
        answer: S::Answer,
        limiter: Limiter<Rule, S>,
        key: Key,
        rule: Rule,
    }
}

impl<Rule: Algorithm, S> Future for PermitFuture<Rule, S>
where
    S: Store<Rule> + Send + Sync + 'static,
{
    type Output = Result<Result<Permit, Refused>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = task::ready!(this.answer.poll(cx));
        Poll::Ready(answer.map(|answer| held(this.limiter, *this.key, this.rule, answer)))
    }
}

impl<Rule: Algorithm, S> NeverWaits for PermitFuture<Rule, S>
where
    S: Store<Rule, Answer: NeverWaits> + Send + Sync + 'static,
{
    fn at_once(self) -> Self::Output {
        let answer = self.answer.at_once();
        answer.map(|answer| held(&self.limiter, self.key, &self.rule, answer))
    }
}

impl_debug!([Rule, S: Store<Rule>] PermitFuture<Rule, S>);
