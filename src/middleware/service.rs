//! The service: decides in `call`.

use std::{
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    future::{Parked, ResponseFuture},
    limit::Limits,
    pending::Delayed,
};
use crate::{
    decision::Decision,
    outcome::Outcome,
    respond::{Refusal, Respond},
    store::{Ask, Check, Decisions, NeverFails, Store},
};

/// Limits the rate of an inner service; made by a [`RateLimitLayer`](crate::RateLimitLayer).
pub struct RateLimit<Svc, L, S, R> {
    inner: Svc,
    config: Arc<Config<L, S, R>>,
}

/// What all clones of a service share.
pub(crate) struct Config<L, S, R> {
    pub(crate) limits: L,
    pub(crate) store: S,
    pub(crate) respond: R,
    pub(crate) counts: Arc<Counts>,
}

/// What a layer counts, of all its services together.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) cancelled: AtomicU64,
    pub(crate) misconfigured: AtomicU64,
}

impl<Svc, L, S, R> RateLimit<Svc, L, S, R> {
    pub(crate) fn new(inner: Svc, config: Arc<Config<L, S, R>>) -> Self {
        Self { inner, config }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &Svc {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut Svc {
        &mut self.inner
    }

    /// The inner service alone.
    pub fn into_inner(self) -> Svc {
        self.inner
    }
}

impl<Svc: Clone, L, S, R> Clone for RateLimit<Svc, L, S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            config: Arc::clone(&self.config),
        }
    }
}

impl<Svc: fmt::Debug, L, S, R> fmt::Debug for RateLimit<Svc, L, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<Svc, Req, L, S, R> Service<Req> for RateLimit<Svc, L, S, R>
where
    Svc: Service<Req> + Clone,
    L: Limits<Req, Rule: Clone>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    type Response = Svc::Response;
    type Error = Svc::Error;
    type Future = ResponseFuture<Svc, Req, L, S, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut req: Req) -> Self::Future {
        let Self { inner, config } = self;
        let mut made = L::Made::default();
        let asks = match config.limits.asks(&req, &mut made) {
            Ok(asks) => asks,
            Err(missing) => {
                drop(take_ready(inner));
                let refusal = Refusal::missing(missing);
                return ResponseFuture::answered(config.refuse(req, refusal));
            }
        };
        if asks.is_empty() {
            // An exemption is an outcome, too. There is nothing to mark the response with.
            drop(config.admit(&mut req, Outcome::new));
            return ResponseFuture::calling(inner.call(req), None);
        }
        let decisions = match config.store.acquire(&asks) {
            Check::Ready(answer) => answer.unwrap_or_else(NeverFails::never),
            Check::Pending(check) => {
                let parked = Parked::new(take_ready(inner), req, config, &asks);
                return ResponseFuture::checking(check, parked);
            }
        };
        match Disposition::of(&decisions) {
            Disposition::Pass => {
                let mark = config.admit(&mut req, || outcome(&asks, decisions));
                ResponseFuture::calling(inner.call(req), mark)
            }
            Disposition::Refuse => {
                drop(take_ready(inner));
                let refusal = Refusal::new(outcome(&asks, decisions));
                ResponseFuture::answered(config.refuse(req, refusal))
            }
            Disposition::Wait => {
                drop(take_ready(inner));
                let parked = Parked::new(inner.clone(), req, config, &asks);
                Delayed::start(parked, decisions)
            }
        }
    }
}

/// The instance that `poll_ready` made ready; a fresh clone stays behind.
fn take_ready<Svc: Clone>(inner: &mut Svc) -> Svc {
    let fresh = inner.clone();
    mem::replace(inner, fresh)
}

/// What becomes of a request.
pub(crate) enum Disposition {
    Pass,
    Refuse,
    Wait,
}

impl Disposition {
    #[inline]
    pub(crate) fn of(decisions: &Decisions) -> Self {
        if let Some(decision) = decisions.only() {
            return Self::after(decision);
        }
        let mut way = Self::Pass;
        for decision in decisions.as_slice() {
            match Self::after(decision) {
                Self::Pass => {}
                Self::Wait => way = Self::Wait,
                Self::Refuse => return Self::Refuse,
            }
        }
        way
    }

    #[inline]
    fn after(decision: &Decision) -> Self {
        if !decision.is_admitted() {
            Self::Refuse
        } else if decision.delay().is_some() {
            Self::Wait
        } else {
            Self::Pass
        }
    }
}

// Takes the decisions themselves, and apart: where nobody wants the outcome, they need not lie in memory.
#[inline(never)]
fn outcome<Rule>(asks: &[Ask<'_, Rule>], decisions: Decisions) -> Outcome {
    Outcome::of(asks.iter().map(|ask| (ask.policy(), ask.key())), &decisions)
}

impl<L, S, R> Config<L, S, R> {
    /// Tells an admitted request of its outcome, if anybody wants to hear it.
    #[inline]
    pub(crate) fn admit<Req, Res, Err>(
        &self,
        req: &mut Req,
        outcome: impl FnOnce() -> Outcome,
    ) -> Option<R::Mark>
    where
        R: Respond<Req, Res, Err>,
    {
        let wanted = self.respond.wants_outcome();
        wanted.then(|| self.respond.admit(req, outcome()))
    }

    /// Answers a request that does not go on, and counts it where that is the server's fault.
    #[inline]
    pub(crate) fn refuse<Req, Res, Err>(&self, req: Req, refusal: Refusal) -> Result<Res, Err>
    where
        R: Respond<Req, Res, Err>,
    {
        if refusal.help().is_some() {
            // A count that is read for a report orders nothing.
            self.counts.misconfigured.fetch_add(1, Ordering::Relaxed);
        }
        self.respond.refuse(req, refusal)
    }
}
