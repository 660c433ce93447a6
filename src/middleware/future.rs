//! The future of a limited response, and the call that waits: for the store's answer, for its
//! delay, or for the inner service.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
#[cfg(feature = "tokio")]
use tokio::time::Sleep;
use tower_service::Service;

use super::{
    asking::Asking,
    config::{Config, Disposition},
    limits::AskEach,
    settle::{PendingSettlement, SettleLater, settle_back},
};
use crate::{
    decision::Decision,
    permit::Permit,
    respond::{Refusal, Respond},
    store::{Ask, Decisions, NeverFails, OwnedAsks, Store},
    trace::DecisionSpan,
};

pin_project! {
    /// The future of a [`RateLimit`](crate::RateLimit) service's response.
    ///
    /// A store in memory has decided before this future exists, without an allocation. While a
    /// store answers over a network, or a request is delayed, the request is kept in a box. So are
    /// the charges that the response settles.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use std::convert::Infallible;
    /// use tollgate::{RateLimitLayer, TokenBucket, future::ResponseFuture};
    /// use tower::{Layer, Service, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let inner = service_fn(async |_: Request<()>| {
    ///     Ok::<_, Infallible>(Response::new(String::from("hello")))
    /// });
    /// let mut service = RateLimitLayer::new(TokenBucket::per_minute(1)).layer(inner);
    ///
    /// let future: ResponseFuture<_, _, _, _, _> = service.call(Request::new(()));
    /// assert_eq!(future.await?.body(), "hello");
    /// # Ok(()) }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<Svc, Req, L, S, R>
    where
        Svc: Service<Req>,
        L: AskEach<Req>,
        S: Store<L::Rule>,
        R: Respond<Req, Svc::Response, Svc::Error>,
    {
        #[pin]
        state: State<Svc, Req, L, S, R>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<Svc, Req, L, S, R>
    where
        Svc: Service<Req>,
        L: AskEach<Req>,
        S: Store<L::Rule>,
        R: Respond<Req, Svc::Response, Svc::Error>,
    {
        Calling {
            #[pin]
            future: Svc::Future,
            annotation: Option<R::Annotation>,
            pending: PendingSettlement<Svc::Response, Svc::Error, R::Annotation>,
            // The last field, so that the call is dropped before it.
            permit: Option<Permit>,
        },
        Answered { answer: Option<Result<Svc::Response, Svc::Error>> },
        Pending { call: BoxedCall<Svc, Req, L, S, R> },
    }
}

impl<Svc, Req, L, S, R> ResponseFuture<Svc, Req, L, S, R>
where
    Svc: Service<Req>,
    L: AskEach<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    #[inline]
    pub(super) fn calling(
        future: Svc::Future,
        annotation: Option<R::Annotation>,
        pending: PendingSettlement<Svc::Response, Svc::Error, R::Annotation>,
        permit: Option<Permit>,
    ) -> Self {
        let state = State::Calling {
            future,
            annotation,
            pending,
            permit,
        };
        Self { state }
    }

    pub(super) fn answered(answer: Result<Svc::Response, Svc::Error>) -> Self {
        let answer = Some(answer);
        let state = State::Answered { answer };
        Self { state }
    }

    pub(super) fn pending(call: BoxedCall<Svc, Req, L, S, R>) -> Self {
        let state = State::Pending { call };
        Self { state }
    }
}

impl<Svc, Req, L, S, R> Future for ResponseFuture<Svc, Req, L, S, R>
where
    Svc: Service<Req> + Clone,
    L: AskEach<Req, Rule: Clone>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Svc::Response, Svc::Error>,
    L::Settle: SettleLater<Req, Svc::Response, Svc::Error, L, S, R>,
{
    type Output = Result<Svc::Response, Svc::Error>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project().state.project() {
                StateProj::Calling {
                    future,
                    annotation,
                    pending,
                    permit,
                } => {
                    return match permit {
                        None => respond::<Svc, Req, R>(pending, future, annotation, cx),
                        held => respond_and_release::<Svc, Req, R>(
                            pending, future, annotation, held, cx,
                        ),
                    };
                }
                StateProj::Answered { answer } => return Poll::Ready(taken(answer)),
                StateProj::Pending { call } => ready!(call.as_mut().poll(cx)),
            };
            let next = match next {
                Resumed::Called {
                    future,
                    annotation,
                    pending,
                    permit,
                } => Self::calling(future, annotation, pending, permit),
                Resumed::Answered(answer) => Self::answered(answer),
            };
            self.as_mut().project().state.set(next.state);
        }
    }
}

/// Waits for the response, and annotates it.
#[inline(always)]
fn respond<Svc, Req, R>(
    pending: &mut PendingSettlement<Svc::Response, Svc::Error, R::Annotation>,
    future: Pin<&mut Svc::Future>,
    annotation: &mut Option<R::Annotation>,
    cx: &mut Context<'_>,
) -> Poll<Result<Svc::Response, Svc::Error>>
where
    Svc: Service<Req>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    if let Some(pending) = pending {
        return pending.poll(future, annotation, cx);
    }
    // A response is long to move: without an annotation it goes straight to the caller.
    if annotation.is_none() {
        return future.poll(cx);
    }
    let mut polled = future.poll(cx);
    if let Poll::Ready(Ok(response)) = &mut polled
        && let Some(annotation) = annotation.take()
    {
        R::annotate(annotation, response);
    }
    polled
}

/// Waits for the response, annotates it, and hands the permit over to it.
// Apart, to keep permits out of the path of calls that hold none.
#[inline(never)]
fn respond_and_release<Svc, Req, R>(
    pending: &mut PendingSettlement<Svc::Response, Svc::Error, R::Annotation>,
    future: Pin<&mut Svc::Future>,
    annotation: &mut Option<R::Annotation>,
    permit: &mut Option<Permit>,
    cx: &mut Context<'_>,
) -> Poll<Result<Svc::Response, Svc::Error>>
where
    Svc: Service<Req>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    // In place, because a response is long to move.
    let mut polled = respond::<Svc, Req, R>(pending, future, annotation, cx);
    if let Poll::Ready(Ok(response)) = &mut polled
        && let Some(permit) = permit.take()
    {
        R::attach_permit(permit, response);
    }
    polled
}

impl<Svc, Req, L, S, R> fmt::Debug for ResponseFuture<Svc, Req, L, S, R>
where
    Svc: Service<Req>,
    L: AskEach<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// Without the feature `tokio` nothing can wait.
#[cfg(not(feature = "tokio"))]
type Sleep = crate::store::Never<()>;

pin_project! {
    /// A request that waits, with everything it needs to continue.
    ///
    /// Boxed, so that the future of a request that does not wait stays small. Dropped while it is
    /// delayed, it gives its charges back.
    pub(super) struct PendingCall<Svc, Req, L, S, R>
    where
        Svc: Service<Req>,
        L: AskEach<Req>,
        S: Store<L::Rule>,
        R: Respond<Req, Svc::Response, Svc::Error>,
    {
        // `None` once the request has left: to the inner service, or refused.
        call: Option<(Svc, Req)>,
        config: Arc<Config<L, S, R>>,
        asks: OwnedAsks<L::Rule>,
        // Set if the store answered at once.
        at_once: bool,
        #[pin]
        stage: Stage<S::Answer, R::Annotation>,
    }

    impl<Svc, Req, L, S, R> PinnedDrop for PendingCall<Svc, Req, L, S, R>
    where
        Svc: Service<Req>,
        L: AskEach<Req>,
        S: Store<L::Rule>,
        R: Respond<Req, Svc::Response, Svc::Error>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            match (this.call, this.stage.project()) {
                (Some(_), StageProj::Delayed { decisions, .. }) => {
                    this.config.counts.count_cancelled();
                    settle_back(this.config, this.asks, decisions);
                }
                (Some(_), StageProj::Asking { answer, .. }) => {
                    answer.give_back(&this.config.store, this.asks);
                }
                _ => {}
            }
        }
    }
}

pin_project! {
    #[project = StageProj]
    enum Stage<Answer, Annotation> {
        /// The store has decided, and no delay has begun.
        Decided,
        /// The store has been asked.
        Asking { #[pin] answer: Asking<Answer>, span: DecisionSpan },
        /// The request is charged. `sleep` is `None` once the delay is over; then the inner service
        /// must become ready.
        Delayed {
            #[pin]
            sleep: Option<Sleep>,
            decisions: Decisions,
            annotation: Option<Annotation>,
            permit: Option<Permit>,
        },
    }
}

/// A waiting call in its box.
pub(super) type BoxedCall<Svc, Req, L, S, R> = Pin<Box<PendingCall<Svc, Req, L, S, R>>>;

/// The end of the wait.
pub(super) enum Resumed<Svc, Req, R>
where
    Svc: Service<Req>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    Called {
        future: Svc::Future,
        annotation: Option<R::Annotation>,
        pending: PendingSettlement<Svc::Response, Svc::Error, R::Annotation>,
        permit: Option<Permit>,
    },
    Answered(Answer<Svc, Req>),
}

/// The answer to a request that the inner service did not get.
type Answer<Svc, Req> = Result<<Svc as Service<Req>>::Response, <Svc as Service<Req>>::Error>;

impl<Svc, Req, L, S, R> PendingCall<Svc, Req, L, S, R>
where
    Svc: Service<Req> + Clone,
    L: AskEach<Req, Rule: Clone>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Svc::Response, Svc::Error>,
    L::Settle: SettleLater<Req, Svc::Response, Svc::Error, L, S, R>,
{
    /// Returns a call that waits for the store's answer. `call` holds the instance that is ready.
    pub(super) fn asking(
        call: (Svc, Req),
        config: &Arc<Config<L, S, R>>,
        asks: &[Ask<'_, L::Rule>],
        answer: Asking<S::Answer>,
    ) -> Pin<Box<Self>> {
        let span = DecisionSpan::new(asks, &config.store);
        Self::new(call, config, asks, false, Stage::Asking { answer, span })
    }

    /// Returns a call that waits for its turn. `call` holds a fresh clone of the inner service.
    ///
    /// # Errors
    ///
    /// The answer to a request that nothing can delay.
    pub(super) fn delayed(
        call: (Svc, Req),
        config: &Arc<Config<L, S, R>>,
        asks: &[Ask<'_, L::Rule>],
        decisions: Decisions,
        permit: Option<Permit>,
    ) -> Result<Pin<Box<Self>>, Answer<Svc, Req>> {
        let mut pending = Self::new(call, config, asks, true, Stage::Decided);
        pending.as_mut().delay(decisions, permit)?;
        Ok(pending)
    }

    fn new(
        call: (Svc, Req),
        config: &Arc<Config<L, S, R>>,
        asks: &[Ask<'_, L::Rule>],
        at_once: bool,
        stage: Stage<S::Answer, R::Annotation>,
    ) -> Pin<Box<Self>> {
        Box::pin(Self {
            call: Some(call),
            config: Arc::clone(config),
            asks: OwnedAsks::new(asks),
            at_once,
            stage,
        })
    }

    /// Waits until the inner service was called, or the request is answered without it.
    ///
    /// # Panics
    ///
    /// When polled again after it was ready.
    pub(super) fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Resumed<Svc, Req, R>> {
        let mut this = self.as_mut().project();
        if let StageProj::Asking { answer, span } = this.stage.as_mut().project() {
            let poll = || answer.poll(cx, &this.config.store, this.asks);
            let decisions = ready!(span.in_scope(poll));
            // Closes the span.
            this.stage.set(Stage::Decided);
            // First of all, so that it is given back whatever happens.
            let permit = L::Settle::hold(this.config, &this.asks.to_list(), &decisions);
            this.config.observe(this.asks.parts(), &decisions);
            let Config {
                limits, same_state, ..
            } = &**this.config;
            same_state.register(limits, this.asks.parts());
            if let Some(resumed) = self.as_mut().decide(decisions, permit) {
                return Poll::Ready(resumed);
            }
        }
        self.poll_turn(cx)
    }

    /// Continues with the store's decisions; returns `None` if they delay the request.
    fn decide(
        mut self: Pin<&mut Self>,
        decisions: Decisions,
        permit: Option<Permit>,
    ) -> Option<Resumed<Svc, Req, R>> {
        let this = self.as_mut().project();
        match Disposition::of(&decisions) {
            Disposition::Pass => {
                let (mut service, mut req) = taken(this.call);
                let annotation = this.config.admit(&mut req, this.asks.parts(), || {
                    this.config.outcome(this.asks.parts(), &decisions)
                });
                let (config, asks) = (this.config, this.asks.to_list());
                let pending =
                    L::Settle::pending(config, &mut req, &asks, &decisions, *this.at_once);
                if let Some(permit) = &permit {
                    config.respond.carry_permit(&mut req, permit);
                }
                let future = service.call(req);
                Some(Resumed::Called {
                    future,
                    annotation,
                    pending,
                    permit,
                })
            }
            Disposition::Refuse => {
                let (service, req) = taken(this.call);
                drop(service);
                let asked = this.asks.parts();
                let answer = this.config.refuse_decided(req, asked, &decisions);
                Some(Resumed::Answered(answer))
            }
            Disposition::Delay => {
                if let Some((service, _)) = this.call {
                    // The delay must not hold capacity of the instance that is ready.
                    *service = service.clone();
                }
                self.delay(decisions, permit).err().map(Resumed::Answered)
            }
        }
    }

    /// Begins the longest delay of the decisions.
    ///
    /// # Errors
    ///
    /// The answer to a request that nothing can delay: without the feature `tokio`, and outside of
    /// a runtime of tokio. Without the feature only rules get here that were selected for the
    /// request, or do not report that they may delay. Any other is refused when its limit is built.
    fn delay(
        self: Pin<&mut Self>,
        decisions: Decisions,
        permit: Option<Permit>,
    ) -> Result<(), Answer<Svc, Req>> {
        let mut this = self.project();
        let delay = decisions
            .as_slice()
            .iter()
            .filter_map(Decision::delay)
            .max();
        let Some(sleep) = sleep(delay.unwrap_or_default()) else {
            let (service, req) = taken(this.call);
            drop(service);
            settle_back(this.config, this.asks, &decisions);
            this.config.counts.count_misconfigured();
            #[cfg(feature = "tracing")]
            this.asks
                .parts()
                .for_each(|(policy, ..)| crate::log::nothing_can_wait(policy));
            let decisions = decisions.as_slice().iter();
            let refused = decisions.map(|decision| decision.without_delay()).collect();
            let outcome = this.config.outcome(this.asks.parts(), &refused);
            let refusal = Refusal::decided(outcome, &refused);
            return Err(this.config.respond.refuse(req, refusal));
        };
        let annotation = this.call.as_mut().and_then(|(_, req)| {
            this.config.admit(req, this.asks.parts(), || {
                this.config.outcome(this.asks.parts(), &decisions)
            })
        });
        this.stage.set(Stage::Delayed {
            sleep: Some(sleep),
            decisions,
            annotation,
            permit,
        });
        Ok(())
    }

    /// Waits for the end of the delay, and then for the inner service to be ready.
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Resumed<Svc, Req, R>> {
        let mut this = self.project();
        let StageProj::Delayed {
            mut sleep,
            annotation,
            decisions,
            permit,
        } = this.stage.as_mut().project()
        else {
            polled_again();
        };
        if let Some(delay) = sleep.as_mut().as_pin_mut() {
            ready!(delay.poll(cx));
            sleep.set(None);
        }
        let Some((service, _)) = this.call else {
            polled_again();
        };
        if let Err(error) = ready!(service.poll_ready(cx)) {
            return Poll::Ready(Resumed::Answered(Err(error)));
        }
        let annotation = annotation.take();
        let (mut service, mut req) = taken(this.call);
        let (config, asks) = (this.config, this.asks.to_list());
        let pending = L::Settle::pending(config, &mut req, &asks, decisions, *this.at_once);
        let permit = permit.take();
        if let Some(permit) = &permit {
            config.respond.carry_permit(&mut req, permit);
        }
        let future = service.call(req);
        Poll::Ready(Resumed::Called {
            future,
            annotation,
            pending,
            permit,
        })
    }
}

/// Starts a delay; returns `None` if nothing can wait.
#[cfg(feature = "tokio")]
fn sleep(delay: Duration) -> Option<Sleep> {
    // Outside of a runtime, tokio would panic.
    let _runtime = tokio::runtime::Handle::try_current().ok()?;
    Some(tokio::time::sleep(delay))
}

#[cfg(not(feature = "tokio"))]
fn sleep(_: Duration) -> Option<Sleep> {
    None
}

/// Takes a value that is there once.
///
/// # Panics
///
/// When it was taken before.
pub(super) fn taken<T>(once: &mut Option<T>) -> T {
    once.take().unwrap_or_else(|| polled_again())
}

fn polled_again() -> ! {
    panic!("`ResponseFuture` polled after it was ready")
}
