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
    kept::{Keep, Kept},
    limits::Limits,
    pending::{BoxedCall, Resumed, taken},
};
use crate::{
    observe::Observer,
    respond::Respond,
    store::{NeverFails, Store},
};

pin_project! {
    /// The future of a [`RateLimit`](crate::RateLimit) service's response.
    ///
    /// A store in memory has decided before this future exists, without an allocation. While a
    /// store answers over a network, or a request is delayed, the request is kept in a box.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use std::convert::Infallible;
    /// use tollgate::{RateLimitLayer, ResponseFuture, TokenBucket};
    /// use tower::{Layer, Service, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::from("hello"))));
    /// let mut service = RateLimitLayer::new(TokenBucket::per_minute(1)).layer(inner);
    ///
    /// let future: ResponseFuture<_, _, _, _, _, _> = service.call(Request::new(()));
    /// assert_eq!(future.await?.body(), "hello");
    /// # Ok(()) }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<Svc, Req, L, S, R, O>
    where
        Svc: Service<Req>,
        L: Limits<Req>,
        S: Store<L::Rule>,
        R: Respond<Req, Svc::Response, Svc::Error>,
        O: Observer,
        L::Keeps: Keep<Req, Svc::Response, Svc::Error, L, S, R, O>,
    {
        #[pin]
        state: State<Svc, Req, L, S, R, O>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<Svc, Req, L, S, R, O>
    where
        Svc: Service<Req>,
        L: Limits<Req>,
        S: Store<L::Rule>,
        R: Respond<Req, Svc::Response, Svc::Error>,
        O: Observer,
        L::Keeps: Keep<Req, Svc::Response, Svc::Error, L, S, R, O>,
    {
        Calling {
            #[pin]
            future: Svc::Future,
            annotation: Option<R::Annotation>,
            #[pin]
            kept: Kept<Req, Svc::Response, Svc::Error, L, S, R, O>,
        },
        Answered { answer: Option<Result<Svc::Response, Svc::Error>> },
        Pending { call: BoxedCall<Svc, Req, L, S, R, O> },
    }
}

impl<Svc, Req, L, S, R, O> ResponseFuture<Svc, Req, L, S, R, O>
where
    Svc: Service<Req>,
    L: Limits<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Svc::Response, Svc::Error>,
    O: Observer,
    L::Keeps: Keep<Req, Svc::Response, Svc::Error, L, S, R, O>,
{
    #[inline]
    pub(super) fn calling(
        future: Svc::Future,
        annotation: Option<R::Annotation>,
        kept: Kept<Req, Svc::Response, Svc::Error, L, S, R, O>,
    ) -> Self {
        let state = State::Calling {
            future,
            annotation,
            kept,
        };
        Self { state }
    }

    pub(super) fn answered(answer: Result<Svc::Response, Svc::Error>) -> Self {
        let answer = Some(answer);
        let state = State::Answered { answer };
        Self { state }
    }

    pub(super) fn pending(call: BoxedCall<Svc, Req, L, S, R, O>) -> Self {
        let state = State::Pending { call };
        Self { state }
    }
}

impl<Svc, Req, L, S, R, O> Future for ResponseFuture<Svc, Req, L, S, R, O>
where
    Svc: Service<Req> + Clone,
    L: Limits<Req, Rule: Clone>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Svc::Response, Svc::Error>,
    O: Observer,
    L::Keeps: Keep<Req, Svc::Response, Svc::Error, L, S, R, O>,
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
                    kept,
                } => return L::Keeps::poll(kept, future, annotation, cx),
                StateProj::Answered { answer } => return Poll::Ready(taken(answer)),
                StateProj::Pending { call } => ready!(call.as_mut().poll(cx)),
            };
            let next = match next {
                Resumed::Called {
                    future,
                    annotation,
                    kept,
                } => Self::calling(future, annotation, kept),
                Resumed::Answered(answer) => Self::answered(answer),
            };
            self.as_mut().project().state.set(next.state);
        }
    }
}

impl<Svc, Req, L, S, R, O> fmt::Debug for ResponseFuture<Svc, Req, L, S, R, O>
where
    Svc: Service<Req>,
    L: Limits<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Svc::Response, Svc::Error>,
    O: Observer,
    L::Keeps: Keep<Req, Svc::Response, Svc::Error, L, S, R, O>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
