//! The service: it decides in `call`.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    config::Config, disposition::Disposition, future::ResponseFuture, limits::Limits,
    pending::PendingCall,
};
use crate::{
    outcome::Outcome,
    respond::{Refusal, Respond},
    store::{Ask, Check, Decisions, NeverFails, Store},
};

/// Limits the rate of requests to an inner service. Made by a [`RateLimitLayer`](crate::RateLimitLayer).
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
        let mut selected = L::Selected::default();
        let mut asks = L::Asks::default();
        if let Err(missing) = config.limits.add_asks(&req, &mut selected, &mut asks) {
            drop(take_ready(inner));
            let refusal = Refusal::missing(missing);
            return ResponseFuture::answered(config.refuse(req, refusal));
        }
        if asks.is_empty() {
            // An exemption is an outcome, too. Its response gets no annotation.
            drop(config.admit(&mut req, Outcome::new));
            return ResponseFuture::calling(inner.call(req), None);
        }
        match config.store.acquire(&asks) {
            // By reference, because a decision is long to move.
            Check::Ready(Ok(ref decisions)) => match Disposition::of(decisions) {
                Disposition::Pass => {
                    let annotation = config.admit(&mut req, || outcome(&asks, decisions));
                    ResponseFuture::calling(inner.call(req), annotation)
                }
                Disposition::Refuse => {
                    drop(take_ready(inner));
                    let refusal = Refusal::decided(outcome(&asks, decisions), decisions);
                    ResponseFuture::answered(config.refuse(req, refusal))
                }
                Disposition::Delay => {
                    drop(take_ready(inner));
                    let call = (inner.clone(), req);
                    match PendingCall::delayed(call, config, &asks, decisions.clone()) {
                        Ok(call) => ResponseFuture::pending(call),
                        Err(answer) => ResponseFuture::answered(answer),
                    }
                }
            },
            Check::Ready(Err(error)) => error.never(),
            Check::Pending(answer) => {
                let call = (take_ready(inner), req);
                ResponseFuture::pending(PendingCall::asking(call, config, &asks, answer))
            }
        }
    }
}

/// Takes the instance that `poll_ready` made ready, and leaves a fresh clone behind.
fn take_ready<Svc: Clone>(inner: &mut Svc) -> Svc {
    let fresh = inner.clone();
    mem::replace(inner, fresh)
}

#[inline(never)]
fn outcome<Rule>(asks: &[Ask<'_, Rule>], decisions: &Decisions) -> Outcome {
    Outcome::of(asks.iter().map(|ask| (ask.policy(), ask.key())), decisions)
}
