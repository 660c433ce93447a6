//! The service: it wraps the body of each response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{MeteredBody, MeteredUnit, SettleByBody};
use crate::charging::ChargeHandle;

/// Meters the bodies of an inner service's responses. Made by [`SettleByBody`].
///
/// ```
/// use tollgate::respond::{SettleByBody, SettleByBodyService};
/// use tower::Layer;
///
/// let service: SettleByBodyService<&str> = SettleByBody::frames().layer("the inner service");
/// # let _ = service;
/// ```
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct SettleByBodyService<S> {
    inner: S,
    settings: SettleByBody,
}

impl<S> SettleByBodyService<S> {
    pub(super) fn new(inner: S, settings: SettleByBody) -> Self {
        Self { inner, settings }
    }
}

impl<S, BIn, BOut> Service<Request<BIn>> for SettleByBodyService<S>
where
    S: Service<Request<BIn>, Response = Response<BOut>>,
{
    type Response = Response<MeteredBody<BOut>>;
    type Error = S::Error;
    type Future = SettleByBodyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, req: Request<BIn>) -> Self::Future {
        let handle = req.extensions().get::<ChargeHandle>();
        let handle = handle.and_then(|handle| match &self.settings.policy {
            Some(policy) => handle.of(policy).ok(),
            None if handle.is_one() => Some(handle.clone()),
            None => {
                #[cfg(feature = "tracing")]
                crate::log::several_handles(&handle.names());
                None
            }
        });
        SettleByBodyFuture {
            future: self.inner.call(req),
            handle,
            unit: self.settings.unit,
        }
    }
}

pin_project! {
    /// The future of a [`SettleByBodyService`]'s response.
    #[must_use = "futures do nothing unless polled"]
    pub struct SettleByBodyFuture<F> {
        #[pin]
        future: F,
        handle: Option<ChargeHandle>,
        unit: MeteredUnit,
    }
}

impl<F, B, E> Future for SettleByBodyFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<MeteredBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.future.poll(cx))?;
        // An error if the handler has settled it.
        let usage = this.handle.take().and_then(|handle| handle.usage().ok());
        Poll::Ready(Ok(response.map(|body| match usage {
            Some(usage) => MeteredBody::new(body, usage, *this.unit),
            None => MeteredBody::unmetered(body),
        })))
    }
}

impl<F> fmt::Debug for SettleByBodyFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettleByBodyFuture").finish_non_exhaustive()
    }
}
