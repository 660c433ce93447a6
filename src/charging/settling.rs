//! The future of a settlement.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::store::BoxFuture;

/// The end of a settlement that a [`ChargeHandle`](super::ChargeHandle) began.
///
/// A store in memory has settled already. Others settle in the background, also if this future is
/// dropped; await it to know when they have. A settlement that fails is
/// [counted](crate::RateLimitLayer::unsettled).
pub struct Settling(Option<BoxFuture<()>>);

impl Settling {
    /// Returns a settlement that was made.
    pub(crate) fn done() -> Self {
        Self(None)
    }

    pub(crate) fn pending(future: BoxFuture<()>) -> Self {
        Self(Some(future))
    }

    /// Returns `true` if the settlement was made.
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }
}

impl Future for Settling {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.0 else {
            return Poll::Ready(());
        };
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl fmt::Debug for Settling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settling")
            .field("done", &self.is_done())
            .finish()
    }
}
