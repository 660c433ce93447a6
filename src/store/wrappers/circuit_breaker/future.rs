//! The future of a store behind a circuit breaker.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::circuits::CallGuard;
use crate::{
    store::Error,
    time::{Clock, SystemClock},
};

pin_project! {
    /// The future of a [`CircuitBreaker`](super::CircuitBreaker).
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct CircuitBreakerFuture<F, C = SystemClock> {
        #[pin]
        future: F,
        call: CallGuard<C>,
    }
}

impl<F, C> CircuitBreakerFuture<F, C> {
    pub(super) fn new(future: F, call: CallGuard<C>) -> Self {
        Self { future, call }
    }
}

impl<F, C> fmt::Debug for CircuitBreakerFuture<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreakerFuture")
            .finish_non_exhaustive()
    }
}

impl<F, T, C: Clock> Future for CircuitBreakerFuture<F, C>
where
    F: Future<Output = Result<T, Error>>,
{
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        this.call.record(&result);
        Poll::Ready(result)
    }
}
