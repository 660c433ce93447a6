//! The end of a `settle` or `reset`.

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
    /// The future end of a [`FallBackTo`](super::FallBackTo) store's `settle` or `reset`, in both stores at once.
    #[must_use = "futures do nothing unless polled"]
    pub struct FallBackDone<R, L> {
        #[pin]
        remote: Option<R>,
        #[pin]
        local: Option<L>,
    }
}

impl<R, L, E: NeverFails> FallBackDone<R, L>
where
    R: Future<Output = Result<(), Infallible>>,
    L: Future<Output = Result<(), E>>,
{
    pub(super) fn of_both(remote: Option<Check<R>>, local: Option<Check<L>>) -> Check<Self> {
        match (remote.and_then(pending), local.and_then(pending)) {
            (None, None) => Check::Ready(Ok(())),
            (remote, local) => Check::Pending(Self { remote, local }),
        }
    }
}

/// What is not done at once.
fn pending<F: Future>(check: Check<F>) -> Option<F> {
    match check {
        Check::Ready(_) => None,
        Check::Pending(done) => Some(done),
    }
}

impl<R, L, E: NeverFails> Future for FallBackDone<R, L>
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

impl<R, L> fmt::Debug for FallBackDone<R, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallBackDone").finish_non_exhaustive()
    }
}
