//! The future of a limited response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    limits::AskEach,
    pending::{BoxedCall, Resumed, taken},
    settle::{PendingSettlement, SettleLater},
};
use crate::{
    permit::Permit,
    respond::Respond,
    store::{NeverFails, Store},
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
    if let Some(settlement) = pending {
        let polled = settlement.poll(future, annotation, cx);
        if polled.is_ready() {
            // Charges now what has no response, although the finished future may be kept.
            *pending = None;
        }
        return polled;
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

/// Waits for the response, annotates it, and hands the permit over to it. An error gives the permit
/// back.
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
    if let Poll::Ready(result) = &mut polled
        && let Some(permit) = permit.take()
        && let Ok(response) = result
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
