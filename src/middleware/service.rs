//! The service: it decides in `call`.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    asking::Asked,
    config::{Config, Disposition, Role},
    future::ResponseFuture,
    limits::AskEach,
    pending::PendingCall,
    settle::SettleLater,
    turn::{Begun, Turn},
};
use crate::{
    outcome::Outcome,
    permit::Permit,
    respond::{Refusal, Respond},
    store::{Decisions, NeverFails, Store},
};

/// Limits the rate of requests to an inner service. Made by a
/// [`RateLimitLayer`](crate::RateLimitLayer).
///
/// Clones share one budget.
///
/// ```
/// use tollgate::{RateLimit, RateLimitLayer, TokenBucket};
/// use tower::Layer;
///
/// let service = RateLimitLayer::new(TokenBucket::per_second(10)).layer("the inner service");
/// assert_eq!(service.get_ref(), &"the inner service");
/// # let _: RateLimit<_, _, _, _> = service;
/// ```
#[must_use = "services do nothing unless called"]
pub struct RateLimit<Svc, L, S, R> {
    inner: Svc,
    config: Arc<Config<L, S, R>>,
}

impl<Svc, L, S, R> RateLimit<Svc, L, S, R> {
    pub(super) fn new(inner: Svc, config: Arc<Config<L, S, R>>) -> Self {
        Self { inner, config }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &Svc {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut Svc {
        &mut self.inner
    }

    /// Returns the inner service, without the limits.
    pub fn into_inner(self) -> Svc {
        self.inner
    }
}

impl_clone!([Svc: Clone, L, S, R] RateLimit<Svc, L, S, R>, { inner, config });

impl_debug!([Svc: std::fmt::Debug, L, S, R] RateLimit<Svc, L, S, R>, |it| inner = it.inner);

impl<Svc, Req, L, S, R> Service<Req> for RateLimit<Svc, L, S, R>
where
    Svc: Service<Req> + Clone,
    L: AskEach<Req, Rule: Clone>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Svc::Response, Svc::Error>,
    L::Settle: SettleLater<Req, Svc::Response, Svc::Error, L, S, R>,
{
    type Response = Svc::Response;
    type Error = Svc::Error;
    type Future = ResponseFuture<Svc, Req, L, S, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, req: Req) -> Self::Future {
        ResponseFuture::decide(&mut self.inner, &self.config, req)
    }
}

/// The parts of a call. All but the shortest path are functions of their own, which keeps decisions
/// on that path in registers.
impl<Svc, Req, L, S, R> ResponseFuture<Svc, Req, L, S, R>
where
    Svc: Service<Req> + Clone,
    L: AskEach<Req, Rule: Clone>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Svc::Response, Svc::Error>,
    L::Settle: SettleLater<Req, Svc::Response, Svc::Error, L, S, R>,
{
    /// Decides a request by some limits.
    // Only inlined code sees the request while its key is at hand: a request whose address was
    // passed on is copied once more.
    #[inline(always)]
    pub(crate) fn decide(inner: &mut Svc, config: &Arc<Config<L, S, R>>, req: Req) -> Self {
        let mut rules = L::Rules::default();
        let mut asks = L::Asks::default();
        let limits = &config.limits;
        if limits.add_asks_at_hand(&req, &mut rules, &mut asks) {
            Self::ask(inner, config, req, asks)
        } else {
            Self::extract_and_ask(inner, config, req)
        }
    }

    /// Extracts the keys of a request, and asks the store.
    #[inline(never)]
    fn extract_and_ask(inner: &mut Svc, config: &Arc<Config<L, S, R>>, mut req: Req) -> Self {
        let mut rules = L::Rules::default();
        let mut asks = L::Asks::default();
        if let Err(missing) = config.limits.add_asks(&req, &mut rules, &mut asks) {
            drop(take_ready(inner));
            if let Some(observer) = &config.observer {
                observer.missing_key(&missing);
            }
            let refusal = Refusal::missing(missing);
            return Self::answered(config.refuse(req, refusal));
        }
        if asks.is_empty() {
            if let Some(observer) = &config.observer {
                observer.exempt();
            }
            // An exemption is an outcome, too. Its response gets no annotation.
            drop(config.admit(&mut req, &asks, &Decisions::default()));
            return Self::calling(inner.call(req), None, None, None);
        }
        Self::ask(inner, config, req, asks)
    }

    /// Asks the store, and continues with its answer.
    #[inline(always)]
    fn ask(inner: &mut Svc, config: &Arc<Config<L, S, R>>, req: Req, asks: L::Asks<'_>) -> Self {
        if let Some(turn) = Turn::new(config, &asks) {
            Self::ask_in_turn(inner, config, req, asks, turn)
        } else if config.is_plain {
            Self::ask_by::<true>(inner, config, req, asks, None)
        } else {
            Self::ask_long(inner, config, req, asks)
        }
    }

    #[inline(never)]
    fn ask_long(
        inner: &mut Svc,
        config: &Arc<Config<L, S, R>>,
        req: Req,
        asks: L::Asks<'_>,
    ) -> Self {
        Self::ask_by::<false>(inner, config, req, asks, None)
    }

    /// Asks the store about a call that may wait for its turn.
    #[inline(never)]
    fn ask_in_turn(
        inner: &mut Svc,
        config: &Arc<Config<L, S, R>>,
        req: Req,
        asks: L::Asks<'_>,
        mut turn: Turn,
    ) -> Self {
        match config.begin_turn(&mut turn, &asks) {
            Begun::Decided(decisions) => {
                Self::ask_by::<false>(inner, config, req, asks, Some(decisions))
            }
            Begun::Asking(answer) => {
                let call = (take_ready(inner), req);
                Self::pending(PendingCall::asking(call, config, &asks, answer, Some(turn)))
            }
            Begun::Waiting => {
                drop(take_ready(inner));
                let call = (inner.clone(), req);
                Self::pending(PendingCall::waiting(call, config, &asks, turn))
            }
        }
    }

    /// Asks, unless the store has `decided`. The short path is `PLAIN`: limits which charge at once
    /// and decide together, without an observer.
    #[inline(always)]
    fn ask_by<const PLAIN: bool>(
        inner: &mut Svc,
        config: &Arc<Config<L, S, R>>,
        req: Req,
        asks: L::Asks<'_>,
        decided: Option<Decisions>,
    ) -> Self {
        let settles = !PLAIN && config.settles;
        let is_separate = !PLAIN && config.is_separate;
        let answer = if let Some(decisions) = decided {
            Asked::Decided(decisions)
        } else if is_separate {
            config.ask_by_role(&asks)
        } else {
            config.ask_merged(&asks, Role::Acquire)
        };
        let decisions = match answer {
            Asked::Decided(decisions) => decisions,
            Asked::Pending(answer) => {
                let call = (take_ready(inner), req);
                return Self::pending(PendingCall::asking(call, config, &asks, answer, None));
            }
        };
        // First of all, so that it is given back whatever happens.
        let permit = L::Settle::hold(config, &asks, &decisions);
        if !PLAIN {
            config.observe(&asks, &decisions);
        }
        let same_state = &config.same_state;
        same_state.register(&config.limits, &asks);
        match Disposition::of(&decisions) {
            Disposition::Pass => {
                if permit.is_some() {
                    return Self::admit(inner, config, req, asks, decisions, permit);
                }
                if !settles && !config.respond.wants_outcome() {
                    return Self::calling(inner.call(req), None, None, None);
                }
                if settles || is_separate {
                    return Self::admit(inner, config, req, asks, decisions, None);
                }
                let ([ask], Some(decision)) = (&*asks, decisions.only()) else {
                    return Self::admit(inner, config, req, asks, decisions, None);
                };
                // A copy of the key, so that the ask can stay in registers.
                config.note_outer(&req, &asks);
                let (policy, key) = (ask.policy(), *ask.key());
                let state = same_state.hash(policy, &key, ask.rule());
                let outcome = Outcome::one(policy, &key, state, decision);
                // Bound again: a parameter that is borrowed would be copied on the other paths,
                // too.
                let mut req = req;
                let annotation = config.respond.admit(&mut req, outcome);
                Self::calling(inner.call(req), Some(annotation), None, None)
            }
            Disposition::Refuse => Self::refuse(inner, config, req, asks, decisions),
            Disposition::Delay => Self::delay(inner, config, req, asks, decisions, permit),
        }
    }

    /// Calls the inner service, and holds what the response may settle.
    #[inline(never)]
    fn admit(
        inner: &mut Svc,
        config: &Arc<Config<L, S, R>>,
        mut req: Req,
        asks: L::Asks<'_>,
        decisions: Decisions,
        permit: Option<Permit>,
    ) -> Self {
        let annotation = config.admit(&mut req, &asks, &decisions);
        let pending = L::Settle::pending(config, &mut req, &asks, &decisions, true);
        if let Some(permit) = &permit {
            config.respond.carry_permit(&mut req, permit);
        }
        Self::calling(inner.call(req), annotation, pending, permit)
    }

    /// Answers a refused request.
    #[inline(never)]
    fn refuse(
        inner: &mut Svc,
        config: &Arc<Config<L, S, R>>,
        req: Req,
        asks: L::Asks<'_>,
        decisions: Decisions,
    ) -> Self {
        drop(take_ready(inner));
        Self::answered(config.refuse_decided(req, &asks, &decisions))
    }

    /// Begins the delay of a request.
    #[inline(never)]
    fn delay(
        inner: &mut Svc,
        config: &Arc<Config<L, S, R>>,
        req: Req,
        asks: L::Asks<'_>,
        decisions: Decisions,
        permit: Option<Permit>,
    ) -> Self {
        drop(take_ready(inner));
        let call = (inner.clone(), req);
        match PendingCall::delayed(call, config, &asks, decisions, permit) {
            Ok(call) => Self::pending(call),
            Err(answer) => Self::answered(answer),
        }
    }
}

/// Takes the instance that `poll_ready` made ready, and leaves a fresh clone behind.
fn take_ready<Svc: Clone>(inner: &mut Svc) -> Svc {
    let fresh = inner.clone();
    mem::replace(inner, fresh)
}
