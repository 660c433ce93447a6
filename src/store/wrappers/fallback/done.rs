//! The future of a `settle` or `reset` in both stores.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

use crate::store::{Check, NeverFails};

pin_project! {
    /// The future of `settle` and `reset` of a [`Fallback`](super::Fallback). It polls both stores concurrently.
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct FallbackDone<R, L> {
        #[pin]
        remote: Option<R>,
        #[pin]
        local: Option<L>,
    }
}

impl<R, L, E: NeverFails> FallbackDone<R, L>
where
    R: Future<Output = Result<(), Infallible>>,
    L: Future<Output = Result<(), E>>,
{
    /// Joins the operations in both stores.
    pub(super) fn join(remote: Option<Check<R>>, local: Option<Check<L>>) -> Check<Self> {
        match (remote.and_then(pending), local.and_then(pending)) {
            (None, None) => Check::Ready(Ok(())),
            (remote, local) => Check::Pending(Self { remote, local }),
        }
    }
}

/// Returns the future of an operation that is not ready at once.
fn pending<F: Future>(check: Check<F>) -> Option<F> {
    match check {
        Check::Ready(_) => None,
        Check::Pending(done) => Some(done),
    }
}

impl<R, L, E: NeverFails> Future for FallbackDone<R, L>
where
    R: Future<Output = Result<(), Infallible>>,
    L: Future<Output = Result<(), E>>,
{
    type Output = Result<(), Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let are_done = [is_done(this.remote, cx), is_done(this.local, cx)];
        if are_done.contains(&false) {
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

fn is_done<F: Future>(mut future: Pin<&mut Option<F>>, cx: &mut Context<'_>) -> bool {
    let is_pending = |future: Pin<&mut F>| future.poll(cx).is_pending();
    if future.as_mut().as_pin_mut().is_some_and(is_pending) {
        return false;
    }
    future.set(None);
    true
}

impl<R, L> fmt::Debug for FallbackDone<R, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackDone").finish_non_exhaustive()
    }
}
